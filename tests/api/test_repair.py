"""`repair`: bad pages are read again with other settings, and the better row of each page counts."""

import json
import shutil
from pathlib import Path

import bad_documents as bad
import pytest
from running import FRUGAL, FRUGALLY, cli, dataset_rows, published, said, status_of

import llm_ocr
from llm_ocr.errors import StageMissing, UsageError
from llm_ocr.stages.sharing import need_finished
from llm_ocr.types import Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, required_key
from llm_ocr_simulator import running

OCR = ("--text-layer", "never")


@pytest.fixture(scope="module")
def before(golden) -> Path:
    """Pages of which one has a text layer with the title alone, read by `run`."""

    def make(folder: Path) -> None:
        documents = folder / "documents"
        documents.mkdir()
        (documents / "good.pdf").write_bytes(bad.text_pdf(*bad.good_pages("good", 2)))
        (documents / "outlines.pdf").write_bytes(bad.outlined_pdf("The minutes of May", bad.SENTENCES * 3))
        run = cli("run", "documents", "-w", "out", *FRUGAL, cwd=folder)
        assert run.returncode == 0, said(run)

    return golden("repair", make)


@pytest.fixture
def folder(before, tmp_path) -> Path:
    """A copy of the workspace, in a folder of its own. The documents stay in their place."""
    shutil.copytree(before / "out", tmp_path / "out")
    return tmp_path


def repair(folder: Path, *arguments: str):
    return cli("repair", "-w", "out", *FRUGAL, *arguments, cwd=folder)


def markdown(folder: Path, name: str) -> str:
    return (folder / "out" / "documents" / f"{name}.pdf.md").read_text()


def rows(folder: Path):
    return list(llm_ocr.open(folder / "out").pages(images=False))


def interrupt(folder: Path) -> None:
    """Remove what a repair publishes last, as if it had been killed before."""
    for path in (folder / "out").glob("*/*/*/*.done"):
        if "0002" in path.name:
            path.unlink()


def test_bad_pages_are_read_again_better_in_the_same_place(folder):
    shown = cli("status", "-w", "out", "--worst", "3", cwd=folder).stdout
    assert "1 of 3 pages below 0.8" in shown
    assert "outlines.pdf" in shown
    assert bad.SENTENCES[0] not in markdown(folder, "outlines")
    old = published(folder / "out")

    done = repair(folder, "--below-quality", "0.5", *OCR)
    assert done.returncode == 0, said(done)
    assert "Generation 2: 1 page to be read again with --text-layer never" in done.stderr
    assert "repair 0002: 1 page read again with --text-layer never: 1 better, 0 kept" in done.stdout
    assert done.stdout.endswith("3 ok\n")
    assert bad.SENTENCES[0] in " ".join(markdown(folder, "outlines").split())
    assert old.items() <= published(folder / "out").items()

    status = status_of(folder / "out")
    assert status["pages"] == {"expected": 3, "ok": 3, "degraded": 0, "failed": 0}
    (repaired,) = status["repairs"]
    assert (repaired["settings"], repaired["better"], repaired["kept"]) == ({"text_layer": "never"}, 1, 0)
    assert "repair     0002: 1 page read again" in cli("status", "-w", "out", cwd=folder).stdout
    assert [row["status"] for row in dataset_rows(folder / "out", "status")] == ["ok"] * 3

    assert cli("view", "-w", "out", "-o", "site", cwd=folder).returncode == 0
    site = "".join(path.read_text() for path in (folder / "site").glob("site-*/data/pages/**/*") if path.is_file())
    assert site.count('["reason","unread"]') == 1  # of the earlier reading, beside the new one

    assert cli("report", "-w", "out", "-o", "report.html", cwd=folder).returncode == 0
    report = (folder / "report.html").read_text()
    assert "repair 0002: 1 page read again with text_layer=never: 1 better, 0 kept" in report

    again = repair(folder, "--below-quality", "0.5", *OCR)
    assert again.returncode == 0, said(again)
    assert "No page to repair" in again.stderr
    assert status_of(folder / "out")["generations"] == 2


@pytest.mark.slow
def test_unbalanced_pages_are_chosen_whatever_their_reason(before, tmp_path):
    limits = ("--max-unread", "1", "--max-unsupported", "1")
    lax = cli("run", before / "documents", "-w", "out", *FRUGAL, *limits, cwd=tmp_path)
    assert lax.returncode == 0, said(lax)
    assert status_of(tmp_path / "out")["reasons"] == {"low quality": 1}
    done = repair(tmp_path, "--unbalanced", *limits, *OCR)
    assert "repair 0002: 1 page read again with --text-layer never: 1 better, 0 kept" in done.stdout, said(done)
    assert bad.SENTENCES[0] in " ".join(markdown(tmp_path, "outlines").split())


def test_rows_name_the_settings_that_read_them(folder):
    assert repair(folder, *OCR).returncode == 0  # without a selection: the degraded page
    (key,) = [repair["key"] for repair in status_of(folder / "out")["repairs"]]
    for row in rows(folder):
        named = [attempt.get("repair") for attempt in row.attempts]
        assert named == ([key] if row.source.endswith("outlines.pdf") else [None])
    (row,) = [row for row in rows(folder) if row.source.endswith("outlines.pdf")]
    assert (row.text_source, row.attempts[0]["settings"]) == ("ocr", {"text_layer": "never"})


def test_describe_counts_the_current_figures_after_a_repair(examples, tmp_path):
    llm_ocr.run(examples / "paper.pdf", workspace=tmp_path / "out", pages="3", **FRUGALLY)
    (tmp_path / "pages.txt").write_text("\n".join(row.page_id for row in rows(tmp_path)))
    done = repair(tmp_path, "--pages-from", "pages.txt", *OCR)
    assert done.returncode == 0, said(done)
    figures = status_of(tmp_path / "out")["figures"]["expected"]
    assert figures == 1
    again = cli("describe", "-w", "out", "--engine", "embedded", cwd=tmp_path)
    assert "describe: 1 figure, 1 already done" in again.stderr
    assert "describe: 1/1 figure, 1 ok" in again.stderr


def test_worse_result_of_a_repair_stays_history(folder):
    text, old = markdown(folder, "good"), rows(folder)
    (folder / "list.txt").write_text(f"{old[0].page_id}\n")
    done = repair(folder, "--pages-from", "list.txt", *OCR, "--image-size", "150", "--headers", "keep")
    assert done.returncode == 0, said(done)
    assert "with --headers keep --image-size 150 --text-layer never: 0 better, 1 kept" in done.stdout
    assert markdown(folder, "good") == text
    assert rows(folder) == old
    again = repair(folder, "--pages-from", "list.txt", *OCR, "--image-size", "150", "--headers", "keep")
    assert "No page to repair" in again.stderr


def test_repair_says_how_many_pages_could_not_be_read(tmp_path):
    (tmp_path / "good.pdf").write_bytes(bad.text_pdf(*bad.good_pages("good", 1)))
    assert cli("extract", "good.pdf", "-w", "out", "--engine", "embedded", *FRUGAL, cwd=tmp_path).returncode == 0
    (old,) = rows(tmp_path)
    (tmp_path / "good.pdf").unlink()
    (tmp_path / "list.txt").write_text(f"{old.page_id}\n")
    done = repair(tmp_path, "--pages-from", "list.txt", *OCR)
    assert "0 better, 1 kept (1 of them could not be read)" in done.stdout
    assert rows(tmp_path) == [old]


def test_pages_are_named_by_id_by_path_and_as_json(folder, before):
    first, *_, bad_page = rows(folder)
    path = before / "documents" / "good.pdf"
    lines = [first.page_id, f"{path}\t2", json.dumps({"page_id": bad_page.page_id})]
    (folder / "list.txt").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")  # as some editors save it
    run = llm_ocr.repair(
        workspace=folder / "out", page_list=folder / "list.txt", max_pages=2, text_layer="never", **FRUGALLY
    )
    read = {row.page_id for row in run.pages(images=False) if row.text_source == "ocr"}
    (repaired,) = run.status.repairs
    assert (repaired.pages, repaired.better, repaired.equal, repaired.kept) == (2, 1, 1, 0)
    assert str(repaired).endswith("with `text_layer=never`: 1 better, 1 equal, 0 kept")
    assert bad_page.page_id in read  # the worst first


def test_unknown_pages_are_an_error_that_names_and_counts_them(folder):
    (folder / "list.txt").write_text(f"{rows(folder)[0].page_id}\nnobody-p00001\ngood.pdf\t7\ngood.pdf\t8\n")
    with pytest.raises(UsageError, match="no page nobody-p00001, and 2 other pages"):
        llm_ocr.repair(workspace=folder / "out", page_list=folder / "list.txt", **FRUGALLY)
    assert status_of(folder / "out")["generations"] == 1


def test_two_selections_are_an_error(folder):
    (folder / "list.txt").write_text("")
    done = repair(folder, "--pages-from", "list.txt", "--below-quality", "0.5")
    assert done.returncode == 2
    assert "--below-quality and --pages-from choose different pages" in done.stderr


def test_repair_needs_extracted_pages(tmp_path):
    (tmp_path / "a.pdf").write_bytes(bad.text_pdf(["A page."]))
    llm_ocr.plan(tmp_path / "a.pdf", workspace=tmp_path / "out")
    with pytest.raises(StageMissing, match="extract has not started"):
        llm_ocr.repair(workspace=tmp_path / "out", **FRUGALLY)


@pytest.mark.slow
def test_run_names_the_command_that_continues_a_repair(folder):
    assert repair(folder, *OCR).returncode == 0
    whole, text = rows(folder), markdown(folder, "outlines")
    interrupt(folder)
    run = cli("run", "-w", "out", *FRUGAL, cwd=folder)
    assert run.returncode == 1, said(run)
    assert "1 of 4 units not extracted" in run.stderr
    assert "Run first: llm-ocr repair -w" in run.stderr
    assert "--text-layer never" in run.stderr
    assert [row.status for row in rows(folder)].count(Status.DEGRADED) == 1

    again = repair(folder, *OCR)
    assert again.returncode == 0, said(again)
    assert "1 unit of an earlier command to be read with --text-layer never" in again.stderr
    assert [(row.page_id, row.markdown) for row in rows(folder)] == [(row.page_id, row.markdown) for row in whole]
    assert markdown(folder, "outlines") == text
    assert len(status_of(folder / "out")["repairs"]) == 1


def test_command_that_continues_a_repair_names_the_server(folder):
    """Also in a workspace whose pages a server read before: the repair has the same engine."""
    assert repair(folder, *OCR).returncode == 0
    interrupt(folder)
    claimed = folder / "out/extract/key.json"
    claimed.write_text(claimed.read_text().replace('"embedded"', '"server"'))
    workspace = Workspace.open(str(folder / "out"))
    with pytest.raises(StageMissing) as missing:
        need_finished(workspace, EXTRACT, required_key(workspace, EXTRACT))
    assert "`text_layer=never` `server_url=URL`" in str(missing.value.hint)


@pytest.mark.slow
def test_repair_whose_server_is_gone_can_be_given_up(folder):
    with running(preset="h100", speed=50, mean_tokens=100) as server:
        small = ("--render-workers", "1", "--ocr-workers", "1", "--image-size", "320")
        done = cli("repair", "-w", "out", "--server-url", server.url, *small, cwd=folder)
        assert done.returncode == 0, said(done)
    interrupt(folder)
    stopped = cli("run", "-w", "out", *FRUGAL, cwd=folder)
    assert stopped.returncode == 1
    assert f"to keep the earlier results: llm-ocr repair -w {folder / 'out'} --give-up" in stopped.stderr

    unfinished = "0 better, 0 kept (unfinished: the same command continues, and repair --give-up ends it)"
    assert unfinished in cli("status", "-w", "out", cwd=folder).stdout

    idle = cli("repair", "-w", "out", "--give-up", *OCR, cwd=folder)
    assert idle.returncode == 2
    assert "--text-layer has no effect with --give-up" in idle.stderr
    done = cli("repair", "-w", "out", "--give-up", cwd=folder)
    assert done.returncode == 0, said(done)
    assert "1 page given up: the earlier results count" in done.stderr
    assert "0 of 1 pages read again" in cli("status", "-w", "out", cwd=folder).stdout
    (repaired,) = status_of(folder / "out")["repairs"]
    assert (repaired["read"], repaired["kept"], repaired["given_up"]) == (0, 0, 1)
    assert cli("run", "-w", "out", *FRUGAL, cwd=folder).returncode == 0
    assert [row["status"] for row in dataset_rows(folder / "out", "status")].count("degraded") == 1
    assert "Nothing to give up" in cli("repair", "-w", "out", "--give-up", cwd=folder).stderr
    assert repair(folder, *OCR).returncode == 0
    assert [row.status for row in rows(folder)] == [Status.OK] * 3


@pytest.mark.slow
def test_extract_with_the_settings_of_a_repair_reads_its_pages(folder):
    assert repair(folder, *OCR).returncode == 0
    interrupt(folder)
    for shard in ("0", "1"):
        shares = ("--shard-index", shard, "--shard-count", "2")
        run = cli("extract", "-w", "out", *FRUGAL, *OCR, *shares, cwd=folder)
        assert run.returncode == 0, said(run)
    assert [row.status for row in rows(folder)] == [Status.OK] * 3
    other = cli("extract", "-w", "out", *FRUGAL, "--image-size", "400", cwd=folder)
    assert other.returncode == 1
    assert "was extracted with other settings" in other.stderr


def test_repeated_repair_reads_no_more_than_max_pages(folder):
    """The command was killed before it read its page. The same command continues, and plans no further page."""
    (folder / "all.txt").write_text("\n".join(row.page_id for row in rows(folder)))
    for _ in range(2):
        done = repair(folder, "--pages-from", "all.txt", "--max-pages", "1", *OCR)
        assert "repair 0002: 1 page read again" in done.stdout, said(done)
        interrupt(folder)
    assert status_of(folder / "out")["generations"] == 2


def test_new_documents_are_not_called_a_repair(folder):
    assert repair(folder, "--below-quality", "0.5", *OCR).returncode == 0
    (folder / "new.pdf").write_bytes(bad.text_pdf(["The mill is old."]))
    run = cli("run", "new.pdf", "-w", "out", *FRUGAL, *OCR, cwd=folder)
    assert "Generation 3 is a repair" not in run.stderr
    assert f"settings. To continue: llm-ocr extract -w {folder / 'out'}\n" in run.stderr
    assert cli("extract", "-w", "out", *FRUGAL, cwd=folder).returncode == 0
    assert status_of(folder / "out")["pages"]["ok"] == 4


def test_repair_without_other_settings_retries_failed_pages(tmp_path):
    (tmp_path / "locked.pdf").write_bytes(bad.text_pdf(["A locked page."], password="sesame"))
    (tmp_path / "good.pdf").write_bytes(bad.text_pdf(["A page."]))
    assert cli("run", "locked.pdf", "good.pdf", "-w", "out", *FRUGAL, cwd=tmp_path).returncode == 3
    (tmp_path / "secrets.txt").write_text("sesame\n")
    done = repair(tmp_path, "--password-file", "secrets.txt")
    assert done.returncode == 0, said(done)
    assert "with the settings of the workspace" in done.stderr
    assert [row.status for row in rows(tmp_path)] == [Status.OK, Status.OK]
    assert "A locked page." in markdown(tmp_path, "locked")


def test_page_is_not_read_twice_with_unchanged_settings(folder):
    done = repair(folder)
    assert done.returncode == 0, said(done)
    assert "No page to repair" in done.stderr
    assert "--text-layer" in done.stderr
    assert status_of(folder / "out")["generations"] == 1


def test_repair_without_its_server_plans_nothing(folder):
    gone = cli("repair", "-w", "out", "--server-url", "http://127.0.0.1:1", cwd=folder)
    assert gone.returncode == 1, said(gone)
    with running(preset="h100", speed=50, mean_tokens=100) as server:
        wrong = cli("repair", "-w", "out", "--server-url", server.url, "--model", "dots.mocr", cwd=folder)
    assert wrong.returncode == 1, said(wrong)
    assert "serves deepseek-ocr instead of dots.mocr" in wrong.stderr
    assert status_of(folder / "out")["generations"] == 1
    assert cli("assemble", "-w", "out", cwd=folder).returncode == 0


def test_model_repairs_what_the_cpu_engine_read(folder):
    old = status_of(folder / "out")["units"]
    with running(preset="h100", speed=50, mean_tokens=100) as server:
        small = ("--render-workers", "1", "--ocr-workers", "1", "--image-size", "320")
        done = cli("repair", "-w", "out", "--server-url", server.url, *small, cwd=folder)
    assert done.returncode == 0, said(done)
    (repaired,) = status_of(folder / "out")["repairs"]
    assert repaired["settings"] == {"engine": "server", "image_size": 320, "model": "deepseek-ocr"}
    units = status_of(folder / "out")["units"]
    assert {name: (stage["key"], stage["done"] == stage["total"]) for name, stage in units.items()} == {
        name: (stage["key"], True) for name, stage in old.items()
    }
    assert {row.engine for row in rows(folder)} == {"embedded", "deepseek-ocr"}


@pytest.mark.slow
@pytest.mark.parametrize("engine", [("--model", "qwen3-vl-8b"), ("--engine", "hybrid", "--model-threshold", "0")])
def test_repair_with_another_engine_renews_the_documents(engine, before, tmp_path):
    """Whatever the model of the workspace, which here describes figures or does not."""
    small = ("--render-workers", "1", "--ocr-workers", "1", "--image-size", "320")
    name = "deepseek-ocr" if "hybrid" in engine else "qwen3-vl-8b"
    with running(served_model_name=name, preset="h100", speed=50, mean_tokens=100) as server:
        document = before / "documents" / "good.pdf"
        run = cli("run", document, "-w", "out", "--server-url", server.url, *engine, *small, cwd=tmp_path)
        assert run.returncode == 0, said(run)
    (tmp_path / "pages.txt").write_text("\n".join(row.page_id for row in rows(tmp_path)))
    done = repair(tmp_path, "--pages-from", "pages.txt")
    assert done.returncode == 0, said(done)
    assert "2 pages read again with --engine embedded: 2 better" in done.stdout, said(done)
    assert "Result: out/documents" in done.stdout
    assert "First comes good, sheet 1." in markdown(tmp_path, "good")
    assert {row["engine"] for row in dataset_rows(tmp_path / "out", "engine")} == {"embedded"}
    assert all(stage["done"] == stage["total"] for stage in status_of(tmp_path / "out")["units"].values())


@pytest.mark.slow
def test_last_of_several_shards_brings_the_dataset_up_to_date(folder):
    (folder / "pages.txt").write_text("\n".join(row.page_id for row in rows(folder)))
    shards = [("--pages-from", "pages.txt", *OCR, "--shard-index", str(index), "--shard-count=2") for index in (0, 1)]
    first = repair(folder, *shards[0])
    assert first.returncode == 0, said(first)
    assert "the last of several workers does both" in first.stderr
    assert "minutes" in markdown(folder, "outlines") and bad.SENTENCES[0] not in markdown(folder, "outlines")
    last = repair(folder, *shards[1])
    assert last.returncode == 0, said(last)
    assert bad.SENTENCES[0] in markdown(folder, "outlines")
    assert all(stage["done"] == stage["total"] for stage in status_of(folder / "out")["units"].values())
