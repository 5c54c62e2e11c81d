"""Find the launch that a command goes on with: one of the same stages and settings, whose jobs still run."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch import PIPELINE
from llm_ocr.launch.bill import has_ended
from llm_ocr.launch.records import Launched, read_launches, submissions
from llm_ocr.launch.specs import Wanted
from llm_ocr.launch.uploads import FOLDER as UPLOADS
from llm_ocr.work.workspace import Workspace


def under_way(workspace: Workspace, asked: Wanted, limits: Mapping[str, Any]) -> Wanted | None:
    """Return the launch of the same stages that is under way, and record the ends of submissions that are over.

    Args:
        workspace: Its workspace.
        asked: What the command asks for.
        limits: When the command stops, as JSON values.

    Raises:
        LaunchError: One of the stages is under way with other settings. Two launches would share its units without
            knowing of each other.
    """
    open_ones = [one for one in submissions(workspace) if not one.over and one.spec.stage in (PIPELINE, *asked.stages)]
    running = [one for one in open_ones if not has_ended(workspace, one)]
    if not running:
        return None
    spec = running[-1].spec
    found = next((one for one in read_launches(workspace) if one.id == spec.launch), None)
    same = found is not None and (found.platform, found.stages) == (asked.platform, asked.stages)
    # A coordinator submits the specs of the record, so they must be those that are asked for now.
    same = same and (PIPELINE not in asked.specs or _has_jobs(found, asked, limits))
    if found is None or not same or not _covers(found, asked, f"{workspace.url}/{UPLOADS}/"):
        raise LaunchError(
            f"{spec.stage} of {workspace.url} is under way as launch {spec.launch} on {running[-1].platform}",
            hint=f"See: llm-ocr jobs -w {workspace.url}. To end it: llm-ocr jobs cancel -w {workspace.url}",
        )
    going_on = Wanted(found.id, found.platform, found.stages, asked.specs, found.settings)
    return known_as(going_on, found.reference)


def known_as(asked: Wanted, reference: str) -> Wanted:
    """Return the launch with jobs that know it by its reference."""
    launch, variable = reference.partition("@")[0], {"LLM_OCR_LAUNCH": reference}
    specs = {
        stage: replace(one, launch=launch, environment={**one.environment, **variable})
        for stage, one in asked.specs.items()
    }
    return replace(asked, specs=specs)


def _has_jobs(found: Launched | None, asked: Wanted, limits: Mapping[str, Any]) -> bool:
    """Return whether the record has the specs and limits that are asked for."""
    if found is None or not found.specs:
        return False
    pairs = [(dict(found.specs[stage]), asdict(asked.specs[stage])) for stage in asked.stages]
    for pair in pairs:
        for spec in pair:
            spec |= {"launch": "", "environment": {**spec["environment"], "LLM_OCR_LAUNCH": ""}}
    return all(theirs == ours for theirs, ours in pairs) and found.limits == limits


def _covers(found: Launched, asked: Wanted, uploads: str) -> bool:
    """Return whether the record has the settings that are asked for.

    Sources may also be what was uploaded to the workspace's store. An engine that was left open is remembered once its
    first unit is published.
    """
    for stage in asked.stages:
        theirs, ours, spec = found.settings[stage], asked.settings[stage], asked.specs[stage]
        if _settled(theirs) != _settled(ours) or theirs.get("engine") not in (None, "auto", ours.get("engine")):
            return False
        for source in theirs.get("sources", ()):
            if source not in ours.get("sources", ()) and (not source.startswith(uploads) or ".." in source):
                return False
        for name in ("endpoint", "region"):
            usual = (None, ours.get(f"source_{name}"), spec.environment.get(f"LLM_OCR_WORKSPACE_{name.upper()}"))
            if theirs.get(f"source_{name}") not in usual:
                return False
    return True


def _settled(settings: Mapping[str, Any]) -> dict[str, Any]:
    open_ones = ("sources", "source_endpoint", "source_region", "engine")
    return {name: value for name, value in settings.items() if name not in open_ones}
