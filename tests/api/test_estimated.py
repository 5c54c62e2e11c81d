"""Documents that are counted only when they are read: the rows are those of an exact plan, and planning opens few."""

import functools
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import bad_documents as bad
import pytest
from PIL import Image
from running import FRUGALLY, status_of
from store_servers import s3

import llm_ocr
from llm_ocr.sandbox.pool import WorkerPool
from llm_ocr.stages import plan
from llm_ocr.stages.counting import CountOptions
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.types import RESERVED, Reason
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units

#: One unit holds so many pages.
UNIT = 4
LONG = 12
PLAIN = 14


def _image(frames: int, form: str) -> bytes:
    data = io.BytesIO()
    pages = [Image.new("L", (60, 80), 255) for _ in range(frames)]
    pages[0].save(data, form, **({"save_all": True, "append_images": pages[1:]} if frames > 1 else {}))
    return data.getvalue()


def documents() -> dict[str, bytes]:
    """Documents by path: short, long, encrypted, empty, damaged, with no pages, images, and a copy."""
    made = {
        f"plain/{number:02d}.pdf": bad.text_pdf(*bad.good_pages(f"report {number}", 1 + number % 3))
        for number in range(PLAIN)
    }
    return made | {
        "a long.pdf": bad.text_pdf(*([f"Sheet {number} of the long one.", *bad.SENTENCES] for number in range(LONG))),
        "copy of 04.pdf": made["plain/04.pdf"],
        "locked.pdf": bad.text_pdf(*bad.good_pages("the locked one", 2), password="open sesame"),
        "empty.pdf": b"",
        "garbage.pdf": bad.garbage(),
        "no pages.pdf": bad.no_pages(),
        "picture.png": _image(1, "PNG"),
        "frames.tiff": _image(3, "TIFF"),
    }


@pytest.fixture(scope="module")
def made(golden) -> Path:
    """A folder with the documents."""

    def make_it(root: Path) -> None:
        for name, data in documents().items():
            path = root / "documents" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    return golden("estimated", make_it)


@pytest.fixture(scope="module")
def exact(golden, made) -> llm_ocr.Run:
    """A run that counted all pages first; only slow tests need it."""

    def make_it(root: Path) -> None:
        llm_ocr.run(made / "documents", workspace=root / "w", count_pages="exact", pages_per_unit=UNIT, **FRUGALLY)

    return llm_ocr.open(str(golden("estimated exact", make_it) / "w"))


@pytest.fixture
def few(monkeypatch):
    """Very many documents are more than ten, and a sample is three of a kind."""
    options = functools.partial(CountOptions, exact_up_to=10, sample=3)
    monkeypatch.setattr(plan, "CountOptions", options)


def rows_of(run: llm_ocr.Run) -> list[tuple]:
    """What each page came to, in the order of the plan, without what is another place's alone."""
    return [
        (row.page_id, row.page_number, row.status, row.reason, row.markdown, row.detail.replace(row.source, ""))
        for row in run.pages(images=False)
    ]


def texts_of(run: llm_ocr.Run) -> dict[str, str]:
    return {document.path: document.markdown for document in run.documents()}


@pytest.mark.slow
def test_the_rows_are_those_of_an_exact_plan(made, exact, few, tmp_path):
    workspace = tmp_path / "w"
    planned = llm_ocr.plan(made / "documents", workspace=workspace, engine="embedded", pages_per_unit=UNIT)
    assert planned.status.estimated and planned.status.documents == exact.status.documents == PLAIN + 7
    assert status_of(workspace)["pages"]["estimated"] is True
    with Workspace.open(str(workspace)) as opened:
        parts = [part for unit in read_units(opened) for part in unit.parts]
    long = [part for part in parts if part.relative == "a long.pdf"]
    assert [len(part.pages) for part in long] == [UNIT] * (LONG // UNIT)
    assert sum(part.estimate > 0 for part in parts) > PLAIN // 2

    run = llm_ocr.run(workspace=workspace, **FRUGALLY)
    assert rows_of(run) == rows_of(exact)
    assert texts_of(run) == texts_of(exact)
    assert run.status.pages == exact.status.pages
    assert run.status.finished and not run.status.estimated
    assert run.status.reasons == exact.status.reasons
    indices = [row.dataset_index for row in run.pages(images=False)]
    assert indices == sorted(set(indices)) and indices[-1] > RESERVED
    assert run.to_dataset()["sample_id"] == exact.to_dataset()["sample_id"]
    assert "estimated" not in status_of(workspace)["pages"]


def test_planning_again_adds_nothing_and_opens_no_known_document(made, few, tmp_path, monkeypatch):
    opened: set[str] = set()
    not_counted = {"empty.pdf", "garbage.pdf", "locked.pdf", "no pages.pdf"}
    call = WorkerPool.call

    async def noted(self: WorkerPool, operation: str, payload: dict, **options: object) -> object:
        opened.update(Path(one["source"]).name for one in payload.get("documents", [payload]))
        return await call(self, operation, payload, **options)

    def plan(**settings: object) -> llm_ocr.Run:
        return llm_ocr.plan(made / "documents", workspace=tmp_path / "w", engine="embedded", **settings)

    first = plan().status
    monkeypatch.setattr(WorkerPool, "call", noted)
    assert plan().status.generations == 1
    assert opened <= not_counted
    assert plan(count_pages="exact").status.generations == 1
    assert "a long.pdf" not in opened  # counted, so that it could be cut
    more = made / "documents" / "plain" / "04.pdf"
    again = llm_ocr.plan([made / "documents", more], workspace=tmp_path / "w", engine="embedded").status
    assert (again.generations, again.pages) == (1, first.pages)


@pytest.fixture
def bucket(made) -> Iterator[tuple[str, str, dict[str, str], Counter[str]]]:
    """The documents on S3, a workspace there, the settings that reach both, and the objects that were read."""
    read: Counter[str] = Counter()
    with s3() as (workspace, settings):
        from botocore.client import BaseClient

        root = workspace.partition("/runs/")[0]
        store = open_store(root, StoreOptions(endpoint=settings["workspace_endpoint"]))
        for path in sorted((made / "documents").rglob("*.*")):
            store.upload(path, f"corpus/{path.relative_to(made / 'documents').as_posix()}")
        call = BaseClient._make_api_call

        def noted(client: BaseClient, operation: str, wanted: Mapping[str, str]) -> object:
            if operation == "GetObject" and wanted["Key"].startswith("corpus/"):
                read[wanted["Key"].removeprefix("corpus/")] += 1
            return call(client, operation, wanted)

        with mock.patch.object(BaseClient, "_make_api_call", noted):
            yield f"{root}/corpus", workspace, {**settings, "source_endpoint": settings["workspace_endpoint"]}, read


@pytest.mark.slow
def test_planning_on_bucket_downloads_sample_and_long_documents(bucket, few, exact):
    corpus, workspace, settings, read = bucket
    llm_ocr.plan(corpus, workspace=workspace, engine="embedded", pages_per_unit=UNIT, **settings)
    sample = {name for name in read if name != "a long.pdf"}
    assert read["a long.pdf"] == 1 and len(sample) <= 2 * 3  # two kinds of documents with any number of pages
    assert read.total() == len(read)

    run = llm_ocr.run(workspace=workspace, **settings, **FRUGALLY)
    assert run.status.finished and not run.status.estimated
    assert run.status.pages == exact.status.pages

    def without_ids(rows: list[tuple]) -> list[tuple]:
        return sorted(
            (number or 0, status, reason or "", text.replace(page.rpartition("-")[0], ""))
            for page, number, status, reason, text, _ in rows
        )

    assert without_ids(rows_of(run)) == without_ids(rows_of(exact))


@pytest.mark.slow
def test_a_list_of_objects_is_planned_without_downloading_them(bucket, monkeypatch, tmp_path):
    corpus, workspace, settings, read = bucket
    monkeypatch.setattr(plan, "CountOptions", functools.partial(CountOptions, exact_up_to=10, sample=0))
    names = [f"plain/{number:02d}.pdf" for number in range(PLAIN)]
    (tmp_path / "list.txt").write_text("\n".join(f"{corpus}/{name}" for name in [*names, "gone.pdf"]))
    run = llm_ocr.plan(tmp_path / "list.txt", workspace=workspace, engine="embedded", **settings)
    assert not read
    assert run.status.estimated and run.status.documents == PLAIN + 1
    with Workspace.open(workspace, options=StoreOptions(endpoint=settings["workspace_endpoint"])) as opened:
        parts = [part for unit in read_units(opened) for part in unit.parts]
    assert [Path(part.source).name for part in parts if part.reason is Reason.NOT_FOUND] == ["gone.pdf"]
    assert all(part.version for part in parts if part.estimate)


def test_the_words_say_that_it_is_about(made, tmp_path, few, capsys):
    from llm_ocr.cli import main

    def words(*arguments: str) -> str:
        assert main([*arguments, "-w", str(tmp_path / "w"), *_one_each(arguments[0])]) in (0, 3)
        said = capsys.readouterr()
        return said.out + said.err

    assert f"{PLAIN} documents, about " in words("plan", str(made / "documents" / "plain"), "--pages", "1")
    assert re.search(r"pages +about \d+ expected: 0 ok, about \d+ not done yet", words("status"))
    read = words("extract")
    assert "extract: about " in read and f"extract: {PLAIN}/{PLAIN} pages" in read
    assert "about" not in words("status")


def _one_each(command: str) -> tuple[str, ...]:
    each = ("--render-workers", "1", "--ocr-workers", "1") if command == "extract" else ()
    return ("--engine", "embedded", *each) if command in ("plan", "extract") else ()
