"""A small dataset in the place of FineVision, on a Hub on loopback: pages of our own example in its form."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pypdfium2
from huggingface_hub import CommitOperationAdd, HfApi
from notebook_runs import REPOSITORY

from tests.fakes.hub import FakeHub
from tests.fakes.hub.answers import Account

_NAME, _CONFIG = "HuggingFaceM4/FineVision", "olmOCR-mix-0225-documents"
_CARD = f"""---
configs:
- config_name: {_CONFIG}
  data_files:
  - split: train
    path: {_CONFIG}/train-*
---
"""
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def put_fine_vision(hub: FakeHub) -> None:
    """One configuration with two pages of `examples/paper.pdf` and a broken image: a list of images a row."""
    hub.state.accounts.by_token["hf_owner"] = Account(_NAME.partition("/")[0])
    api = HfApi(endpoint=hub.url, token="hf_owner")
    api.create_repo(_NAME, repo_type="dataset", private=False)
    files = {"README.md": _CARD.encode(), f"{_CONFIG}/train-00000-of-00001.parquet": _parquet()}
    adds = [CommitOperationAdd(path, data) for path, data in files.items()]
    api.create_commit(_NAME, adds, commit_message="pages", repo_type="dataset")


def _parquet() -> bytes:
    rows: list[Any] = [[{"bytes": data, "path": None}] for data in (*_pages(), b"\x89PNG\r\n\x1a\n that is all")]
    file = io.BytesIO()
    pq.write_table(pa.table({"images": pa.array(rows, pa.list_(_IMAGE))}), file)
    return file.getvalue()


def _pages() -> list[bytes]:
    found = []
    with pypdfium2.PdfDocument(REPOSITORY / "examples" / "paper.pdf") as document:
        for page in (document[0], document[1]):
            file = io.BytesIO()
            page.render(scale=1.6, grayscale=True).to_pil().save(file, "PNG")
            found.append(file.getvalue())
    return found
