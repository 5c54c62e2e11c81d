"""Renderer under the control of a document: one named `evil-PORT.*` connects to that port, reads, and writes."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm_ocr.documents import renderer
from llm_ocr.results.quality.worker import rate
from llm_ocr.sandbox.confinement import Confinement
from llm_ocr.sandbox.worker import serve


def _page(payload: Mapping[str, Any]) -> dict[str, Any]:
    path = Path(payload["source"])
    if path.name.startswith("evil-"):
        for attempt in (_connect, _read, _write):
            _refused(attempt, path)
        raise PermissionError("all that the document tried was refused")
    return renderer._page(payload)


def _refused(attempt: Any, path: Path) -> None:
    try:
        attempt(path)
    except PermissionError:
        return
    raise AssertionError(f"{attempt.__name__}: the document had its way")


def _connect(path: Path) -> None:
    socket.create_connection(("127.0.0.1", int(path.stem.partition("-")[2])), timeout=5).close()


def _read(path: Path) -> None:
    (path.parent / "key").read_bytes()


def _write(path: Path) -> None:
    (path.parent / "loot").write_bytes(b"x")


if __name__ == "__main__":
    serve({**renderer.OPERATIONS, "page": _page, "rate": rate}, Confinement())
