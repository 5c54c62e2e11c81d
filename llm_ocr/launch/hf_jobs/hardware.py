"""The machines of Hugging Face Jobs."""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from llm_ocr.errors import LaunchError

#: Flavor -> GPUs, as huggingface_hub 2.4.0 lists them (`JobHardware`); what the Hub offers now is asked before a job.
GPUS: Mapping[str, int] = MappingProxyType(
    {
        **{"cpu-basic": 0, "cpu-upgrade": 0, "cpu-performance": 0, "cpu-xl": 0},
        **{"t4-small": 1, "t4-medium": 1, "l4x1": 1, "l4x4": 4, "l40sx1": 1, "l40sx4": 4, "l40sx8": 8},
        **{"a10g-small": 1, "a10g-large": 1, "a10g-largex2": 2, "a10g-largex4": 4},
        **{"a100-large": 1, "a100x4": 4, "a100x8": 8, "h200": 1, "h200x2": 2, "h200x4": 4, "h200x8": 8},
        **{"rtx-pro-6000": 1, "rtx-pro-6000x2": 2, "rtx-pro-6000x4": 4, "rtx-pro-6000x8": 8},
    }
)


def check_flavor(flavor: str, offered: Mapping[str, float | None]) -> None:
    """Raise `LaunchError` with the nearest names, and their prices, for one that the Hub does not offer."""
    if flavor in offered:
        return
    near = get_close_matches(flavor, offered, n=4, cutoff=0.4) or list(offered)
    shown = ", ".join(_shown(name, offered[name]) for name in near)
    raise LaunchError(
        f"Hugging Face Jobs has no hardware {flavor!r}", hint=f"Near: {shown}. All of them: hf jobs hardware"
    )


def _shown(name: str, price: float | None) -> str:
    return name if price is None else f"{name} (${price:.2f} an hour)"
