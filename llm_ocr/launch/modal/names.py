"""What a Modal app of ours is called, and its volumes: from the environment of whoever deploys it.

The variables of the dots.ocr batch pipeline name the same things; ours count first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

#: Folders of the containers.
DATA, MODELS, CACHE = "/data", "/models", "/vllm-cache"
DEFAULT_APP = "llm-ocr"


@dataclass(frozen=True, slots=True)
class ModalNames:
    """`image` is a container image of ours; "" builds one from the checkout."""

    app: str
    data: str
    models: str
    cache: str
    image: str = ""
    gpu: str = ""  # of `modal run`; "": the launcher's default
    secrets: str = ""  # Modal secrets that the functions get unless a launch gives others; with commas

    def environment(self) -> dict[str, str]:
        """The variables that give these names again: the app's file is read once more in its containers."""
        values = {VARIABLES[name][0]: getattr(self, name) for name in VARIABLES}
        return {variable: value for variable, value in values.items() if value}


#: Field -> the variables that give it, the first one that is set.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "app": ("LLM_OCR_MODAL_APP", "DOTS_MODAL_APP_NAME"),
    "data": ("LLM_OCR_MODAL_DATA_VOLUME", "DOTS_MODAL_DATA_VOLUME"),
    "models": ("LLM_OCR_MODAL_MODEL_VOLUME", "DOTS_MODAL_MODEL_VOLUME"),
    "cache": ("LLM_OCR_MODAL_CACHE_VOLUME", "DOTS_MODAL_VLLM_CACHE_VOLUME"),
    "image": ("LLM_OCR_MODAL_IMAGE",),
    "gpu": ("LLM_OCR_MODAL_GPU",),
    "secrets": ("LLM_OCR_MODAL_SECRETS",),
}
_DEFAULTS = {"app": DEFAULT_APP, "data": "llm-ocr-data", "models": "llm-ocr-models", "cache": "llm-ocr-vllm-cache"}


def names_from(environment: Mapping[str, str]) -> ModalNames:
    """The names that these variables give; an empty one counts as unset."""
    found = {
        field: next((environment[name] for name in names if environment.get(name)), _DEFAULTS.get(field, ""))
        for field, names in VARIABLES.items()
    }
    return ModalNames(**found)


def board_name(app: str) -> str:
    """Of the Modal Dict in which an app's jobs are noted: Modal has no names for calls."""
    return f"{app}-jobs"
