"""Every profile reads, describes and assembles a page against a server that answers as its family does."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from family_answers import CELL, SENTENCE, TITLE, answer_of, has_figure, prompt_as_read

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.types import Status
from llm_ocr_simulator import running

SAYS = "A quay with two boats."
#: One profile that gives and describes figures, and one that does neither; `make check` reads the others, and
#: `test_parser_laws.py` their answers.
FIRST = {"deepseek-ocr", "glm-ocr"}


def way_of(profile: Profile) -> tuple[object, ...]:
    """What of a profile is tried here: those that have all of it in common differ in size or weights only."""
    parser = profile.parsers.get(profile.mode) or profile.parsers[""]
    return answer_of(profile), parser, profile.prompts[profile.mode], "describe" in profile.prompts


def marks_of(profile: Profile) -> list[pytest.MarkDecorator]:
    if profile.name in FIRST:
        return []
    ways = {
        way_of(other) for other in PROFILES if other.name in FIRST or PROFILES.index(other) < PROFILES.index(profile)
    }
    return [pytest.mark.long] if way_of(profile) in ways else [pytest.mark.slow]


CASES = [pytest.param(profile, marks=marks_of(profile), id=profile.name) for profile in PROFILES]


def server_of(profile: Profile, folder: Path) -> running:
    """A server that answers this profile's page, and whatever else it is asked with a description."""
    file = folder / "said.json"
    file.write_text(json.dumps({prompt_as_read(profile): answer_of(profile), "*": SAYS}))
    return running(said=file, model=profile.model, max_model_len=65_536, speed=100)


def run(*words: object) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([str(word) for word in words])
    return code, said.getvalue()


@pytest.mark.parametrize("profile", CASES)
def test_a_page_goes_through_the_three_stages(profile: Profile, examples: Path, tmp_path: Path):
    """One whose model describes no figures has them described by another, here on the same server."""
    other = [] if "describe" in profile.prompts else ["--describe-model", "qwen3-vl-8b"]
    workspace = tmp_path / "workspace"
    with server_of(profile, tmp_path) as server:
        code, said = run(
            "run", examples / "invoice.png", "-w", workspace, "--engine", "server", "--server-url", server.url,
            "--server-model", profile.model, "--model", profile.name, "--fallback", "none", "--render-workers", 1,
            "--image-size", 320, "--min-quality", 0, *other,  # the answers are of another page
        )  # fmt: skip
    assert code == 0, said
    result = llm_ocr.open(str(workspace))
    (page,) = result.pages()
    assert page.status is Status.OK, page.detail
    for words in (TITLE, SENTENCE, CELL):
        assert words in page.markdown
    (document,) = result.documents()
    assert TITLE in document.markdown
    if has_figure(profile):
        assert len(page.figures) == result.status.figures.ok == 1
        assert SAYS in document.markdown
