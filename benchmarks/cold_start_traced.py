"""Run llm-ocr and note when what happens first: `python cold_start_traced.py FILE llm-ocr's arguments…`

The functions of `EVENTS` are wrapped when their modules have been imported: imports happen when they always do. FILE
gets a JSON object a line: name of the event, seconds on the system's monotonic clock, pages rendered until then.
"""

import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

#: By module: its functions, and the names of their first beginning and their first end ("" for none).
EVENTS = {
    "llm_ocr.config.loading": {"load": ("", "settings read")},
    "llm_ocr.stages.execute": {
        "execute": ("imports done", ""),
        "find": ("", "first document found"),
        "plan": ("plan begun", "plan done"),
    },
    "llm_ocr.engines.pool.pool": {
        "ServerPool.begin": ("server wanted", ""),
        "ServerSupervisor._serve": ("server ready", ""),
    },
    "llm_ocr.engines.vllm.server": {"VllmServer._launch": ("server's process begun", "")},
    "llm_ocr.documents.rendering": {"Renderer.page": ("first page wanted", "first page rendered")},
    "llm_ocr.engines.client.endpoint": {"Endpoint.complete": ("first request", "first answer")},
    "llm_ocr.workspace.publish": {"publish": ("", "first unit published")},
}


class Notes:
    """Writes each event once."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._seen: set[str] = set()
        self.rendered = 0

    def note(self, event: str) -> None:
        if event and event not in self._seen:
            self._seen.add(event)
            line = {"event": event, "at": time.monotonic(), "rendered": self.rendered}
            self._file.write(json.dumps(line) + "\n")


class Finder(importlib.abc.MetaPathFinder):
    """Stands before the others; wraps what the module they found has defined."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in EVENTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for where, (begin, end) in EVENTS[name].items():
                *owners, last = where.split(".")
                owner = functools.reduce(getattr, owners, module)
                setattr(owner, last, self._wrapped(getattr(owner, last), begin, end))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _wrapped(self, function: Callable[..., Any], begin: str, end: str) -> Callable[..., Any]:
        notes, counts = self._notes, end == "first page rendered"

        @functools.wraps(function)
        async def later(*arguments: Any, **named: Any) -> Any:
            notes.note(begin)
            result = await function(*arguments, **named)
            notes.rendered += counts
            notes.note(end)
            return result

        @functools.wraps(function)
        def now(*arguments: Any, **named: Any) -> Any:
            notes.note(begin)
            result = function(*arguments, **named)
            notes.note(end)
            return result

        return later if inspect.iscoroutinefunction(function) else now


def main() -> int:
    notes = Notes(Path(sys.argv[1]))
    notes.note("Python runs")
    sys.meta_path.insert(0, Finder(notes))
    from llm_ocr.cli import main as command

    return command(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
