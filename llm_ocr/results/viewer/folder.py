"""The folder of a site: a writing has a folder of its own, and `index.html` leads there when all is written."""

import json
import re
import shutil
from dataclasses import dataclass
from html import escape
from importlib.resources import as_file, files
from pathlib import Path
from secrets import token_hex
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.results.text import clean
from llm_ocr.results.viewer.data_files import DataFiles
from llm_ocr.storage.names import OF_FILE_MANAGERS

_MARKER = "llm-ocr-view.json"
_FORMAT = 1
_SITE = re.compile(r"site-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """One writing of a site. `site` is new and nobody reads it before `publish`."""

    output: Path
    site: Path

    @property
    def index(self) -> Path:
        """What the user opens."""
        return self.output / "index.html"

    def publish(self, facts: dict[str, Any]) -> None:
        """Make it the one that `index.html` shows, and remove the one before."""
        DataFiles(self.site / "data").write("site", facts)
        with as_file(files("llm_ocr.results.viewer") / "site") as ours:
            shutil.copytree(ours, self.site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("index.html"))
            page = (ours / "index.html").read_text(encoding="utf-8")
        page = page.replace("{site}", self.site.name).replace("{title}", escape(clean(str(facts["title"]))))
        temporary = self.site / "index.html.tmp"
        temporary.write_text(page, encoding="utf-8", newline="\n")
        temporary.replace(self.index)
        for other in self.output.iterdir():
            if _SITE.fullmatch(other.name) and other != self.site and other.is_dir() and not other.is_symlink():
                shutil.rmtree(other)

    def discard(self) -> None:
        """Remove what was written of it; the site before stays."""
        shutil.rmtree(self.site, ignore_errors=True)


def begin_site(output: Path) -> SiteFolder:
    """A new site in the folder `output`, which is made if it is not there.

    Raises `UsageError` for a file, and for a folder that holds anything but an earlier site.
    """
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file", hint="--output takes a folder for the site.")
    names = {path.name for path in output.iterdir()} if output.is_dir() else set()
    if names - OF_FILE_MANAGERS and _MARKER not in names:
        raise UsageError(
            f"{output} holds other things than a site of llm-ocr view",
            hint="Give an empty or a new folder: --output site",
        )
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARKER).write_text(json.dumps({"format": _FORMAT}) + "\n", encoding="utf-8")
    site = output / f"site-{token_hex(4)}"
    site.mkdir()
    return SiteFolder(output, site)
