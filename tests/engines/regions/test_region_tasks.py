"""What is done with a region, by its label: the usual mapping, users' changes, and what a model cannot do."""

import pytest
from region_parts import GLM, PADDLE

from llm_ocr.engines.regions.detection import DEFAULT_TASKS, LABELS, TASKS, task_of, tasks_with
from llm_ocr.errors import UsageError


def task(label: str, *changes: str, profile=GLM) -> str:
    return task_of(label, tasks_with(changes, any_label=True), profile.region_tasks)


def test_every_label_of_the_detector_has_a_task():
    assert len(LABELS) == 25
    assert set(LABELS) == set(DEFAULT_TASKS)
    assert set(DEFAULT_TASKS.values()) <= set(TASKS)


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("text", "text"),
        ("doc_title", "text"),
        ("table", "table"),
        ("inline_formula", "formula"),
        ("image", "skip"),
        ("chart", "skip"),
        ("header", "abandon"),
        ("number", "abandon"),
        ("footnote", "text"),
    ],
)
def test_the_usual_tasks(label, wanted):
    assert task(label) == wanted


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("Section-header", "text"),
        ("Picture", "skip"),
        ("Page-footer", "abandon"),
        ("Formula", "formula"),
        ("odd", "text"),
    ],
)
def test_labels_of_other_detectors_go_by_their_meaning(label, wanted):
    assert task(label) == wanted


def test_users_changes_come_first():
    assert task("header", "Header = Text") == "text"
    assert task("chart", "chart=abandon", "chart=table") == "table"


def test_what_a_model_has_no_prompt_for_is_read_as_text_and_charts_stay_pictures():
    assert task("chart", "chart=chart", profile=PADDLE) == "chart"
    assert task("chart", "chart=chart", profile=GLM) == "skip"
    assert task_of("table", tasks_with(()), {"text": "text"}) == "text"
    assert task_of("table", tasks_with(()), {"table": "table"}) == "table"
    assert task_of("text", tasks_with(()), {"table": "table"}) == "skip"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("header", "is not LABEL=TASK"),
        ("=text", "is not LABEL=TASK"),
        ("header=read", r"unknown task 'read'(.|\n)*skip, abandon"),
        ("heeder=text", r"unknown label 'heeder'(.|\n)*Did you mean header"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(change, says):
    with pytest.raises(UsageError, match=says):
        tasks_with((change,))


def test_another_detectors_labels_are_free():
    assert tasks_with(("stain=abandon",), any_label=True)["stain"] == "abandon"
