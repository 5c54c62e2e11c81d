"""What is done with a region, by its label.

The table is that of GLM-OCR's SDK (`label_task_mapping`), with two differences: footnotes are read, since they are the
author's words, and `reference`, a box around the entries of a bibliography, is read where no entry was found in it.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

from llm_ocr.errors import UsageError
from llm_ocr.models.labels import known_kind, normal
from llm_ocr.types import FURNITURE, BlockKind

TEXT, TABLE, FORMULA, CHART = "text", "table", "formula", "chart"
SKIP, ABANDON = "skip", "abandon"
#: Read by the model; `skip` keeps box and crop as a figure, `abandon` leaves the region out.
READ = (TEXT, TABLE, FORMULA, CHART)
TASKS = (*READ, SKIP, ABANDON)

# The labels of PP-DocLayoutV3 by their class ids.
_IDS = """
abstract algorithm aside_text chart content display_formula doc_title figure_title footer footer_image footnote
formula_number header header_image image inline_formula number paragraph_title reference reference_content seal
table text vertical_text vision_footnote
"""
LABELS = tuple(_IDS.split())
_BY_TASK = {
    TEXT: "abstract algorithm content doc_title figure_title paragraph_title reference_content text vertical_text "
    "vision_footnote seal formula_number footnote reference",
    TABLE: "table",
    FORMULA: "display_formula inline_formula",
    SKIP: "chart image",
    ABANDON: "header footer number aside_text footer_image header_image",
}
DEFAULT_TASKS: Mapping[str, str] = MappingProxyType(
    {label: task for task, labels in _BY_TASK.items() for label in labels.split()}
)
_BY_KIND = {BlockKind.TABLE: TABLE, BlockKind.FORMULA: FORMULA, BlockKind.FIGURE: SKIP}


def tasks_with(changes: Sequence[str], *, any_label: bool = False) -> Mapping[str, str]:
    """The task of each label, with the changes `LABEL=TASK`.

    Labels that nothing is known of are allowed with `any_label`: another detector may have them. Raises `UsageError`.
    """
    tasks = dict(DEFAULT_TASKS)
    for change in changes:
        label, equals, task = change.partition("=")
        name, wanted = normal(label), normal(task)
        if not name or not equals:
            raise UsageError(f"--region-task {change!r}: no LABEL=TASK", hint="For example: --region-task footer=text")
        if wanted not in TASKS:
            raise UsageError(f"--region-task {change}: no task {task!r}", hint=f"Tasks: {', '.join(TASKS)}.")
        if not any_label and name not in tasks and known_kind(name) is None:
            close = get_close_matches(name, tasks, n=3)
            hint = f"Did you mean {' or '.join(close)}?" if close else f"Labels: {', '.join(LABELS)}."
            raise UsageError(f"--region-task {change}: no label {label!r}", hint=hint)
        tasks[name] = wanted
    return tasks


def task_of(label: str, tasks: Mapping[str, str], able: Mapping[str, str]) -> str:
    """The task of a region, among those that the model is `able` to do (its profile's `region_tasks`).

    A label that stands in no table goes by its meaning. What the model has no prompt for is read as text, a chart kept
    as a figure.
    """
    task = tasks.get(normal(label)) or _meant(label)
    if task in able or task in (SKIP, ABANDON):
        return task
    return SKIP if task == CHART or TEXT not in able else TEXT


def _meant(label: str) -> str:
    kind = known_kind(label)
    if kind in FURNITURE:
        return ABANDON
    return _BY_KIND.get(kind, TEXT) if kind else TEXT
