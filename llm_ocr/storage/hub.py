"""Workspaces on the Hugging Face Hub: `hf://buckets/NS/NAME/PREFIX` and `hf://datasets/NS/NAME[@REV]/PREFIX`."""

from llm_ocr.errors import MissingExtra
from llm_ocr.storage import ObjectStore, StoreOptions
from llm_ocr.storage.hub_address import parse


def open_hub(url: str, options: StoreOptions) -> ObjectStore:
    """The store for an `hf://` URL; nothing is read or written.

    `options.token` is used if given, else what huggingface_hub finds (HF_TOKEN, `hf auth login`); `options.endpoint` is
    another server than the one HF_ENDPOINT names. Raises `UsageError`, and `MissingExtra` for an older client.
    """
    place = parse(url)
    _check_release()
    if place.kind == "bucket":
        from llm_ocr.storage.hub_bucket import BucketStore

        return BucketStore(place, options)
    from llm_ocr.storage.hub_dataset import DatasetStore

    return DatasetStore(place, options)


def _check_release() -> None:
    """Buckets, and asking for the right to write, are of newer releases than the library needs otherwise."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtra("hf:// needs huggingface_hub, which is not installed", install="huggingface_hub") from error
    if not hasattr(huggingface_hub, "batch_bucket_files"):
        installed = huggingface_hub.__version__
        raise MissingExtra(f"hf:// needs a newer huggingface_hub than {installed}", install="huggingface_hub")
