"""Plan documents that need not be opened."""

from collections.abc import Iterable

from llm_ocr.workspace import Workspace
from llm_ocr.workspace.plan import PlannedDocument, Planner, PlanResult


def plan_documents(workspace: Workspace, documents: Iterable[PlannedDocument], *, pages_per_unit: int) -> PlanResult:
    """Write a generation with the documents that are not in the plan yet."""
    with Planner(workspace, pages_per_unit) as planner:
        for document in documents:
            planner.add(document)
        return planner.finish()
