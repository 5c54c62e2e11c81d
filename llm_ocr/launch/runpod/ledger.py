"""The jobs of a submission on this machine: RunPod lists none, and a launch that died must find its own."""

import json
from collections.abc import Mapping
from pathlib import Path

from llm_ocr.settings.environment import environment


class Ledger:
    """Shard -> job id, for one submission by its name."""

    def __init__(self, name: str) -> None:
        state = environment().get("XDG_STATE_HOME") or "~/.local/state"
        self._file = Path(state).expanduser() / "llm-ocr" / "runpod" / f"{name}.json"

    def read(self) -> dict[int, str]:
        """Empty where nothing was submitted from here."""
        try:
            held = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        return {int(shard): str(id_) for shard, id_ in held.items()}

    def write(self, jobs: Mapping[int, str]) -> None:
        """Whole or not at all."""
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(dict(jobs)))
        part.replace(self._file)

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
