"""A Modal without an account: the functions of the real app run by `.local()`, and lookups by name find them.

Everything of the `modal` package stays as it is but the lookups by name and what needs a server.
"""

import importlib.util
import inspect
import itertools
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import modal
import modal.exception as errors
from modal._image import ImageBuilderVersion
from modal._utils.async_utils import synchronizer

APP = Path(__file__).resolve().parents[3] / "modal-app" / "app.py"


class StubCall:
    """One call of a function, in a thread."""

    def __init__(
        self,
        modal_stub: "StubModal",
        number: int,
        function: str,
        arguments: dict[str, Any],
        secrets: dict[str, str],
    ) -> None:
        self.object_id = f"fc-{number:04}"
        self.function = function
        self.output = ""
        self.outcome: BaseException | None = None
        self.cancelled = False
        self._over = threading.Event()
        self._stub = modal_stub
        arguments = {**arguments, "environment": {**arguments["environment"], **secrets}}
        self._thread = threading.Thread(target=self._run, args=(arguments,), daemon=True)
        if not modal_stub.hold:
            self._thread.start()

    def _run(self, arguments: dict[str, Any]) -> None:
        try:
            getattr(self._stub.app, self.function).local(**arguments)
        except Exception as error:  # noqa: BLE001 - kept, as Modal keeps it
            self.outcome = self.outcome or error
        self._over.set()

    def end(self, error: BaseException) -> None:
        """Modal ends it for a reason of its own."""
        self.outcome = error
        self._over.set()

    def wait(self) -> None:
        if self._thread.is_alive():
            self._thread.join()

    def get(self, timeout: float | None = None) -> None:
        if not self._over.wait(timeout):
            raise TimeoutError
        if self.outcome:
            raise self.outcome

    def cancel(self) -> None:
        self.cancelled = True
        self.end(errors.RemoteError("Input was cancelled by user"))

    @property
    def logs(self) -> Any:
        pieces = [SimpleNamespace(message=self.output[start : start + 7]) for start in range(0, len(self.output), 7)]
        return SimpleNamespace(fetch=lambda since: iter(pieces), stream=lambda: iter(pieces), tail=self._tail)

    def _tail(self, entries: int) -> Any:
        lines = self.output.splitlines(keepends=True)[-entries:]
        return iter([SimpleNamespace(message=line) for line in lines])


class StubModal:
    """What is deployed, and which calls there were."""

    def __init__(self) -> None:
        self.apps = {"llm-ocr"}
        self.secrets = {"aws": {"AWS_SECRET_ACCESS_KEY": "of modal"}}
        self.refusal: BaseException | None = None  # what asking for hardware raises
        self.options: list[dict[str, Any]] = []
        self.arguments: list[dict[str, Any]] = []
        self.calls: dict[str, StubCall] = {}
        self.boards: dict[str, dict[str, Any]] = {}
        self.commits: list[str] = []
        self.hold = False  # calls wait for a machine
        self.app: ModuleType = None  # type: ignore[assignment]
        self._numbers = itertools.count(1)

    def from_name(self, app: str, name: str) -> Any:
        return self._function(app, name, {})

    def _function(self, app: str, name: str, options: dict[str, Any]) -> Any:
        def hydrate() -> None:
            if app not in self.apps:
                raise errors.NotFoundError(f"Lookup failed for Function '{name}' from the '{app}' app: App not found")
            if options and self.refusal:
                raise self.refusal

        def spawn(**arguments: Any) -> StubCall:
            hydrate()
            secrets = {key: value for one in options.get("secrets", ()) for key, value in one.items()}
            self.options.append(options)
            self.arguments.append(arguments)
            call = StubCall(self, next(self._numbers), name, arguments, secrets)
            self.calls[call.object_id] = call
            return call

        def with_options(**more: Any) -> Any:
            return self._function(app, name, {**options, **more})

        return SimpleNamespace(hydrate=hydrate, with_options=with_options, spawn=spawn)

    def secret(self, name: str, required_keys: list[str] | None = None) -> Any:
        return _Secret(self.secrets.get(name), name, required_keys or [])

    def board(self, name: str, create_if_missing: bool = False) -> Any:
        return _Board(self.boards.setdefault(name, {}))

    def install(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(modal.Function, "from_name", self.from_name)
        monkeypatch.setattr(modal.FunctionCall, "from_id", lambda number: self.calls[number])
        monkeypatch.setattr(modal.Secret, "from_name", self.secret)
        monkeypatch.setattr(modal.Secret, "from_dict", dict)
        monkeypatch.setattr(modal.Dict, "from_name", self.board)
        monkeypatch.setattr(modal.Volume, "commit", lambda volume: self.commits.append(volume.name))
        self.app = load_app()

    def finish(self) -> None:
        for call in self.calls.values():
            call.wait()


class _Secret(dict):
    def __init__(self, values: dict[str, str] | None, name: str, keys: list[str]) -> None:
        super().__init__(values or {})
        self._said = None if values is not None else f"Secret '{name}' not found"
        if values is not None and not set(keys) <= values.keys():
            self._said = f"Secret '{name}' is missing key(s) {', '.join(keys)}"

    def hydrate(self) -> None:
        if self._said:
            raise errors.NotFoundError(self._said)


class _Board:
    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def get(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def put(self, key: str, value: Any, *, skip_if_exists: bool = False) -> bool:
        if skip_if_exists and key in self._values:
            return False
        self._values[key] = value
        return True

    def pop(self, key: str, default: Any = None) -> Any:
        return self._values.pop(key, default)


def load_app() -> ModuleType:
    """The file that users deploy, read anew: names come from the environment."""
    found = importlib.util.spec_from_file_location("modal_app_under_test", APP)
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def dockerfile(function: Any) -> list[str]:
    """Return the lines of Modal's newest image builder for the image of a function, the base image first."""
    newest = max(version for version in get_args(ImageBuilderVersion) if version != "PREVIEW")
    return _layers(synchronizer._translate_in(function)._spec.image, newest)


def _layers(image: Any, version: str) -> list[str]:
    """Modal generates the lines when it builds; until then they are in the closure of the layer's loader."""
    known = inspect.getclosurevars(image._load).nonlocals
    if "split_image" in known:  # a registry image with a Python of Modal's
        return _layers(known["split_image"], version)
    below = [line for base in known["base_images"].values() for line in _layers(base, version)]
    return below + known["dockerfile_function"](version).commands
