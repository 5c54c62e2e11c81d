"""Objects of a workspace with other content end a command with an error of the library, or change nothing."""

import json
from collections.abc import Callable

import pytest
from running import FRUGALLY
from test_requests_flat import document

import llm_ocr
from llm_ocr.errors import LlmOcrError
from llm_ocr.stages import sharing
from llm_ocr.stages.clean import clean
from llm_ocr.storage import opening, register_store
from llm_ocr.workspace import Workspace
from tests.fakes.memory_store import MemoryStore

URL = "damaged://w"
NESTED = b"[" * 100_000 + b"]" * 100_000
WHOLE = [b"", b"[]", b"{}", b"3", b'"x"', NESTED, b"null"]

#: One object of each kind, by the beginning and the end of its key.
KINDS = {
    "run": ("run.json", ""),
    "generation": ("plan/0001.done", ""),
    "units": ("plan/0001/", "units-00000.jsonl"),
    "retry": ("plan/0002.done", ""),
    "stored settings": ("plan/", "settings.json"),
    "key": ("extract/key.json", ""),
    "settings": ("extract/", "settings.json"),
    "described settings": ("describe/", "settings.json"),
    "assembled settings": ("assemble/", "settings.json"),
    "marker": ("extract/", "0001-000000.done"),
    "described": ("describe/", "0001-000000.done"),
    "assembled": ("assemble/", "0001-000000.0001.done"),
    "copies": ("extract/", "all-0000003.json"),
    "lease": ("extract/", ".lease"),
    "note": ("assemble/views/", ".json"),
    "numbers": ("metrics/", "extract.json"),
    "series": ("metrics/", "extract.series.json"),
}

#: A field of an object, and its value.
FIELDS = [
    ("generation", ("number",), 0),
    ("generation", ("expected",), []),
    ("generation", ("parts", 0, "object"), []),
    ("generation", ("parts", 0, "units"), 4),
    ("generation", ("skipped",), []),
    ("generation", ("filtered",), {"readmitted": 3}),
    ("retry", ("replaced", "0002-000000"), {"unreadable": []}),
    ("retry", ("touched",), [[]]),
    ("key", ("settings",), []),
    ("settings", ("settings", "reader"), "x"),
    ("marker", ("reasons",), {"a": []}),
    ("marker", ("extra", "quality"), {"bins": [1], "worst": []}),
    ("marker", ("extra", "quality", "worst"), "x"),
    ("marker", ("extra", "superseded"), {"statuses": 3}),
    ("marker", ("examples",), [{"page_id": 3}]),
]


class Recording(MemoryStore):
    """Keeps the content of a lease, which a finished command has removed."""

    lease = ("", b"")

    def create(self, key: str, data: bytes) -> str:
        if key.startswith("extract/") and key.endswith(".lease"):
            self.lease = (key, data)
        return super().create(key, data)


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> dict[str, bytes]:
    """Return all objects of a finished run of three pages, of which one was read again."""
    folder, before = tmp_path_factory.mktemp("damaged"), dict(opening._USERS)
    store, patch = Recording(), pytest.MonkeyPatch()
    patch.setattr(sharing, "LEAST", 1)
    register_store("damaged", lambda url, options: store)
    try:
        (folder / "late.pdf").write_bytes(b"")
        for number in range(2):
            (folder / f"{number}.pdf").write_bytes(document(number))
        llm_ocr.run(folder, workspace=URL, pages_per_unit=1, image_size=64, **FRUGALLY)
        (folder / "late.pdf").write_bytes(document(3))
        llm_ocr.retry_failed(workspace=URL, engine="embedded")
        llm_ocr.run(workspace=URL, **FRUGALLY)
    finally:
        patch.undo()
        opening._USERS.clear()
        opening._USERS.update(before)
    store.put(*store.lease)
    return {info.key: store.get(info.key) for info in store.list("")}


@pytest.fixture
def commands(content, tmp_path, monkeypatch) -> dict[str, Callable[[str, bytes], object]]:
    """Return commands that take the key and the content of a changed object."""
    monkeypatch.setattr(opening, "_USERS", dict(opening._USERS))

    def on(command: Callable[[], object]) -> Callable[[str, bytes], object]:
        def run(key: str, data: bytes) -> object:
            store = MemoryStore()
            for name, whole in content.items():
                store.put(name, data if name == key else whole)
            register_store("damaged", lambda url, options: store)
            return command()

        return run

    def clean_all() -> object:
        with Workspace.open(URL) as workspace:
            return clean(workspace, older_than=1.0, now=1e12)

    every = {
        "status": lambda: str(llm_ocr.open(URL).status.to_json()),
        "extract": lambda: llm_ocr.extract(workspace=URL, **FRUGALLY),
        "assemble": lambda: llm_ocr.assemble(workspace=URL),
        "export": lambda: llm_ocr.export(workspace=URL, output=str(tmp_path / "exported")),
        "view": lambda: llm_ocr.view(workspace=URL, output=str(tmp_path / "site")),
        "report": lambda: llm_ocr.open(URL).report(tmp_path / "report.html"),
        "retry": lambda: llm_ocr.retry_failed(workspace=URL, engine="embedded", below_quality=0.5),
        "clean": clean_all,
    }
    return {name: on(command) for name, command in every.items()}


def ended(command: Callable[[str, bytes], object], key: str, data: bytes) -> str:
    """Return how a command ended; errors of other types are raised."""
    try:
        command(key, data)
    except LlmOcrError as error:
        return str(error)
    return ""


def key_of(content: dict[str, bytes], kind: str) -> str:
    begin, end = KINDS[kind]
    return next(key for key in content if key.startswith(begin) and key.endswith(end))


def test_the_run_is_whole_and_has_every_kind_of_object(content, commands):
    assert all(key_of(content, kind) for kind in KINDS)
    for command in commands.values():
        assert ended(command, "", b"") == ""


def damages(content: dict[str, bytes], key: str) -> list[bytes]:
    return [*WHOLE, content[key][: len(content[key]) // 2]]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_object_ends_commands_with_a_typed_error(content, commands, kind):
    key, shift = key_of(content, kind), list(KINDS).index(kind)
    found = damages(content, key)
    assert len(found) == len(commands)
    for place, command in enumerate(commands.values()):  # each damage once, and at each command in turn
        ended(command, key, found[(place + shift) % len(found)])
    assert all("is damaged" in ended(commands["status"], key, data) for data in found if kind == "marker")


@pytest.mark.parametrize(("kind", "path", "value"), FIELDS)
def test_a_field_of_another_type_is_named_as_damage(content, commands, kind, path, value):
    key = key_of(content, kind)
    whole = at = json.loads(content[key])
    for name in path[:-1]:
        at = at.setdefault(name, {}) if isinstance(at, dict) else at[name]
    at[path[-1]] = value
    damaged = json.dumps(whole).encode()
    messages = [ended(commands[name], key, damaged) for name in ("status", "retry", "extract", "assemble", "clean")]
    assert any("is damaged" in message for message in messages)
