"""A detector's files, in a folder on this machine."""

from pathlib import Path

from llm_ocr.errors import LlmOcrError

_FILES = ("*.json", "*.safetensors")


def weights_folder(model: str, revision: str | None, offline: bool, cache: Path | None) -> Path:
    """The folder of a model: itself, or that of a download. `model` is a folder or a Hugging Face id.

    Done here, not in the worker, which gets neither network nor token. Raises `LlmOcrError`.
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
        hint = "Name its folder with --detector, or read whole pages with --layout-first never."
        raise LlmOcrError(f"the layout detector {model}: {why}", hint=hint) from error
    except (GatedRepoError, RepositoryNotFoundError) as error:
        hint = "See that the name is right, and that HF_TOKEN is of someone who may read it."
        raise LlmOcrError(f"the layout detector {model} is not to be had: {error}", hint=hint) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise LlmOcrError(f"the layout detector {model} was not downloaded: {error}") from error
    return Path(found)
