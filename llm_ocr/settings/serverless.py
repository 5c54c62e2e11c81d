"""The settings of a worker that answers requests: those of Extract, and what a reply may be."""

from typing import Annotated

from pydantic import Field

from llm_ocr.settings.groups import COUNT, NAME, NAMES
from llm_ocr.settings.models import ExtractSettings

#: Stands for no workspace.
NONE = "-"


class WorkerSettings(ExtractSettings):
    """A serverless worker's: documents come with requests, and pages are read as Extract reads them."""

    workspace: NAME = Field(
        NONE, description="where replies go that are larger than reply_limit, below replies/ (default: nowhere)"
    )
    allowed_workspaces: NAMES = Field(
        (), description="workspaces of stage requests: these and all below (default: the endpoint's own)"
    )
    reply_limit: Annotated[float, Field(gt=0)] = Field(10.0, description="size of a reply in MB (RunPod's /run: 10)")
    worker_concurrency: COUNT = Field(1, description="requests that a worker takes at the same time")
