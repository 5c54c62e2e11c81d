"""What each platform is sent, word for word: `python tests/launch/make_plans.py`.

Writes `snapshots/<platform>-<case>.json` from the cases in `cases_<platform>.py`, which are here or beside the tests of
the platform's package. Look at the changes before you commit them.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llm_ocr.launch import JobSpec, launcher_for
from llm_ocr.plugins import PLATFORMS

FOLDER = Path(__file__).parent / "snapshots"


def cases() -> Iterator[tuple[str, str, JobSpec]]:
    """Platform, name of the case, job."""
    for platform in PLATFORMS.names():
        module = importlib.import_module(f"cases_{platform.replace('-', '_')}")
        for name, spec in module.cases():
            yield platform, name, spec


def snapshot(platform: str, spec: JobSpec) -> dict[str, Any]:
    """What is sent for the job, as JSON values."""
    plan = launcher_for(platform).plan(spec)
    requests = [asdict(request) for request in plan.requests]
    return {"requests": requests, "missing": dict(plan.missing), "notes": list(plan.notes)}


def as_text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.path += [str(folder) for folder in Path(__file__).parents[2].glob("packages/*/tests")]
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for one, case, job in cases():
        (FOLDER / f"{one}-{case}.json").write_text(as_text(snapshot(one, job)))
