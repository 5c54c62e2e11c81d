"""Filters, samples and dry runs as people use them: what is planned, said, remembered and read."""

import hashlib
import io
import json
import shutil
from pathlib import Path

import bad_documents as bad
import pytest
from PIL import Image, ImageDraw
from running import FRUGAL, cli, said
from store_servers import s3

import llm_ocr
from llm_ocr.documents.rendering import Renderer
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.types import Reason
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units

GERMAN = (
    "In der Nacht war der Fluss gestiegen, und gegen Mittag",
    "stand er wieder so tief wie am Tag zuvor. Niemand hatte",
    "die Boote an das Ufer gezogen, und drei von ihnen waren",
    "verschwunden. Der Schreiber der Gemeinde zeichnete den",
    "Wasserstand mit einem Stück Kreide an die Mauer.",
)
FEW = {"engine": "embedded", "render_workers": 2}


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    """Eight English documents, three German ones, a blank one, one that is encrypted and a picture."""
    root = tmp_path_factory.mktemp("filtered") / "documents"
    root.mkdir()
    for number in range(8):
        (root / f"english {number}.pdf").write_bytes(bad.text_pdf(*bad.good_pages(f"report {number}", 1)))
    for number in range(3):
        (root / f"german {number}.pdf").write_bytes(bad.text_pdf([f"Bericht {number}.", *GERMAN]))
    (root / "blank.pdf").write_bytes(bad.blank())
    (root / "locked.pdf").write_bytes(bad.text_pdf(GERMAN, password="open sesame"))
    picture = Image.new("L", (200, 100), 255)
    ImageDraw.Draw(picture).text((20, 40), "picture", fill=0)
    picture.save(root / "picture.png")
    return root


def planned(workspace: Path) -> list[str]:
    with Workspace.open(str(workspace)) as opened:
        return [part.relative for unit in read_units(opened) for part in unit.parts]


def tree(folder: Path) -> dict[str, str]:
    """Every file below, with what is in it."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def first(documents, tmp_path_factory) -> tuple[Path, str, str]:
    """A workspace of English documents that are not blank, and what `plan` wrote."""
    folder = tmp_path_factory.mktemp("first")
    run = cli(
        *("plan", documents, "-w", "w", "--filter-language", "en", "--filter-blank", *FRUGAL[:2]),
        cwd=folder,
    )
    assert run.returncode == 0, said(run)
    return folder / "w", run.stdout, run.stderr


@pytest.fixture
def program(tmp_path):
    """Run `llm-ocr` in an empty folder."""
    return lambda *arguments: cli(*arguments, cwd=tmp_path)


def test_plan_lists_filtered_documents_and_status_counts_them(first, program):
    workspace, out, err = first
    assert "10 documents, 10 pages, 10 units; 4 filtered: 3 language (de), 1 blank" in out
    assert "german 0.pdf (language: de" in err
    told = json.loads(program("status", "-w", workspace, "--json").stdout)["filtered"]
    assert (told["documents"], told["reasons"], told["languages"]) == (4, {"language": 3, "blank": 1}, {"de": 3})
    names = {Path(one["source"]).name for one in told["examples"]}
    assert names == {"blank.pdf", *(f"german {n}.pdf" for n in range(3))}
    assert "filtered   3 language (de), 1 blank" in program("status", "-w", workspace).stdout
    with Workspace.open(str(workspace)) as opened:
        reasons = {part.relative: part.reason for unit in read_units(opened) for part in unit.parts}
    assert not any(name.startswith(("german", "blank")) for name in reasons)
    assert (reasons["locked.pdf"], reasons["picture.png"]) == (Reason.ENCRYPTED, None)


@pytest.mark.slow
def test_planning_again_looks_at_nothing_that_is_known(documents, first, tmp_path, monkeypatch):
    shutil.copytree(first[0], tmp_path / "w")
    keywords = {"workspace": tmp_path / "w", "filter_language": "en", "filter_blank": True, **FEW}
    asked = []
    judge = Renderer.judge

    async def counted(self, source, kind, filters):
        asked.append(Path(source).name)
        return await judge(self, source, kind, filters)

    monkeypatch.setattr(Renderer, "judge", counted)
    again = llm_ocr.plan(documents, **keywords).status
    assert asked == ["locked.pdf"]  # has no pages in the plan: it may be opened by now
    assert (again.filtered, again.generations, again.documents) == ({"language de": 3, "blank": 1}, 1, 10)
    monkeypatch.undo()
    other = llm_ocr.plan(documents, **{**keywords, "filter_language": ["de", "en"]}).status
    assert (other.filtered, other.documents) == ({"blank": 1}, 13)


@pytest.mark.parametrize("left", [["english 1.pdf"], []])
def test_a_filtered_workspace_is_read_to_its_end(documents, tmp_path, left):
    only = ["blank.pdf", *left]
    run = llm_ocr.run(documents, workspace=tmp_path / "w", filter_blank=True, only=only, **FEW, ocr_workers=1)
    assert run.status.finished and (run.status.pages.expected, run.status.pages.ok) == (len(left), len(left))
    assert run.status.filtered == {"blank": 1} and len(list(run.pages())) == len(left)


def test_unknown_language_is_wrong_usage_and_makes_no_workspace(documents, tmp_path, program):
    run = program("plan", documents, "-w", "w", "--filter-language", "german")
    assert run.returncode == 2 and "--filter-language german" in run.stderr and list(tmp_path.iterdir()) == []


def test_a_dry_run_shows_what_is_new_and_writes_nothing(documents, tmp_path, program):
    run = program("plan", documents, "-w", "w", "--filter-blank", "--filter-language", "en", "--dry-run")
    first, *examples, last = run.stdout.splitlines()
    assert run.returncode == 0 and first == "10 documents, 10 pages, 10 units; 4 filtered: 3 language (de), 1 blank"
    assert len(examples) == 4 and "german 0.pdf: language (de, " in run.stdout
    assert last == "Dry run: nothing was written" and list(tmp_path.iterdir()) == []
    program("plan", documents, "-w", "w", "--only", "english*")
    before = tree(tmp_path)
    run = program("plan", documents, "-w", "w", "--filter-blank", "--sample", "14", "--dry-run")
    assert run.stdout.startswith("5 new documents, 5 pages, 5 units; 1 filtered: 1 blank; 8 already in the plan\n")
    assert tree(tmp_path) == before


def test_a_sample_is_remembered_and_grows_with_its_number(documents, tmp_path, program):
    workspace = tmp_path / "w"
    assert program("plan", documents, "-w", "w", "--sample", "4", "--seed", "3").stdout.startswith("4 documents, ")
    drawn = planned(workspace)
    assert json.loads((workspace / "plan" / "settings.json").read_text())["settings"]["sample"] == 4
    run = program("extract", documents, "-w", "w", *FRUGAL, "--max-failed-rate", "1")
    assert run.returncode == 0, said(run)
    assert planned(workspace) == drawn and llm_ocr.open(str(workspace)).status.stages["extract"].finished
    program("plan", documents, "-w", "w", "--sample", "9")
    assert len(planned(workspace)) == 9 and planned(workspace)[:4] == drawn
    dry = program("plan", documents, "-w", "x", "--sample", "4", "--seed", "3", "--dry-run").stdout
    assert dry.startswith("4 documents, ") and not (tmp_path / "x").exists()


def test_filters_look_at_documents_that_would_be_estimated(documents, tmp_path):
    keywords = {"count_pages": "estimate", "filter_blank": True}
    status = llm_ocr.plan(documents, workspace=tmp_path / "w", **keywords, **FEW).status
    assert status.filtered == {"blank": 1} and not status.estimated


@pytest.mark.slow
def test_documents_and_workspace_may_stand_in_a_bucket(documents, tmp_path):
    with s3() as (url, settings):
        endpoint = settings["workspace_endpoint"]
        folder = open_store(f"{url}-documents", StoreOptions(endpoint=endpoint))
        for name in ("blank.pdf", "english 0.pdf", "english 1.pdf"):
            folder.upload(documents / name, name)
        for _ in range(2):
            run = llm_ocr.plan(
                f"{url}-documents/", workspace=url, filter_blank=True, source_endpoint=endpoint, **settings, **FEW
            )
            assert (run.status.documents, run.status.filtered, run.status.generations) == (2, {"blank": 1}, 1)


def test_rows_of_a_dataset_are_sampled_and_blank_ones_left_out(tmp_path):
    from tests.documents.rows import dataset_hub as parts

    white = io.BytesIO()
    Image.new("L", (300, 200), 255).save(white, "PNG")
    cells = [
        parts.cell(white.getvalue() if n % 4 == 0 else parts.picture(f"ROW {n}", size=(300, 80))) for n in range(8)
    ]
    with parts.dataset_hub(tmp_path / "hf home") as hub:
        hub.add(
            "tester/filtered", {"data/train-0.parquet": parts.parquet({"page": cells}, {"page": parts.IMAGE}, rows=4)}
        )
        status = llm_ocr.plan(dataset="tester/filtered", workspace=tmp_path / "w", filter_blank=True, **FEW).status
        assert (status.documents, status.filtered) == (6, {"blank": 2})
        status = llm_ocr.plan(dataset="tester/filtered", workspace=tmp_path / "s", sample=3, **FEW).status
        assert (status.documents, status.pages.expected) == (3, 3)
