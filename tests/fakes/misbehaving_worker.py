"""Worker with the behavior that bad documents cause; for tests of the pool."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llm_ocr.errors import PageFailure
from llm_ocr.sandbox.worker import serve
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
    return {"environment": sorted(os.environ)}


def _print(payload: Mapping[str, Any]) -> dict[str, Any]:
    os.write(1, b"a native library prints to standard output\n")
    return {}


def _read_file(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the beginning of the file in the request."""
    return {"begin": os.pread(payload["file"], 8, 0), "number": payload["file"]}


#: Attempts of a document that controls its worker, by name; each raises OSError if refused.
_ATTACKS: dict[str, Callable[[str], object]] = {
    "connect": lambda target: socket.create_connection(("127.0.0.1", int(target)), timeout=5),
    "resolve": lambda target: socket.getaddrinfo(target, 80),
    "unix socket": lambda target: socket.socket(socket.AF_UNIX).connect(target),
    "packet": lambda target: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(target))),
    "read": lambda target: Path(target).read_bytes(),
    "list": os.listdir,
    "write": lambda target: Path(target).write_bytes(b"x"),
    "fill": lambda target: _fill(*json.loads(target)),
    "append": lambda target: Path(target).open("ab").close(),
    "remove": os.unlink,
    "rename": lambda target: Path(target).rename(f"{target}.moved"),
    "make folder": os.mkdir,
    "link": lambda target: Path(target).symlink_to("/etc/passwd"),
    "change mode": lambda target: os.chmod(target, 0o777),  # noqa: PTH101 - as an attacker would
    "change times": os.utime,
    "start": lambda target: subprocess.run([target], check=True),
    "signal": lambda target: os.kill(int(target), signal.SIGUSR1),
    "memory": lambda target: Path(f"/proc/{target}/mem").open("rb").close(),
    "environment": lambda target: Path(f"/proc/{target}/environ").read_bytes(),
    "own file again": lambda target: Path(f"/proc/self/fd/{target}").write_bytes(b"x"),
    "trace": lambda target: _call(101 if os.uname().machine == "x86_64" else 117, 16, int(target)),  # PTRACE_ATTACH
    "namespace": lambda target: _call(272 if os.uname().machine == "x86_64" else 97, 0x10000000),  # CLONE_NEWUSER
    "ring": lambda target: _call(425, 4, ctypes.create_string_buffer(256)),  # io_uring_setup
}


def _call(number: int, *arguments: object) -> None:
    if ctypes.CDLL(None, use_errno=True).syscall(number, *arguments, 0, 0) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _fill(file: str, size: int) -> None:
    with Path(file).open("wb", buffering=0) as out:
        out.write(bytes(size))
        out.write(b"x" * (size - out.tell()))  # the write that the limit cut off is refused now


def _attack(payload: Mapping[str, Any]) -> dict[str, Any]:
    try:
        _ATTACKS[payload["how"]](payload["target"])
    except OSError as error:
        return {"refused": type(error).__name__}
    except subprocess.CalledProcessError as error:
        return {"refused": "", "code": error.returncode}
    return {"refused": ""}


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
            "read_file": _read_file,
            "attack": _attack,
            "open": lambda payload: {"pages": "many"},
            "open_all": lambda payload: {"opened": ["many"]},
        }
    )
