"""Rows of a dataset are listed in file order without reading images; faults are named."""

import sys
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_hub import IMAGE, TOKEN, cell, parquet, picture

from llm_ocr.documents.remote import is_remote
from llm_ocr.documents.rows import DataFile, DatasetOptions, RowAddress, row_address
from llm_ocr.documents.rows.listing import dataset_rows
from llm_ocr.errors import LlmOcrError, MissingExtra, StorageError, UsageError
from llm_ocr.storage.hf.client import RetryPolicy
from llm_ocr.workspace.codec import document_id
from tests.fakes.hub.answers import Account
from tests.fakes.hub.server import Fault
from tests.fakes.hub.state import Entry

LISTS = pa.list_(IMAGE)


NAME = "tester/docs"


def listed(name=NAME, *, first=None, **options):
    return list(islice(dataset_rows(DatasetOptions(name, **options), only_first=first is not None), first))


def refused(name=NAME, **options):
    with pytest.raises(UsageError) as caught:
        listed(name, **options)
    return str(caught.value)


def images(count, **more):
    """A file of `count` rows with one image each."""
    return parquet(
        {"image": [cell(picture(str(n))) for n in range(count)], **more}, {"image": IMAGE, "id": pa.string()}
    )


def pushed(name, rows, **how):
    """A dataset as `push_to_hub` writes it: `rows` by column."""
    import datasets

    features = datasets.Features(
        {column: datasets.Image() if column == "image" else datasets.List(datasets.Image()) for column in rows}
    )
    datasets.Dataset.from_dict(rows, features=features).push_to_hub(name, token=TOKEN, **how)


def test_rows_follow_file_order_and_addresses_name_their_place(hub):
    pushed(NAME, {"image": [{"bytes": picture(str(n)), "path": None} for n in range(7)]}, num_shards=2)
    commit = hub.commit(NAME)
    rows = listed()
    assert [row.relative for row in rows] == [
        *(f"data/train-00000-of-00002.parquet/{n:06d}" for n in range(4)),
        *(f"data/train-00001-of-00002.parquet/{n:06d}" for n in range(3)),
    ]
    assert {row.page_total for row in rows} == {1}
    assert len({row.version for row in rows}) == 7
    address = row_address(rows[5].source)
    assert (address.file.commit, address.row, address.column) == (commit, 1, "image")
    assert rows[5].source.startswith(f"hf://datasets/{NAME}@{commit}/data/train-00001-of-00002.parquet#row=1")


@pytest.mark.parametrize("lengths", [[1] * 8, [1, 2, 0, 3, 1, 1, 1, 1]], ids=["one each", "lists"])
@pytest.mark.parametrize("kind", [IMAGE, LISTS], ids=["image", "images"])
def test_planning_reads_no_image(hub, kind, lengths):
    data = b"\x89PNG" + bytes(range(256)) * 1000  # 256 kB a row and more
    cells = [cell(data, f"{n}.png") for n in range(8)]
    rows = cells if kind == IMAGE else [[one] * length for one, length in zip(cells, lengths, strict=True)]
    file = parquet({"image": rows}, {"image": kind}, use_dictionary=False, compression="none")
    hub.add(NAME, {"data/train.parquet": file})
    hub.served.clear()
    assert [row.page_total for row in listed()] == ([1] * 8 if kind == IMAGE else lengths)
    assert sum(hub.served) < len(file) / 8
    assert max(hub.served) <= 1 << 16  # the footer as pyarrow asks for it; nothing else is so large
    if lengths == [1] * 8:
        assert len(hub.served) == 2  # footers alone: to choose the column, and to count


def test_the_first_rows_need_the_first_files_alone(hub):
    hub.add(NAME, {f"data/train-{n:05d}-of-00020.parquet": images(3) for n in range(20)})
    hub.served.clear()
    assert len(listed(first=5)) == 5
    few = len(hub.served)
    hub.served.clear()
    assert len(listed()) == 60
    assert few <= 3 < 20 <= len(hub.served)
    assert listed(first=5) == listed()[:5]


def test_moved_revision_leaves_the_planned_rows_unchanged(hub):
    before = hub.add(NAME, {"data/train.parquet": images(2)})
    rows = listed()
    after = hub.add(NAME, {"data/train.parquet": images(5)})
    assert {row_address(row.source).file.commit for row in rows} == {before}
    assert {row_address(row.source).file.commit for row in listed()} == {after}
    assert listed(revision=before) == rows


def test_configurations_and_splits_are_those_of_the_card(hub):
    card = """---
configs:
- config_name: scans
  default: true
  data_files:
  - split: train
    path: a/*.parquet
  - split: test
    path: b/only.parquet
- config_name: photos
  data_files: c/*.parquet
---
"""
    files = {"a/1.parquet": images(2), "a/2.parquet": images(1), "b/only.parquet": images(4), "c/x.parquet": images(5)}
    hub.add(NAME, {"README.md": card.encode(), **files})
    assert len(listed()) == 3
    assert len(listed(split="test")) == 4
    assert len(listed(config="photos")) == 5
    assert "scans, photos" in refused(config="drawings")
    message = refused(split="validation")
    assert "`dataset_split=validation`" in message and "train, test" in message


def test_several_configurations_need_a_choice(hub):
    card = "---\nconfigs:\n- config_name: a\n  data_files: a.parquet\n- config_name: b\n  data_files: b.parquet\n---\n"
    hub.add(NAME, {"README.md": card.encode(), "a.parquet": images(1), "b.parquet": images(2)})
    message = refused()
    assert "a, b" in message and "`dataset_config`" in message
    assert len(listed(config="b")) == 2


def test_an_id_column_gives_the_ids(hub):
    hub.add(NAME, {"train.parquet": images(3, id=["x", "ü/ß", "3"])})
    assert [row.document_id for row in listed(id_column="id")] == ["x", "ü/ß", "3"]
    assert [row.relative for row in listed(id_column="id")] == ["x", "ü/ß", "3"]
    assert {row.document_id for row in listed()} == {None}


def test_numbers_are_ids_and_other_values_are_not(hub):
    cells = [cell(picture("a"))] * 2
    types = {"image": IMAGE, "n": pa.int32(), "share": pa.float64()}
    hub.add(NAME, {"train.parquet": parquet({"image": cells, "n": [7, 8], "share": [0.5, 1.0]}, types)})
    assert [row.document_id for row in listed(id_column="n")] == ["7", "8"]
    assert "double" in refused(id_column="share")


TEXT = parquet({"text": ["a"], "n": [1]}, {"text": pa.string(), "n": pa.int64()})


@pytest.mark.parametrize(
    ("files", "options", "signs"),
    [
        *(
            (
                {"train.parquet": images(6, id=["a", "b", "c", "d", empty, "f"])},
                {"id_column": "id"},
                ["row 4", "train.parquet", "`id_column=id`"],
            )
            for empty in (None, "", " ")
        ),
        ({"train.parquet": TEXT}, {}, ["text, n"]),
        ({"train-0.parquet": images(2), "train-1.parquet": TEXT}, {}, ["train-1.parquet", "image"]),
        ({"train/a.png": b"\x89PNG"}, {}, ["a.png", "refs/convert/parquet", f"hf://datasets/{NAME}/"]),
        ({"train.parquet": images(1)}, {"revision": "v9"}, ["`dataset_revision=v9`", "main"]),
    ],
)
def test_what_a_dataset_lacks_is_named(hub, files, options, signs):
    hub.add(NAME, files)
    message = refused(**options)
    assert [sign for sign in signs if sign not in message] == []


def test_a_column_is_chosen_where_there_is_one_with_images(hub):
    row = {"scan": cell(picture("a")), "photo": cell(picture("b")), "text": "x", "number": 1, "raw": picture("c")}
    types = {"scan": IMAGE, "photo": IMAGE, "text": pa.string(), "number": pa.int64(), "raw": pa.binary()}
    hub.add(NAME, {"train.parquet": parquet({name: [value] for name, value in row.items()}, types)})
    message = refused()
    assert "scan, photo" in message and "`image_column`" in message
    assert row_address(listed(image_column="photo")[0].source).column == "photo"
    assert row_address(listed(image_column="raw")[0].source).column == "raw"
    assert "Columns with images: scan, photo" in refused(image_column="pages")
    assert "int64" in refused(image_column="number")
    assert "`id_column=nowhere`" in refused(image_column="scan", id_column="nowhere")


def test_column_with_other_declared_type_is_no_image(hub):
    import datasets

    features = datasets.Features({"sound": datasets.Audio(), "page": datasets.Image()})
    declared = features.arrow_schema
    table = pa.table({"sound": [cell(b"RIFF")], "page": [cell(picture("a"))]}, schema=declared)
    file = pa.BufferOutputStream()
    pa.parquet.write_table(table, file)
    hub.add(NAME, {"train.parquet": file.getvalue().to_pybytes()})
    assert row_address(listed()[0].source).column == "page"


def test_a_file_that_is_no_parquet_inside_is_named(hub):
    hub.add(NAME, {"train.parquet": b"PAR1 but nothing else PAR1"})
    with pytest.raises(StorageError, match=r"train\.parquet"):
        listed()


def test_the_hubs_own_parquet_of_another_format_can_be_read(hub):
    hub.add(NAME, {"train/a.png": picture("a")})
    repositories = hub.server.state.repositories
    converted = {"default/train/0000.parquet": images(3), "default/test/0000.parquet": images(1)}
    tree = {path: Entry(data) for path, data in converted.items()}
    repositories.commit(repositories.get("dataset", NAME), "refs/convert/parquet", tree, "converted")
    revision = "refs/convert/parquet"
    names = [row.relative for row in listed(revision=revision)]
    assert names == [f"default/train/0000.parquet/{n:06d}" for n in range(3)]
    assert len(listed(revision=revision, split="test")) == 1
    assert "default" in refused(revision=revision, config="other")


@pytest.mark.parametrize("name", ["docs", "a/b/c", "", "https://example.org/x", "tester/docs@main"])
def test_invalid_dataset_name_is_refused(hub, name):
    assert "`dataset=" in refused(name)


@pytest.mark.parametrize("shards", [1, 2])
def test_saved_dataset_is_read_after_the_named_conversion(shards, tmp_path, monkeypatch):
    import datasets

    monkeypatch.chdir(tmp_path)
    cells = {"image": [cell(picture(str(number))) for number in range(2)]}
    saved = datasets.Dataset.from_dict(cells, features=datasets.Features({"image": datasets.Image()}))
    saved.save_to_disk("saved", num_shards=shards)
    for name in ("saved", f"saved/data-00000-of-0000{shards}.arrow"):
        message = refused(name)
        assert "arrow is not in Parquet" in message
        eval(message.partition("in Python: ")[2], {"datasets": datasets})
        assert len(listed("data.parquet")) == 2


def test_column_of_pdfs_is_found_in_a_dataset(tmp_path):
    import datasets

    table = pa.table({"pdf": [{"bytes": None, "path": "a.pdf"}]}, schema=pa.schema([("pdf", IMAGE)]))
    features = datasets.Features({"pdf": datasets.Pdf()})
    pq.write_table(table.cast(features.arrow_schema), tmp_path / "pdfs.parquet")
    (row,) = listed(str(tmp_path / "pdfs.parquet"))
    assert row.source.endswith("column=pdf")


def test_missing_folder_is_named_beside_the_missing_dataset(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"{tmp_path / 'scans'} does not exist" in refused("scans")
    with pytest.raises(LlmOcrError) as caught:
        listed("nobody/scans")
    assert f"If it is a folder: {tmp_path / 'nobody/scans'} does not exist." in str(caught.value)


def test_missing_datasets_package_message_names_the_extra(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r'pip install "datasets>='):
        listed()


def test_missing_or_forbidden_dataset_is_named(hub, monkeypatch):
    with pytest.raises(StorageError, match="tester/nowhere") as caught:
        listed("tester/nowhere")
    assert "does not exist" in str(caught.value)
    hub.add(NAME, {"train.parquet": images(1)})
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(StorageError, match="HF_TOKEN"):
        listed()


def test_a_gated_dataset_says_where_to_ask(hub, monkeypatch):
    hub.add(NAME, {"train.parquet": images(1)})
    repository = hub.server.state.repositories.get("dataset", NAME)
    repository.gated, repository.private = True, False
    hub.server.state.accounts.by_token["hf_other"] = Account("other", role="read")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(StorageError, match="gated"):
        listed()


def test_offline_mode_fails_at_once(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(StorageError, match="HF_HUB_OFFLINE"):
        listed()


def test_an_empty_repository_says_so(hub):
    hub.api.create_repo(NAME, repo_type="dataset")
    with pytest.raises(LlmOcrError, match=NAME):
        listed()


def test_a_hub_that_fails_for_a_moment_costs_nothing(hub, monkeypatch):
    monkeypatch.setattr("llm_ocr.documents.rows.listing.RETRIES", RetryPolicy(tries=3, first=0.01, longest=0.02))
    hub.add(NAME, {"train.parquet": images(2)})
    hub.server.faults.add(Fault("info", status=503), Fault("info", status=429, headers={"Retry-After": "0"}))
    assert len(listed()) == 2


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("path", ["train.parquet", "a b/c#d.parquet", "50%/ü?x=1&y.parquet", "x@main/y.parquet"])
@pytest.mark.parametrize("column", ["image", "page image", "a&b#c=d/e", "Bild ü", ""])
def test_an_address_comes_back_from_its_url(path, column):
    address = RowAddress(DataFile("ns/name", COMMIT, path), 1234567, column)
    assert row_address(address.url) == address
    assert is_remote(address.url)
    assert address.relative == f"{path}/1234567"


@pytest.mark.parametrize(
    "source",
    [
        "/docs/a.pdf",
        "hf://datasets/ns/name/a.parquet",
        f"hf://datasets/ns/name@{COMMIT}/a.parquet",
        "hf://datasets/ns/name@main/a.parquet#row=1&column=image",
        f"hf://datasets/ns/name@{COMMIT}/a.parquet#row=x&column=image",
        f"hf://buckets/ns/name@{COMMIT}/a.parquet#row=1&column=image",
    ],
)
def test_other_sources_are_no_rows(source):
    assert row_address(source) is None


def test_ids_are_made_of_commit_file_and_row():
    def made(commit=COMMIT, path="a.parquet", row=1):
        address = RowAddress(DataFile("ns/name", commit, path), row, "image")
        return document_id(None, relative=address.relative, version=address.version, source=address.url)

    ids = {made(), made(commit="f" * 40), made(path="b.parquet"), made(row=2)}
    assert len(ids) == 4
    assert all(len(one) == 16 for one in ids)
    assert made() == made()
