"""Choose the engine of a command, and refuse settings that it ignores."""

import logging
import shlex

from llm_ocr.config.groups import (
    EMBEDDED,
    HYBRID,
    MODELS,
    SERVER,
    VLLM,
    DescribeGroup,
    EmbeddedSettings,
    EngineSettings,
    LedgerSettings,
    ModelSettings,
    RaySettings,
)
from llm_ocr.config.loading import about, check_effect
from llm_ocr.config.models import FieldsSettings, ServingCommand
from llm_ocr.engines.vllm.sizing import gpus, vllm_installed
from llm_ocr.engines.vlm.requests import PLACE
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.models.parsers.labels import normal
from llm_ocr.plugins import ENGINES
from llm_ocr.types import BlockKind

_log = logging.getLogger(__name__)

#: No engine was chosen, and none is needed yet.
UNDECIDED = "auto"
#: Labels of the blocks that the CPU engine can crop: figures, and its other kinds of blocks.
_EMBEDDED_LABELS = frozenset({"image", "chart", "diagram", *BlockKind}) - {BlockKind.FIGURE}
#: Pages per unit in small plans, where the incomplete units of a killed worker have a large share of all pages. In a
#: folder of this machine, where publishing takes some 10 ms, and in other stores.
LEAST_PER_LOCAL_UNIT, LEAST_PER_UNIT = 1, 16


def pages_per_unit(engine: str) -> int:
    """Return the pages per unit. A scanned page takes a CPU seconds, so its units are small and published often."""
    return 64 if engine in (*MODELS, HYBRID, UNDECIDED) else 16


def choose_engine(settings: EngineSettings, *, command: str) -> str:
    """Return the engine's name; `auto` if none is needed yet. For `hybrid`, that of the model's servers.

    `run` and `repair` fall back to the embedded engine. Other stages need a choice.

    Args:
        settings: The settings of the command.
        command: The name of the command.

    Raises:
        UsageError: Engine and servers contradict each other, or a setting that the caller named has no effect.
        LlmOcrError: No engine is available.
    """
    engine = _engine(settings, command)
    if isinstance(settings, FieldsSettings) and settings.engine == HYBRID:
        raise UsageError("`engine=hybrid` has no effect on fields, which read no pages", hint="Remove it.")
    if isinstance(settings, FieldsSettings) and engine not in MODELS:
        lacks = "this machine has no vLLM with a GPU"
        raise UsageError(
            "fields need a model that follows instructions, and "
            + (lacks if settings.engine == UNDECIDED else f"{about(settings.engine)} has none"),
            hint="Set the URL of a server: `server_url=http://HOST:PORT`. With a GPU: `engine=vllm`",
        )
    _check_effect(settings, engine)
    return engine


def _check_effect(settings: EngineSettings, engine: str) -> None:
    if engine == UNDECIDED:
        return
    reason = "vLLM is not installed" if gpus() else "no GPU was found"
    if isinstance(settings, EmbeddedSettings) and settings.invisible_text == "keep" and settings.text_layer == "never":
        raise UsageError(
            "`invisible_text=keep` has no effect with `text_layer=never`: OCR reads only what the page shows",
            hint="Remove one of the two settings.",
        )
    why = "which `server_url` chose" if engine == SERVER else f"which `engine=auto` chose because {reason}"
    if idle := check_effect(settings, engine, why):
        used = HYBRID if settings.engine == HYBRID else engine
        _log.warning("no effect with %s: %s", about(used), ", ".join(idle))
    if isinstance(settings, LedgerSettings) and settings.verify == "ocr":
        if engine not in (*MODELS, HYBRID):
            raise UsageError(
                f"`verify=ocr` has no effect with {about(engine)}: it reads by the same OCR that would verify its text",
                hint="Remove it, or read with a model: `server_url=URL` or `engine=vllm`.",
            )
        if missing := ENGINES.get(EMBEDDED).missing():
            raise UsageError("`verify=ocr` needs OCR, which is not installed", hint=missing.hint) from missing
        if isinstance(settings, EmbeddedSettings) and settings.ocr_language:
            ENGINES.get(EMBEDDED).check_language(settings.ocr_language)
    if engine not in (*MODELS, HYBRID):  # unsupported settings fail here, not after planning or reading
        if isinstance(settings, ModelSettings):
            figure_labels(settings, engine)
        if isinstance(settings, DescribeGroup):
            ENGINES.get(engine).figure_reader(settings.describe_mode, settings.describe_prompt or "")
        if isinstance(settings, EmbeddedSettings) and settings.ocr_language:
            ENGINES.get(engine).check_language(settings.ocr_language)
    elif isinstance(settings, ModelSettings) and PLACE in (settings.prompt or "") and not settings.anchor_text:
        raise UsageError(
            f"`prompt` contains {PLACE}, but the text of the page is not in use",
            hint=f"Set the length of the text: `anchor_text=4000`. Or remove {PLACE} from the prompt.",
        )


def figure_labels(settings: ModelSettings, engine: str) -> frozenset[str] | None:
    """Return the labels of the blocks that an engine without a model crops. Raises `UsageError`.

    None means pictures and drawings.
    """
    if settings.figures_from == "model":
        raise UsageError(
            f"`figures_from=model`: {about(engine)} has no model",
            hint="Remove it to detect figures on the page, or use `figures_from=none`.",
        )
    if settings.figures_from == "none":
        return frozenset()
    unknown = [label for label in settings.crop if normal(label) not in _EMBEDDED_LABELS]
    if unknown and engine == EMBEDDED:
        raise UsageError(
            f"`crop={','.join(unknown)}`: the CPU engine does not detect such blocks",
            hint=f"Supported labels: {', '.join(sorted(_EMBEDDED_LABELS))}.",
        )
    return frozenset(settings.crop) or None


def _engine(settings: EngineSettings, command: str) -> str:
    chosen = settings.engine
    if command in ("plan", "retry-failed") or not isinstance(settings, ServingCommand):
        return chosen
    urls = settings.server_url
    if chosen == SERVER and not urls:
        raise UsageError("`engine=server` needs a server", hint="Set its URL: `server_url=http://HOST:PORT`")
    if urls and chosen not in (SERVER, HYBRID, UNDECIDED):
        raise UsageError(
            f"`server_url` has no effect with `engine={chosen}`",
            hint="Use `engine=server`, or remove `server_url`.",
        )
    if chosen not in (HYBRID, UNDECIDED):
        return chosen
    if urls:
        return SERVER
    if isinstance(settings, RaySettings) and settings.ray is not None:
        return VLLM  # on the cluster's nodes, whatever this machine has
    if vllm_installed(tuple(shlex.split(settings.vllm_command))) and gpus():
        return VLLM
    if chosen == HYBRID:
        raise UsageError(
            "`engine=hybrid` needs a model, and this machine has no vLLM with a GPU",
            hint="Set the URL of a server: `server_url=http://HOST:PORT`. Without a model: `engine=embedded`",
        )
    if command in ("run", "repair", "fields"):  # which `choose_engine` refuses for fields
        return EMBEDDED
    raise LlmOcrError(
        f"{command}: no engine is chosen, and this machine has no vLLM with a GPU",
        hint="Use `server_url=URL` for a running server, `engine=vllm` if vLLM is installed, or `engine=embedded` for "
        "the CPU engine (text layer and OCR, no GPU).",
    )
