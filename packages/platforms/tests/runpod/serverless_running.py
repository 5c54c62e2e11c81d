"""A worker in this process, and what it is asked."""

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from llm_ocr.config.models import WorkerSettings
from llm_ocr_platforms.runpod.worker import Worker

FRUGAL: dict[str, Any] = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1}
#: What a reply holds of the image; nothing here comes from one.
REFS = {"GLMOCR_REF": "529a0c7", "VLLM_BASE_IMAGE": "vllm/vllm-openai:tag@sha256:3f5ad92f"}


def b64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def with_worker(
    use: Callable[[Worker], Awaitable[Any]], *, report: Callable[..., None] = lambda job, told: None, **settings: Any
) -> Any:
    """What `use` gives, with a worker that ends after it."""

    async def main() -> Any:
        worker = Worker(WorkerSettings(**{**FRUGAL, **settings}), REFS, report)
        try:
            return await use(worker)
        finally:
            await worker.close()

    return asyncio.run(main())


def asked(given: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The reply to one input."""
    return with_worker(lambda worker: worker.handle({"id": "job-1", "input": given}), **settings)


@contextlib.contextmanager
def web(folder: Path) -> Iterator[str]:
    """The URL of a web server that has the folder's files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


#: Each way to give a document, from the folder of examples and the address of a site that has them.
FORMS = {
    "pdf_url": lambda examples, site: f"{site}/paper.pdf",
    "pdf_base64": lambda examples, site: b64(examples / "paper.pdf"),
    "image_urls": lambda examples, site: [f"{site}/invoice.png"],
    "images_base64": lambda examples, site: [b64(examples / "invoice.png")],
    "source_url": lambda examples, site: f"{site}/invoice.png",
    "source_base64": lambda examples, site: b64(examples / "paper.pdf"),
}
