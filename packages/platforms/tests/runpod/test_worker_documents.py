"""Documents in requests: every way to send one, what comes back, and that nothing of a request is left."""

import asyncio
import base64
import io
import json
import re

import pytest
from PIL import Image
from serverless_running import FORMS, REFS, asked, b64, with_worker

import llm_ocr
from llm_ocr.errors import LlmOcrError
from llm_ocr.session import Session
from llm_ocr.storage import open_store
from llm_ocr_platforms.runpod.inputs import InputError

KEYS = {
    *("json_result", "markdown_result", "crop_images", "layout_visualizations", "pages"),
    *("glmocr_ref", "vllm_base_image_ref", "model", "model_revision", "llm_ocr_version"),
}


def test_every_form_of_input_is_answered(small_examples, site):
    given = {form: {form: make(small_examples, site), "end_page": 1} for form, make in FORMS.items()}

    async def use(worker):
        return {form: await worker.handle({"id": form, "input": one}) for form, one in given.items()}

    for form, reply in with_worker(use, allow_private_addresses=True).items():
        assert set(reply) == KEYS
        words = "Invoice" if "invoice" in str(given[form][form]) or form == "images_base64" else "river"
        assert words in reply["markdown_result"]
        assert reply["pages"] == [{"page": 1, "status": "ok"}]
        [regions] = reply["json_result"]
        assert [one["index"] for one in regions] == list(range(len(regions)))
        assert all(0 <= side <= 1000 for one in regions for side in one["bbox_2d"])
        assert any(words in (one["content"] or "") for one in regions)
        assert reply["glmocr_ref"] == REFS["GLMOCR_REF"]
        assert reply["vllm_base_image_ref"] == REFS["VLLM_BASE_IMAGE"]
        assert reply["model_revision"] is None  # the embedded engine has none
        assert reply["llm_ocr_version"] == llm_ocr.__version__


def test_pages_from_and_to(small_examples):
    paper = b64(small_examples / "paper.pdf")
    reply = asked({"pdf_base64": paper, "start_page": 2, "end_page": 99})
    assert [page["page"] for page in reply["pages"]] == [2, 3]
    assert len(reply["json_result"]) == 2
    with pytest.raises(InputError, match=r"start_page: 4 is after the last page; the document has 3 pages"):
        asked({"pdf_base64": paper, "start_page": 4})


def test_pages_of_several_images_are_counted_through(small_examples, tmp_path):
    frames = [Image.new("L", (300, 200), 255) for _ in range(2)]
    frames[0].save(tmp_path / "two.tiff", save_all=True, append_images=frames[1:])
    images = [b64(tmp_path / "two.tiff"), b64(small_examples / "invoice.png")]
    reply = asked({"images_base64": images, "start_page": 2})
    assert [page["page"] for page in reply["pages"]] == [2, 3]
    assert [bool(regions) for regions in reply["json_result"]] == [False, True]
    assert "Invoice" in reply["markdown_result"]


def test_figures_are_cropped_and_linked_up_to_the_limit(examples):
    given = {"pdf_base64": b64(examples / "paper.pdf"), "return_crop_images": True}
    pictures = {"crop_images_base64": True, "return_layout_visualization": True, "layout_visualization_base64": True}

    async def use(worker):
        return [await worker.handle({"id": "1", "input": given | more}) for more in (pictures, {"max_crop_images": 1})]

    reply, limited = with_worker(use)
    names = [crop["name"] for crop in reply["crop_images"]]
    assert len(names) == len(set(names)) == 4
    assert set(re.findall(r"\]\((imgs/[^)]+)\)", reply["markdown_result"])) == set(names)
    alts = re.findall(r"!\[([^\]]*)\]", reply["markdown_result"])
    assert len(alts) == 4
    assert not any(re.search(r"p\d{5}-f\d\d", alt) for alt in alts)  # no ids
    paths = {region["image_path"] for page in reply["json_result"] for region in page if "image_path" in region}
    assert paths == set(names)
    for picture in (*reply["crop_images"], *reply["layout_visualizations"]):
        image = Image.open(io.BytesIO(base64.b64decode(picture["base64"])))
        assert image.size == (picture["width"], picture["height"])
    assert [one["page"] for one in reply["layout_visualizations"]] == [1, 2, 3]
    assert len(limited["crop_images"]) == 1
    assert "base64" not in limited["crop_images"][0]
    assert "crop_images: 1 of 4 (max_crop_images)" in limited["notes"]
    assert any("crop_images_base64" in note for note in limited["notes"])


def test_the_kind_is_told_by_the_content(examples):
    with pytest.raises(InputError, match="pdf_base64: is an image"):
        asked({"pdf_base64": b64(examples / "invoice.png")})
    with pytest.raises(InputError, match=r"images_base64\[0\]: is a PDF"):
        asked({"images_base64": [b64(examples / "paper.pdf")]})
    with pytest.raises(InputError, match="source_base64: unknown type"):
        asked({"source_base64": base64.b64encode(b"some words").decode()})


def test_private_and_missing_addresses_are_refused(site):
    with pytest.raises(InputError, match=r"pdf_url: .*not a public address"):
        asked({"pdf_url": f"{site}/paper.pdf"})
    with pytest.raises(InputError, match=r"pdf_url: not found"):
        asked({"pdf_url": f"{site}/nothing.pdf"}, allow_private_addresses=True)


def test_bad_images_do_not_fail_the_others(small_examples, site):
    urls = [f"{site}/invoice.png", f"{site}/nothing.png"]
    reply = asked({"image_urls": urls}, allow_private_addresses=True)
    assert [page["status"] for page in reply["pages"]] == ["ok", "failed"]
    assert reply["pages"][1]["reason"] == "not found"
    assert "<!-- page 2 failed: not found -->" in reply["markdown_result"]
    assert "Invoice" in reply["markdown_result"]
    good = (small_examples / "invoice.png").read_bytes()
    reply = asked({"images_base64": [base64.b64encode(data).decode() for data in (good[:40], good)]})
    assert [page["status"] for page in reply["pages"]] == ["failed", "ok"]
    assert reply["json_result"][0] == []


def test_when_no_page_can_be_read_the_job_fails_with_the_reason(site):
    with pytest.raises(LlmOcrError, match=r"image_urls: all 2 pages failed; page 1: not found"):
        asked({"image_urls": [f"{site}/a.png", f"{site}/b.png"]}, allow_private_addresses=True)


def test_progress_is_told_and_never_after_the_last_page(small_examples, monkeypatch):
    monkeypatch.setattr("llm_ocr_platforms.runpod.worker._PAUSE", 0.0)
    told = []
    asked(
        {"pdf_base64": b64(small_examples / "paper.pdf")},
        report=lambda job, progress: told.append((job["id"], progress)),
    )
    assert told == [("job-1", {"pages": 3, "done": done, "failed": 0}) for done in (1, 2)]


def test_concurrent_and_later_requests_share_one_engine(small_examples, monkeypatch):
    made = []
    open_session = Session.from_settings
    monkeypatch.setattr(Session, "from_settings", lambda *given: made.append(open_session(*given)) or made[-1])
    paper = b64(small_examples / "paper.pdf")
    given = [{"pdf_base64": paper, "end_page": 1}, {"pdf_base64": paper, "start_page": 2}]

    async def use(worker):
        together = await asyncio.gather(*(worker.handle({"id": str(n), "input": one}) for n, one in enumerate(given)))
        return together, [await worker.handle({"id": "3", "input": one}) for one in given]

    together, later = with_worker(use)
    assert len(made) == 1
    assert [[page["page"] for page in one["pages"]] for one in together] == [[1], [2, 3]]
    assert together == later


def test_a_warm_up_reads_a_page_of_its_own():
    reply = asked({"warmup": True})
    assert (reply["warmup"], reply["status"]) == (True, "ok")
    assert reply["llm_ocr_version"] == llm_ocr.__version__


def test_without_a_model_the_choices_are_named(examples):
    with pytest.raises(LlmOcrError, match="no engine is chosen"):
        asked({"pdf_base64": b64(examples / "paper.pdf")}, engine="auto", vllm_command="no-such-vllm")


@pytest.mark.slow
def test_a_request_that_is_stopped_leaves_nothing(examples, temporary, monkeypatch):
    monkeypatch.setattr("llm_ocr_platforms.runpod.worker._PAUSE", 0.0)
    left = []

    async def use(worker):
        begun = asyncio.Event()
        worker._report = lambda job, progress: begun.set()
        task = asyncio.create_task(worker.handle({"id": "1", "input": {"pdf_base64": b64(examples / "scan.pdf")}}))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        left.extend(temporary.glob("llm-ocr-request-*"))
        return await worker.handle({"id": "2", "input": {"images_base64": [b64(examples / "invoice.png")]}})

    assert "Invoice" in with_worker(use)["markdown_result"]
    assert left == []


def test_a_reply_above_the_limit_says_what_to_do(small_examples):
    with pytest.raises(LlmOcrError, match=r"(?s)exceeds the limit of a reply, 0.001 MB.*LLM_OCR_WORKSPACE.*end_page"):
        asked({"pdf_base64": b64(small_examples / "paper.pdf")}, reply_limit=0.001)


def test_a_reply_above_the_limit_goes_to_the_workspace(examples, tmp_path):
    given = {"pdf_base64": b64(examples / "paper.pdf"), "return_crop_images": True, "crop_images_base64": True}
    whole = asked(given)
    small = asked(given, reply_limit=0.002, workspace=str(tmp_path / "w"))
    assert small["json_result"] is None and small["markdown_result"] is None
    assert read(small["markdown_result_url"]).decode() == whole["markdown_result"]
    assert json.loads(read(small["json_result_url"])) == whole["json_result"]
    assert len(whole["crop_images"]) == 4
    pictures = asked(given, reply_limit=0.1, workspace=str(tmp_path / "w"))  # the pictures alone are enough
    assert pictures["markdown_result"] and "markdown_result_url" not in pictures
    assert [("url" in crop, "base64" in crop) for crop in pictures["crop_images"]] == [(True, False)] * 4
    for there, here in zip(small["crop_images"], whole["crop_images"], strict=True):
        assert read(there["url"]) == base64.b64decode(here["base64"])
        assert {**there, "url": ""} == {name: value for name, value in here.items() if name != "base64"} | {"url": ""}


def read(url: str) -> bytes:
    root, _, key = url.rpartition("/replies/")
    return open_store(root).get(f"replies/{key}")
