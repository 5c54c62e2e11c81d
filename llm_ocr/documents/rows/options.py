"""Which rows the user means."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """As `--dataset` and the settings beside it; None for what was left open."""

    name: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    image_column: str | None = None
    id_column: str | None = None
