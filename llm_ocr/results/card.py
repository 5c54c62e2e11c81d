"""Dataset card: README.md, whose front matter names the files of the dataset.

A card of llm-ocr names its workspace on a separate line, so that an export knows which cards it may replace.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

#: File name of the card.
CARD = "README.md"
#: File name of the card if there is a README of other origin.
OTHER_CARD = "llm-ocr-card.md"

_MARK = re.compile(r"^<!-- llm-ocr export of ([0-9a-f]+)\b", re.MULTILINE)
#: Files that the card of a workspace may name: the dataset, and its preview until the dataset exists.
_OWN_FILES = re.compile(r"\bpath: (dataset/\*\.parquet|preview/train-[0-9a-f]{12}-\*\.parquet)$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
#: Keys of front matter that name files and describe their content.
DATASET_KEYS = ("configs", "dataset_info")


@dataclass(frozen=True, slots=True)
class Standing:
    """Existing README: its front matter, and its workspace, empty if the file is not by llm-ocr.

    `free`: it may be replaced, because it is by llm-ocr, or has only front matter that describes no dataset.
    """

    front: Mapping[str, Any]
    workspace: str
    free: bool


def read_card(text: str) -> Standing:
    """Parse a README."""
    found = _FRONT_MATTER.match(text)
    front: Any = None
    if found is not None:
        try:
            front = yaml.safe_load(found[1])
        except yaml.YAMLError:
            front = None
    mark = _MARK.search(text)
    bare = isinstance(front, dict) and found is not None and not text[found.end() :].strip()
    free = bool(mark) or not text.strip() or (bare and front.keys().isdisjoint(DATASET_KEYS))
    return Standing(front if isinstance(front, dict) else {}, mark[1] if mark else "", free)


def named_files(text: str) -> str | None:
    """Return the files that a README names by a configuration of llm-ocr.

    Empty if it has no configurations, None if they are the user's or the front matter is unreadable.
    """
    found = _FRONT_MATTER.match(text)
    if found is None:
        return ""
    front = read_card(text).front
    if "configs" not in front:
        return None if found[1].strip() and not front else ""
    own = _OWN_FILES.search(found[1])
    return own[1] if own and front["configs"] == configs(own[1]) else None


def with_configs(text: str, pattern: str) -> str:
    """Return a README whose front matter names the files of the dataset; the user's own text is unchanged.

    The files of a configuration of llm-ocr are replaced. Front matter with other configurations, or that is unreadable,
    is unchanged.
    """
    named = named_files(text)
    found = _FRONT_MATTER.match(text)
    ours = yaml.safe_dump({"configs": configs(pattern)}, sort_keys=False)
    if found is None:
        return f"---\n{ours}---\n{text}"
    if named is None:
        return text
    front, rest = text[: found.end(1)], text[found.end(1) :]
    return front.replace(named, pattern) + rest if named else f"{front}{ours}{rest}"


def configs(pattern: str) -> list[dict[str, Any]]:
    """Return the front matter that lets `load_dataset` open the files of a pattern."""
    return [{"config_name": "default", "data_files": [{"split": "train", "path": pattern}]}]
