"""A worker that does what bad documents make workers do; for tests of the pool."""

import os
import time
from collections.abc import Mapping
from typing import Any

from llm_ocr.errors import PageFailure
from llm_ocr.processes.worker import serve
from llm_ocr.types import Reason


def _echo(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"got": payload["value"], "process": os.getpid()}


def _hang(payload: Mapping[str, Any]) -> dict[str, Any]:
    time.sleep(payload["seconds"])
    return {}


def _eat(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"eaten": len(bytearray(payload["bytes"]))}


def _die(payload: Mapping[str, Any]) -> dict[str, Any]:
    os._exit(payload["code"])


def _refuse(payload: Mapping[str, Any]) -> dict[str, Any]:
    raise PageFailure(Reason.UNREADABLE, payload["detail"])


def _raise(payload: Mapping[str, Any]) -> dict[str, Any]:
    raise KeyError(payload["key"])


def _names(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"environment": sorted(os.environ)}  # noqa: TID251 - shows what a worker sees


def _print(payload: Mapping[str, Any]) -> dict[str, Any]:
    os.write(1, b"a native library prints to standard output\n")
    return {}


if __name__ == "__main__":
    serve(
        {
            "echo": _echo,
            "hang": _hang,
            "eat": _eat,
            "die": _die,
            "refuse": _refuse,
            "raise": _raise,
            "names": _names,
            "print": _print,
        }
    )
