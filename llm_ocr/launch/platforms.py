"""Launchers by platform name. A launcher's module is imported on first use."""

from llm_ocr.launch import Launcher
from llm_ocr.plugins import PLATFORMS


def is_installed(platform: str) -> bool:
    """Return whether a platform is installed.

    Raises:
        UsageError: No platform is. The metadata of the library is missing, and running jobs must not count as ended.
    """
    if not PLATFORMS.names():
        PLATFORMS.get(platform)  # raises
    return platform in PLATFORMS.names()


def launcher_for(platform: str) -> Launcher:
    """Return the launcher of a platform, without a request.

    Raises:
        UsageError: The platform is unknown. The hint has a similar name, or all.
    """
    return PLATFORMS.get(platform)()
