"""What a worker gives up before it looks at a document: the network, files, other programs. Best effort, by the kernel.

Where a system offers less (old kernels, gVisor, macOS), what there is is taken, and the worker works on without the
rest: `llm-ocr doctor` says what is in force. `python -m llm_ocr.sandbox.confinement` tries it, and prints the same.
"""

import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.sandbox import landlock, seccomp

#: Where systems keep libraries, fonts and their configuration: read by all users, and without anybody's data.
_SYSTEM = (
    *("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share", "/nix/store", "/gnu/store"),
    *("/usr/local/lib", "/usr/local/lib64", "/usr/local/share/fonts", "/usr/X11R6/lib/X11/fonts"),
    *("/etc/fonts", "/var/cache/fontconfig", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/mime.types", "/etc/paper.config", "/etc/xpdf", "/etc/xpdfrc"),
    *("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/sys/vm", "/proc/sys/kernel/osrelease"),
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
)
#: Of a Python installation, and of that in which a program stands.
_LIBRARIES = ("lib", "lib64", "lib32")
_OF_PROGRAMS = (*_LIBRARIES, "etc/fonts", "share/poppler", "share/fonts", "share/fontconfig", "Cellar", "opt")


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a kind of worker keeps. `programs` it may start, by their names on the PATH; those not installed are none.

    `devices`: it uses a GPU, whose libraries write caches, start programs and use local sockets: it loses the network
    and the hold on other processes, not its files.
    """

    programs: tuple[str, ...] = ()
    devices: bool = False


@dataclass(frozen=True, slots=True)
class Protections:
    """What the kernel now enforces."""

    no_network: bool = False
    no_writing: bool = False
    no_reading: bool = False  # of files that are neither Python's nor the system's
    no_programs: bool = False  # but those named

    def named(self) -> dict[str, bool]:
        """Each by its words, for users."""
        return {
            "no network": self.no_network,
            "no file is written": self.no_writing,
            "only given files are read": self.no_reading,
            "no other program starts": self.no_programs,
        }


def confine(confinement: Confinement) -> Protections:
    """Give up, for good, what the worker does not need. Never raises: what the kernel refuses is not in force.

    Needs PR_SET_NO_NEW_PRIVS, and is to be called while there is one thread only: Landlock holds for the caller's.
    """
    if sys.platform != "linux":
        return Protections()
    landlocked, filtered = False, False
    programs = [found for name in confinement.programs if (found := shutil.which(name))]
    if not confinement.devices:
        with contextlib.suppress(OSError):
            landlocked = bool(landlock.restrict(_allowed(programs)))
    with contextlib.suppress(OSError):
        filtered = _filter(confinement, started=bool(programs))
    if confinement.devices:
        return Protections(no_network=filtered)
    return Protections(
        no_network=filtered,
        no_writing=filtered or landlocked,
        no_reading=landlocked,
        no_programs=landlocked or (filtered and not programs),
    )


def _filter(confinement: Confinement, *, started: bool) -> bool:
    if confinement.devices:
        return seccomp.install(seccomp.KERNEL, families=(socket.AF_UNIX, socket.AF_NETLINK), writing=True)
    refused = [*seccomp.KERNEL, *seccomp.NETWORK, *seccomp.ALTERING]
    return seccomp.install(refused if started else [*refused, *seccomp.STARTING], writing=False)


def _allowed(programs: Iterable[str]) -> dict[str, int]:
    """The rights that remain, by path."""
    allowed = dict.fromkeys((*_SYSTEM, *_python()), landlock.READ)
    for program in programs:
        real = Path(program).resolve()
        for prefix in {Path(program).absolute().parent.parent, real.parent.parent}:
            allowed |= {str(prefix / name): landlock.READ for name in _OF_PROGRAMS}
        allowed[str(real)] = landlock.READ_FILE | landlock.EXECUTE
        # The dynamic loader is executed, too.
        libraries = [path for path in allowed if Path(path).name in _LIBRARIES]
        allowed |= dict.fromkeys((*libraries, "/nix/store", "/gnu/store"), landlock.READ | landlock.EXECUTE)
    return allowed


def _python() -> Iterator[str]:
    """What Python imports from. Never the folder of the user's script as a whole: a key may lie beside it."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    covered = [f"{prefix.rstrip('/')}/{name}" for prefix in sorted(prefixes) for name in _LIBRARIES]
    yield from covered
    for entry in map(os.path.abspath, sys.path):
        if entry.startswith(tuple(f"{place}/" for place in covered)):
            continue
        if Path(entry).is_file() or _is_installation(Path(entry)):
            yield entry
        else:
            yield from _packages(Path(entry))


def _is_installation(folder: Path) -> bool:
    """Whether packages were installed into the folder, as `pip install --target` does."""
    return any((folder / name).is_dir() for name in ("PIL", "numpy", "pypdfium2"))


def _packages(folder: Path) -> Iterator[str]:
    """Of a folder of source code what this program is made of, and what has been imported from there."""
    for name in {"llm_ocr", *(module.partition(".")[0] for module in sys.modules)}:
        for path in (folder / name, folder / f"{name}.py"):
            if path.exists():
                yield str(path)


if __name__ == "__main__":
    from llm_ocr.sandbox.worker import give_up_privileges

    give_up_privileges()
    sys.stdout.write(json.dumps(confine(Confinement(programs=tuple(sys.argv[1:]))).named()))
