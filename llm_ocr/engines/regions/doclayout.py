"""Run PP-DocLayoutV3 and similar detectors in worker processes, on CPU or GPU."""

import asyncio
import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from llm_ocr.documents.page_wire import to_wire
from llm_ocr.engines.regions.detection import Layout, Region
from llm_ocr.engines.regions.detector_worker import page_from_wire
from llm_ocr.errors import LlmOcrError, PageFailure, WorkerDied, WorkerError, install_command
from llm_ocr.models.choosing import numbers
from llm_ocr.sandbox.pool import Interpreter, Limits, WorkerPool
from llm_ocr.types import EncodedImage, Page, Reason

_FILES = ("*.json", "*.safetensors")


def weights_folder(model: str, revision: str | None, offline: bool, cache: Path | None) -> Path:
    """Return the folder of a model: the given folder, or that of a download.

    The download runs here, because the worker has neither network access nor a token.

    Args:
        model: Folder or Hugging Face id.
        revision: Revision on the Hub.
        offline: Whether only local files are allowed.
        cache: Folder of downloaded models.

    Raises:
        LlmOcrError: The model is not available.
    """
    if Path(model).is_dir():
        return Path(model).resolve()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        found = snapshot_download(
            model, revision=revision, cache_dir=cache, local_files_only=offline, allow_patterns=list(_FILES)
        )
    except LocalEntryNotFoundError as error:
        why = "it is not on this machine" if offline else "the Hub cannot be reached, and it is not on this machine"
        hint = "Set `detector` to its folder, or read whole pages with `layout_first=never`."
        raise LlmOcrError(f"the layout detector {model}: {why}", hint=hint) from error
    except (GatedRepoError, RepositoryNotFoundError) as error:
        hint = "Check the name. HF_TOKEN must belong to an account that can read the model."
        raise LlmOcrError(f"the layout detector {model} is not accessible: {error}", hint=hint) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise LlmOcrError(f"the layout detector {model} could not be downloaded: {error}") from error
    return Path(found)


ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Batches(Generic[ItemT, ResultT]):
    """Runner of at most `parallel` batches of at most `size` items.

    A batch has all items that wait when a place becomes free. It does not wait for more.
    """

    def __init__(
        self, run: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT]]], *, size: int, parallel: int
    ) -> None:
        """Start the runner, which requires the running loop.

        `run` returns one result per item, in order; its errors reach all callers of the batch.
        """
        self._run = run
        self._size = size
        self._waiting: asyncio.Queue[tuple[ItemT, asyncio.Future[ResultT]]] = asyncio.Queue()
        self._runners = [asyncio.create_task(self._work()) for _ in range(parallel)]

    async def submit(self, item: ItemT) -> ResultT:
        """Return the item's result."""
        answer: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((item, answer))
        return await answer

    async def close(self) -> None:
        """Cancel the running batches and the waiting callers."""
        for runner in self._runners:
            runner.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)
        while not self._waiting.empty():
            self._waiting.get_nowait()[1].cancel()

    async def _work(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._size and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            batch = [(item, answer) for item, answer in batch if not answer.done()]
            try:
                results = await self._run([item for item, _ in batch]) if batch else ()
                for (_, answer), result in zip(batch, results, strict=True):
                    if not answer.done():
                        answer.set_result(result)
            except Exception as error:  # noqa: BLE001 - each caller raises it
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            finally:
                for _, answer in batch:  # those of a batch that `close` ends
                    answer.cancel()


#: Increased when a change alters results for the same page and weights; part of the key.
RESULT_VERSION = 1
MODEL = "PaddlePaddle/PP-DocLayoutV3_safetensors"
THRESHOLD = 0.3  # from GLM-OCR's SDK
#: Batch size on a GPU; on the CPU a batch takes as long as its pages in sequence.
GPU_BATCH = 8
#: Memory limit of a CPU process in bytes. No limit on a GPU: CUDA reserves address space beyond any limit.
_MEMORY = 8 << 30
_LEAST_TRANSFORMERS = (5, 2)
_MODULE = "llm_ocr.engines.regions.detector_worker"


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """Options of a detector. `timeout` in seconds, for loading the model and for each batch of pages."""

    workers: int
    model: str = MODEL  # Hugging Face id or folder
    revision: str | None = None
    threshold: float = THRESHOLD
    device: str = "auto"  # cpu, cuda, cuda:1 ...; auto: a GPU if available
    gpu: bool = False  # whether a GPU may be used: then memory is not limited
    offline: bool = False
    cache: Path | None = None  # of downloaded models
    python: str = ""  # another Python that has torch and transformers
    timeout: float = 300.0
    confined: bool = True


def installed() -> bool:
    """Return whether torch and a transformers release that supports the detector are installed."""
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        return False
    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return False
    return numbers(version) >= _LEAST_TRANSFORMERS


class DocLayout:
    """`Detector` that requires `close()`. Its weights are downloaded and loaded for a check at the first page."""

    def __init__(self, options: DetectorOptions) -> None:
        self._options = options
        self.name = options.model
        self._folder = tempfile.TemporaryDirectory(prefix="llm-ocr-") if options.python else None
        interpreter = None
        if self._folder is not None:
            # Another Python, which imports this package and nothing else from this environment.
            package = Path(__file__).parents[2]
            Path(self._folder.name, package.name).symlink_to(package, target_is_directory=True)
            interpreter = Interpreter(options.python, self._folder.name)
        on_cpu = options.device == "cpu" or not options.gpu
        self._pool = WorkerPool(
            _MODULE,
            workers=options.workers,
            limits=Limits(memory=_MEMORY if on_cpu else 0, requests=5000, confined=options.confined),
            interpreter=interpreter,
        )
        self._starting = asyncio.Lock()
        self._batches: Batches[EncodedImage, tuple[Region, ...] | PageFailure] | None = None
        self._model: dict[str, str] = {}

    @property
    def parallel(self) -> int:
        """Number of pages processed in parallel."""
        return max(2 * self._options.workers, 2 * GPU_BATCH if self._options.gpu else 0)

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change the regions; the device is not included."""
        options = self._options
        return {
            "model": options.model,
            "revision": options.revision,
            "threshold": options.threshold,
            "result_version": RESULT_VERSION,
        }

    async def detect(self, page: Page) -> Layout:
        """Return the page's regions.

        Raises:
            PageFailure: The page cannot be processed.
            LlmOcrError: The model is not available or cannot be loaded.
        """
        batches = self._batches or await self._begin()
        found = await batches.submit(page.image)
        if isinstance(found, PageFailure):
            raise found
        return Layout(found)

    async def close(self) -> None:
        """End the processes."""
        if self._batches is not None:
            await self._batches.close()
        await self._pool.close()
        if self._folder is not None:
            self._folder.cleanup()

    async def _begin(self) -> Batches[EncodedImage, tuple[Region, ...] | PageFailure]:
        async with self._starting:
            if self._batches is None:
                options = self._options
                folder = await asyncio.to_thread(
                    weights_folder, options.model, options.revision, options.offline, options.cache
                )
                self._model = {"folder": str(folder), "device": options.device}
                try:
                    about = await self._pool.call("load", self._model, deadline=options.timeout)
                except (WorkerDied, WorkerError) as error:
                    install = install_command("detector")
                    raise LlmOcrError(
                        f"the layout detector {options.model} cannot be loaded: {error}",
                        hint=f"Install it: {install}. Or use `detector=embedded`, or read whole pages with "
                        "`layout_first=never`.",
                    ) from error
                on_gpu = str(about["device"]) != "cpu"
                self._batches = Batches(
                    self._detected, size=GPU_BATCH if on_gpu else 1, parallel=1 if on_gpu else options.workers
                )
            return self._batches

    async def _detected(self, images: Sequence[EncodedImage]) -> list[tuple[Region, ...] | PageFailure]:
        """Return the regions of each page.

        A failed batch is retried page by page: one page or the size may be the cause.
        """
        last: WorkerDied | WorkerError
        try:
            return await self._call(images)
        except (WorkerDied, WorkerError) as error:
            last = error
        if len(images) > 1:
            return [page for image in images for page in await self._detected([image])]
        if isinstance(last, WorkerDied) and not last.timed_out:
            # A fresh process, which no earlier page has affected.
            try:
                return await self._call(images)
            except (WorkerDied, WorkerError) as again:
                last = again
        reason = Reason.ENGINE_ERROR
        if isinstance(last, WorkerDied):
            reason = Reason.ENGINE_LIMIT if last.out_of_memory else reason
            reason = Reason.ENGINE_TIMEOUT if last.timed_out else reason
        return [PageFailure(reason, f"the detector: {last}")]

    async def _call(self, images: Sequence[EncodedImage]) -> list[tuple[Region, ...] | PageFailure]:
        payload = {
            **self._model,
            "threshold": self._options.threshold,
            "images": list(map(to_wire, images)),
        }
        reply = await self._pool.call("detect", payload, deadline=self._options.timeout)
        return [page_from_wire(page) for page in reply["pages"]]
