"""Launchers by platform name. A launcher's module is imported on first use."""

from llm_ocr.errors import UsageError
from llm_ocr.launch import Launcher
from llm_ocr.launch.refusals import near
from llm_ocr.plugins import PLATFORMS


def launcher_for(platform: str) -> Launcher:
    """Return the launcher of a platform, without a request.

    Raises:
        UsageError: The platform is unknown. The hint has a similar name, or all.
    """
    known = PLATFORMS.names()
    if known and platform not in known:
        hint = near(platform.replace("_", "-").lower(), known, f"Platforms: {', '.join(known)}", n=1, cutoff=0.75)
        raise UsageError(f"unknown platform {platform!r}", hint=hint)
    return PLATFORMS.get(platform)()
