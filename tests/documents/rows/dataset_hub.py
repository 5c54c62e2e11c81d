"""Datasets on the fake Hub, written and read through the real `datasets` and `huggingface_hub`."""

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import CommitOperationAdd, HfApi
from PIL import Image, ImageDraw

from tests.fakes.hub import TOKEN, FakeHub
from tests.fakes.hub import repos as served
from tests.storage.hub.making import hub_constants


@dataclass
class DatasetHub:
    """A server, the environment of programs that use it, and what it has sent."""

    server: FakeHub
    environment: dict[str, str]
    served: list[int]  # bytes of each answer with a part of a large file

    @property
    def api(self) -> HfApi:
        return HfApi(endpoint=self.server.url, token=TOKEN)

    def commit(self, name: str) -> str:
        return self.server.state.repositories.get("dataset", name).refs["main"]

    def add(self, name: str, files: dict[str, bytes]) -> str:
        """One more commit to a private repository, which is made with the first one."""
        self.api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        adds = [CommitOperationAdd(path, data) for path, data in files.items()]
        return self.api.create_commit(name, adds, commit_message="more", repo_type="dataset").oid


@contextlib.contextmanager
def dataset_hub(home: Path) -> Iterator[DatasetHub]:
    """Nothing of this machine's: no cache, no token. The libraries have read their environment when imported."""
    server = FakeHub()
    server.start()
    environment = server.environment(home) | {"HF_UPDATE_DOWNLOAD_COUNTS": "0"}
    counted: list[int] = []

    def content(request: Any, data: bytes, headers: Any) -> Any:
        answer = made(request, data, headers)
        if request.path.startswith("/_lfs/") and request.method == "GET":
            counted.append(len(answer.body))
        return answer

    made = served.content
    others = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    library = {
        "HF_ENDPOINT": server.url,
        "HF_DATASETS_CACHE": home / "datasets",
        "HF_UPDATE_DOWNLOAD_COUNTS": False,
        "HF_HUB_OFFLINE": False,
    }
    try:
        with (
            mock.patch.dict(os.environ, others | {"HF_TOKEN": TOKEN}, clear=True),
            hub_constants(server.url, home),
            mock.patch.multiple("datasets.config", **library),
            mock.patch.object(served, "content", content),
        ):
            yield DatasetHub(server, environment, counted)
    finally:
        server.stop()


def picture(text: str = "", *, size: tuple[int, int] = (200, 80), kind: str = "PNG") -> bytes:
    """An image file with a line of text."""
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((10, 20), text, fill="black", font_size=28)
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def cell(data: bytes | None, path: str | None = None) -> dict[str, Any]:
    """An image as `datasets` stores it."""
    return {"bytes": data, "path": path}


def parquet(columns: dict[str, Sequence[Any]], types: dict[str, pa.DataType], *, rows: int = 4, **how: Any) -> bytes:
    """A Parquet file with `rows` rows in each row group, nothing in it of `datasets`."""
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=rows, **how)
    return file.getvalue()
