"""What made the results of a workspace, as exports tell it: keys, engines, models and their revisions."""

from typing import Any

from llm_ocr.work.generations import generations
from llm_ocr.work.keys import ASSEMBLE, DESCRIBE, EXTRACT, key_settings
from llm_ocr.work.workspace import Workspace


def identity_of(workspace: Workspace) -> str:
    """The workspace's own id, the same wherever it is copied to; empty when nothing is planned."""
    found = generations(workspace)
    return found[0].attempt if found else ""


def provenance(workspace: Workspace, key: str) -> dict[str, Any]:
    """The provenance of what stands under a key of Assemble, as JSON values.

    `workspace`, its id; `version`, of the llm-ocr that made it; `extract`, `describe` and `assemble` with their `key`,
    and of the first two `engine` (embedded or model), `model` and `revision`, null for the embedded engine; `describe`
    has its `mode`. `transform` names a user's own stage and its `key`, null where none has changed the pages.
    """
    made = key_settings(workspace, ASSEMBLE, key)
    stage, source = str(made.get("pages_from", EXTRACT)), str(made.get("extract", ""))
    read = source if stage == EXTRACT else str(key_settings(workspace, stage, source).get("extract", ""))
    described = str(made.get("describe", ""))
    reader = key_settings(workspace, DESCRIBE, described).get("reader", {})
    return {
        "workspace": identity_of(workspace),
        "version": str(workspace.run.get("created_by", "")),
        "extract": _reader(read, key_settings(workspace, EXTRACT, read).get("reader", {})),
        "describe": {**_reader(described, reader), "mode": reader.get("mode")},
        "assemble": {"key": key},
        "transform": None if stage == EXTRACT else {"stage": stage, "key": source},
    }


def _reader(key: str, reader: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, **{name: reader.get(name) for name in ("engine", "model", "revision")}}
