"""Documents on S3, GCS and web servers, read into a local workspace. The servers are emulators on loopback."""

import contextlib
import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import FRUGALLY
from store_servers import Place, gcs, s3

import llm_ocr
from llm_ocr.documents.remote.cache import store_version
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.types import Reason, Status
from llm_ocr.workspace.codec import document_id


@contextlib.contextmanager
def web(folder: Path) -> Iterator[str]:
    """A web server over a folder."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(params=[s3, gcs], ids=["s3", "gcs"])
def bucket(request, small_examples) -> Iterator[Place]:
    """The URL of a folder with two documents and a note, and the settings that reach it."""
    with request.param() as (url, settings):
        endpoint = settings["workspace_endpoint"]
        root = url.partition("/runs/")[0]
        store = open_store(root, StoreOptions(endpoint=endpoint))
        store.upload(small_examples / "paper.pdf", "papers/2024/paper.pdf")
        store.upload(small_examples / "invoice.png", "papers/invoice.png")
        store.put("papers/notes.docx", b"no document")
        yield f"{root}/papers", {"source_endpoint": endpoint}


@pytest.mark.parametrize("bucket", [s3, pytest.param(gcs, marks=pytest.mark.slow)], ids=["s3", "gcs"], indirect=True)
def test_a_prefix_of_a_bucket_is_read_like_a_folder(bucket, small_examples, tmp_path):
    url, settings = bucket
    run = llm_ocr.run(url, workspace=tmp_path / "w", **settings, **FRUGALLY)
    here = llm_ocr.run(
        [small_examples / "paper.pdf", small_examples / "invoice.png"], workspace=tmp_path / "here", **FRUGALLY
    )
    assert run.status.pages.ok == run.status.pages.expected == here.status.pages.expected
    assert run.status.skipped == {".docx": 1}
    assert sorted(document.path for document in run.documents()) == [
        "documents/2024/paper.pdf.md",
        "documents/invoice.png.md",
    ]
    assert sorted(page.markdown.replace(page.document_id, "") for page in run.pages()) == sorted(
        page.markdown.replace(page.document_id, "") for page in here.pages()
    )
    assert all(page.source.startswith(url) for page in run.pages())


def test_globs_and_manifests_name_documents_there(bucket, tmp_path):
    url, settings = bucket
    manifest = tmp_path / "list.jsonl"
    manifest.write_text(json.dumps({"id": "mine", "pdf_path": f"{url}/2024/paper.pdf", "pages": [2]}) + "\n")
    run = llm_ocr.extract([f"{url}/*.png", manifest], workspace=tmp_path / "w", **settings, **FRUGALLY)
    pages = {page.document_id: page.page_number for page in run.pages()}
    assert (len(pages), pages["mine"]) == (2, 2)


def test_a_document_that_was_replaced_since_it_was_planned_fails(bucket, small_examples, tmp_path):
    url, settings = bucket
    llm_ocr.plan(f"{url}/invoice.png", workspace=tmp_path / "w", engine="embedded", **settings)
    store = open_store(url, StoreOptions(endpoint=settings["source_endpoint"]))
    store.upload(small_examples / "fax.tiff", "invoice.png")
    (page,) = llm_ocr.extract(workspace=tmp_path / "w", **settings, **FRUGALLY).pages()
    assert (page.status, page.reason) == (Status.FAILED, Reason.SOURCE_CHANGED)


def test_web_documents_are_read_if_private_addresses_are_allowed(small_examples, tmp_path):
    with web(small_examples) as url:
        sources = [f"{url}/invoice.png", f"{url}/nothing.pdf"]
        refused = llm_ocr.extract(sources, workspace=tmp_path / "refused", **FRUGALLY)
        assert refused.status.pages.failed == 2
        assert all("not a public address" in page.detail for page in refused.pages())
        run = llm_ocr.extract(sources, workspace=tmp_path / "w", allow_private_addresses=True, **FRUGALLY)
    rows = {page.source.rpartition("/")[2]: page for page in run.pages()}
    assert rows["invoice.png"].status is Status.OK
    assert rows["nothing.pdf"].reason is Reason.NOT_FOUND


def test_workspace_and_documents_can_be_on_different_stores(small_examples, tmp_path):
    with s3() as (workspace, there), gcs() as (documents, here):
        source = documents.partition("/runs/")[0]
        open_store(source, StoreOptions(endpoint=here["workspace_endpoint"])).upload(
            small_examples / "invoice.png", "in/a.png"
        )
        settings = {**there, "source_endpoint": here["workspace_endpoint"]}
        run = llm_ocr.extract(f"{source}/in", workspace=workspace, **settings, **FRUGALLY)
        assert run.status.pages.ok == 1


def test_the_signature_of_a_presigned_url_is_in_no_result(small_examples, tmp_path, caplog):
    with web(small_examples) as url:
        sources = [f"{url}/{name}?X-Amz-Date=1&X-Amz-Signature=SESAME" for name in ("invoice.png", "nothing.pdf")]
        run = llm_ocr.run(sources, workspace=tmp_path / "w", allow_private_addresses=True, **FRUGALLY)
    assert [page.status for page in run.pages()] == [Status.OK, Status.FAILED]
    assert {page.source.rpartition("/")[2].partition("?")[0] for page in run.pages()} == {"invoice.png", "nothing.pdf"}
    told = [json.dumps(run.status.to_json()), caplog.text, *(row["source"] for row in run.to_dataset())]
    assert "SESAME" not in "".join(told)
    # Only the plan knows it: without it no worker could read the document.
    holders = {
        file.parts[-4] for file in (tmp_path / "w").rglob("*") if file.is_file() and b"SESAME" in file.read_bytes()
    }
    assert holders == {"plan"}


BLANK = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 72 72]>>endobj\ntrailer<</Root 1 0 R>>\n"
)


def test_list_keeps_document_folders_and_their_former_ids(bucket, tmp_path):
    url, settings = bucket
    root = url.removesuffix("/papers")
    store = open_store(root, StoreOptions(endpoint=settings["source_endpoint"]))
    for key, data in (("t/a/b/x.pdf", BLANK), ("t/c/x.pdf", BLANK), ("t/d/x.pdf", BLANK + b"%")):
        store.put(key, data)
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{root}/t/{name}/x.pdf\n" for name in ("a/b", "c", "d")))
    run = llm_ocr.run(listed, workspace=tmp_path / "w", **settings, **FRUGALLY)
    files = sorted(path.relative_to(tmp_path / "w/documents").as_posix() for path in (tmp_path / "w").rglob("*.md"))
    assert files == ["t/a/b/x.pdf.md", "t/c/x.pdf.md", "t/d/x.pdf.md"]
    version = {info.key: store_version(f"{root}/{info.key}", info) for info in store.list("t/")}
    first = document_id(None, relative="x.pdf", version=version["t/a/b/x.pdf"], source="")
    assert first in {page.document_id for page in run.pages(images=False)}
    llm_ocr.run(listed, workspace=tmp_path / "w", **settings, **FRUGALLY)
    assert run.status.pages == llm_ocr.open(tmp_path / "w").status.pages


ODD_KEYS = (
    *("/lead.pdf", "dir//b.pdf", "dir/./c.pdf", "a/../b.pdf", "con\x01trol.pdf", "space.pdf ", "me//you@x.pdf"),
    "x.pdf/",
)


@pytest.fixture(params=[s3, gcs], ids=["s3", "gcs"])
def odd_bucket(request) -> Iterator[tuple[str, dict[str, str]]]:
    """A bucket of documents whose keys no workspace would hold, a folder's mark, and a document that is damaged."""
    with request.param() as (url, settings):
        endpoint = settings["workspace_endpoint"]
        root = url.partition("/runs/")[0]
        store = open_store(root, StoreOptions(endpoint=endpoint, any_key=True))
        for info in list(store.list()):
            store.delete(info.key)
        for number, key in enumerate(ODD_KEYS):
            store.put(key, BLANK + b"%%%d" % number)
        store.put("folder//", b"")
        store.put("bad//d.pdf", b"no PDF")
        yield root, {"source_endpoint": endpoint}


@pytest.mark.slow
def test_bucket_keys_are_read_or_fail_and_stay_in_output_folders(odd_bucket, tmp_path):
    root, settings = odd_bucket
    run = llm_ocr.run(root, workspace=tmp_path / "w", **settings, **FRUGALLY)
    pages = {page.source.removeprefix(f"{root}/"): page.reason for page in run.pages(images=False)}
    assert pages == {**dict.fromkeys(ODD_KEYS), "bad//d.pdf": Reason.UNREADABLE}
    assert len({page.document_id for page in run.pages(images=False)}) == len(pages)
    llm_ocr.export(workspace=tmp_path / "w", output=tmp_path / "out", format="markdown")
    names = [f"{name}.md" for name in ("lead.pdf", "dir/b.pdf", "dir/c.pdf", "a/_/b.pdf", "con_trol.pdf", "space.pdf")]
    for folder in (tmp_path / "w" / "documents", tmp_path / "out" / "documents"):
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
        assert found.issuperset({*names, "me/you@x.pdf.md", "x.pdf.md"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "w"]


def test_a_list_names_documents_by_any_key(odd_bucket, tmp_path):
    root, settings = odd_bucket
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{root}/{key}\n" for key in ("/lead.pdf", "a/../b.pdf")))
    run = llm_ocr.extract(listed, workspace=tmp_path / "w", **settings, **FRUGALLY)
    assert [page.status for page in run.pages(images=False)] == [Status.OK, Status.OK]
