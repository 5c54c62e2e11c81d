"""A trained detector in processes of its own: with real code, a tiny model with random weights, and deaths.

What needs torch and transformers is run by a Python that has them: this one, LLM_OCR_TEST_DETECTOR, or that of the
environment that `make vllm-environment` makes; else it is skipped.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PIL import Image
from region_parts import PAGE
from tiny_detector import THRESHOLD

import llm_ocr
from llm_ocr.engines.regions.detection import LABELS, Layout
from llm_ocr.engines.regions.doclayout import DetectorOptions, DocLayout, installed, weights_folder
from llm_ocr.errors import LlmOcrError, PageFailure, WorkerDied, WorkerError
from llm_ocr.types import EncodedImage, Page, Reason, Status
from llm_ocr_simulator import running

_HERE = Path(__file__).resolve().parent
_HAS_BOTH = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('torch', 'transformers'))))"
T = TypeVar("T")


@pytest.fixture(scope="module")
def python(repository) -> str:
    named = os.environ.get("LLM_OCR_TEST_DETECTOR")
    for one in filter(None, (named, sys.executable, str(repository / ".venv-vllm" / "bin" / "python"))):
        if Path(one).exists() and subprocess.run([one, "-c", _HAS_BOTH], check=False).returncode == 0:
            return one
    pytest.skip("no Python with torch and transformers: make vllm-environment, or LLM_OCR_TEST_DETECTOR")


@pytest.fixture(scope="module")
def tiny(python, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("detector") / "tiny"
    subprocess.run([python, str(_HERE / "tiny_detector.py"), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def pictures(examples, tmp_path_factory) -> list[Path]:
    """A page in colour, and one of another shape in grey."""
    folder = tmp_path_factory.mktemp("pictures")
    with Image.open(examples / "invoice.png") as page:
        page.convert("L").resize((700, 500)).save(folder / "grey.png")
    return [examples / "invoice.png", folder / "grey.png"]


def page_of(file: Path) -> Page:
    with Image.open(file) as image:
        return Page("d-p00001", "d", 1, EncodedImage(file.read_bytes(), "image/png", *image.size))


def of(python: str, folder: Path | str, **more: Any) -> DocLayout:
    options = {"workers": 1, "model": str(folder), "threshold": THRESHOLD, "device": "cpu", **more}
    return DocLayout(DetectorOptions(**options, python="" if python == sys.executable else python))


def closing(detector: DocLayout, work: Coroutine[Any, Any, T]) -> T:
    async def go() -> T:
        try:
            return await work
        finally:
            await detector.close()

    return asyncio.run(go())


@pytest.mark.slow
def test_what_is_found_is_what_transformers_own_processor_finds(python, tiny, pictures):
    command = [python, str(_HERE / "tiny_detector.py"), str(tiny), *map(str, pictures)]
    wanted = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    detector = of(python, tiny)

    async def both() -> list[Layout]:
        return [await detector.detect(page_of(picture)) for picture in pictures]

    for layout, theirs in zip(closing(detector, both()), wanted, strict=True):
        ours = sorted(layout.regions, key=lambda region: (region.order or 0, -region.score))
        rows = sorted(zip(*theirs.values(), strict=True), key=lambda row: (row[3], -row[0]))
        assert len(ours) == len(rows) > 5
        for region, (score, label, box, order) in zip(ours, rows, strict=True):
            assert (region.label, region.order) == (LABELS[label], order)
            assert region.score == pytest.approx(score, abs=1e-5)
            clipped = [min(max(side, 0.0), 1.0) for side in box]
            found = [region.box.x0, region.box.y0, region.box.x1, region.box.y1]
            assert found == pytest.approx(clipped, abs=1e-4)  # processors round differently


@pytest.mark.slow
def test_a_broken_image_and_a_dead_process_cost_nobody_else(python, tiny, pictures):
    detector = of(python, tiny)
    sound = page_of(pictures[0])
    broken = Page("d-p00002", "d", 2, EncodedImage(b"no image", "image/png", 1, 1))

    async def go() -> list[Any]:
        asked = (detector.detect(page) for page in (sound, broken, sound))
        first = await asyncio.gather(*asked, return_exceptions=True)
        for worker in detector._pool._all:
            worker.process.kill()
        return [*first, await detector.detect(sound)]

    one, failure, other, later = closing(detector, go())
    assert one == other == later and one.regions
    assert isinstance(failure, PageFailure) and failure.reason is Reason.UNREADABLE


@pytest.mark.slow
def test_a_model_of_another_kind_is_refused_with_its_kind(python, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "detr"}))
    detector = of(python, tmp_path)
    with pytest.raises(LlmOcrError, match=r"cannot be loaded: its model type is detr(.|\n)*`layout_first=never`"):
        closing(detector, detector.detect(PAGE))


def test_unloadable_detector_ends_run_and_names_what_to_install(tmp_path):
    if installed():
        pytest.skip("torch is installed here")
    detector = of(sys.executable, tmp_path)
    with pytest.raises(LlmOcrError, match=r"No module named 'torch'(.|\n)*pip install .torch"):
        closing(detector, detector.detect(PAGE))


def test_missing_offline_weights_are_named_before_any_reading(tmp_path):
    with pytest.raises(LlmOcrError, match=r"nobody/nothing: it is not on this machine(.|\n)*`detector`"):
        weights_folder("nobody/nothing", None, True, tmp_path)
    assert weights_folder(str(tmp_path), "abc", True, None) == tmp_path.resolve()


class PoolWithKillers:
    """Stands for the processes: a batch with the killer in it costs its process."""

    def __init__(self, killer: bytes, error: Exception, times: int = 99) -> None:
        self._killer, self._error, self._left = killer, error, times
        self.sizes: list[int] = []

    async def call(self, operation: str, payload: Mapping[str, Any], *, deadline: float) -> dict[str, Any]:
        if operation == "load":
            return {"device": "cuda", "labels": []}
        images = [image[0] for image in payload["images"]]
        self.sizes.append(len(images))
        if self._killer in images and self._left:
            self._left -= 1
            raise self._error
        return {"pages": [{"regions": [["text", 0.5, 0, 0, 1, 1, number]]} for number, _ in enumerate(images)]}

    async def close(self) -> None: ...


def with_killer(error: Exception, tmp_path: Path, times: int = 99) -> tuple[list[Any], PoolWithKillers]:
    detector = of(sys.executable, tmp_path)
    detector._pool = pool = PoolWithKillers(b"3", error, times)  # type: ignore[assignment]
    pages = [Page(f"d-p{n}", "d", n, EncodedImage(str(n).encode(), "image/png", 1, 1)) for n in range(6)]

    async def go() -> list[Any]:
        return await asyncio.gather(*map(detector.detect, pages), return_exceptions=True)

    return closing(detector, go()), pool


@pytest.mark.parametrize("error", [WorkerDied("ended with code -11"), WorkerError("RuntimeError: no")])
def test_page_that_breaks_detection_in_a_batch_fails_alone(error, tmp_path):
    answers, pool = with_killer(error, tmp_path)
    assert [type(one) for one in answers] == [Layout] * 3 + [PageFailure] + [Layout] * 2
    assert answers[3].reason is Reason.ENGINE_ERROR
    assert max(pool.sizes) > 1


def test_a_page_is_looked_at_once_more_in_a_fresh_process(tmp_path):
    answers, _ = with_killer(WorkerDied("ended with code -11"), tmp_path, times=2)
    assert [type(one) for one in answers] == [Layout] * 6


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (WorkerDied("killed after 300 s", timed_out=True), Reason.ENGINE_TIMEOUT),
        (WorkerDied("out of memory", out_of_memory=True), Reason.ENGINE_LIMIT),
        (WorkerError("RuntimeError: no"), Reason.ENGINE_ERROR),
    ],
)
def test_why_a_page_was_not_looked_at_is_told(error, reason, tmp_path):
    answers, _ = with_killer(error, tmp_path)
    assert answers[3].reason is reason
    assert str(error) in answers[3].detail


def test_key_holds_weights_and_threshold_but_not_where_it_runs(tmp_path):
    def key(**more: Any) -> Mapping[str, Any]:
        return of(sys.executable, tmp_path, **more).identity()

    assert key() == key(workers=3) == key(device="cuda") == key(offline=True)
    assert (
        len({json.dumps(dict(key(**one))) for one in ({}, {"threshold": 0.4}, {"revision": "a"}, {"model": "b"})}) == 4
    )


@pytest.mark.slow
def test_pages_are_read_by_what_it_finds(python, tiny, examples, tmp_path):
    said = tmp_path / "said.json"
    said.write_text(json.dumps({"*": "Words of a region."}))
    with running(said=said, model="zai-org/GLM-OCR", max_model_len=65_536, speed=100) as server:
        run = llm_ocr.extract(
            examples / "invoice.png",
            workspace=tmp_path / "w",
            model="glm-ocr",
            server_url=server.url,
            detector=tiny,
            detector_python=python,
            detector_workers=1,
            detector_threshold=THRESHOLD,
            render_workers=1,
            min_quality=0,  # random weights miss most of the page
        )
        asked = len(server.log()["requests"])
    (page,) = run.pages()
    assert (page.status, page.text_source) == (Status.OK, "model"), page.detail
    assert asked == len(page.blocks) > 0
    assert "Words of a region." in page.markdown
    assert {block.label for block in page.blocks} <= set(LABELS)
