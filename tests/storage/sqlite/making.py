"""The store of examples/custom_store.py: a user's own is held to what every store promises."""

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from llm_ocr.storage import ObjectStore

#: More than two pages of its lists.
MANY = 210

_EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "custom_store.py"


@contextlib.contextmanager
def make_store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A store in a file, whose lists come in pages of 100."""
    spec = importlib.util.spec_from_file_location("custom_store_example", _EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._PAGE = 100
    store = module.SqliteStore(tmp_path / "own" / "objects.db")
    store.check()
    yield store
