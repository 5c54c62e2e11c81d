"""What the measurements share: words on the way, and the report at the end."""

import json
import sys
from pathlib import Path
from typing import Any


def tell(what: str) -> None:
    """One line of progress, beside the results."""
    print(what, file=sys.stderr, flush=True)


def keep(report: Any, output: Path | None) -> None:
    """Write the report there as JSON, if it was asked for."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
