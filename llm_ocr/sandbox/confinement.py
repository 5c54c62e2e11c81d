"""Confinement of a worker: the kernel takes away network, files, and other programs before a document is read.

Confinement is best effort. Systems with fewer features (old kernels, gVisor, macOS) enforce a part of it, and the
worker continues: `llm-ocr doctor` shows the enforced part. `python -m llm_ocr.sandbox.confinement` tests it and prints
the result. Landlock (Linux 5.13 and newer) restricts files, `seccomp` system calls; neither needs a privilege.
"""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.sandbox import seccomp
from llm_ocr.sandbox.seccomp import call

#: Folders with the system's libraries, fonts, and configuration: readable by all users, without user data.
_SYSTEM = (
    *("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share", "/nix/store", "/gnu/store"),
    *("/usr/local/lib", "/usr/local/lib64", "/usr/local/share/fonts", "/usr/X11R6/lib/X11/fonts"),
    *("/etc/fonts", "/var/cache/fontconfig", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/mime.types", "/etc/paper.config", "/etc/xpdf", "/etc/xpdfrc"),
    *("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/sys/vm", "/proc/sys/kernel/osrelease"),
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
)
#: Folders of a Python installation, and of the installation of a program.
_LIBRARIES = ("lib", "lib64", "lib32")
_OF_PROGRAMS = (*_LIBRARIES, "etc/fonts", "share/poppler", "share/fonts", "share/fontconfig", "Cellar", "opt")


@dataclass(frozen=True, slots=True)
class Confinement:
    """Rights that a kind of worker keeps. `programs` are names on the PATH that it may start, if installed.

    `devices`: the worker uses a GPU, whose libraries write caches, start programs, and use local sockets. It loses the
    network and access to other processes, but keeps its files.
    """

    programs: tuple[str, ...] = ()
    devices: bool = False


#: Restrictions by their description for users: `only given files are read` excepts those of Python and of the system.
PROMISES = ("no network", "no file is written", "only given files are read", "no other program starts")


def give_up_privileges() -> None:
    """Prevent started programs from gaining privileges (Linux), which the kernel requires for confinement."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def confine(confinement: Confinement) -> dict[str, bool]:
    """Drop all rights that the worker does not need, permanently. Never raises: refused restrictions are not enforced.

    Needs PR_SET_NO_NEW_PRIVS. Call it while there is a single thread: Landlock restricts the calling thread.

    Returns:
        Whether the kernel enforces each of `PROMISES` now.
    """
    landlocked, filtered = False, False
    programs = [found for name in confinement.programs if (found := shutil.which(name))]
    if sys.platform == "linux" and not confinement.devices:
        with contextlib.suppress(OSError):
            landlocked = bool(_restrict_files(_allowed(programs)))
    with contextlib.suppress(OSError):
        if confinement.devices:
            filtered = seccomp.install(seccomp.KERNEL, families=(socket.AF_UNIX, socket.AF_NETLINK), writing=True)
        else:
            starting = {} if programs else seccomp.STARTING
            filtered = seccomp.install(seccomp.KERNEL, seccomp.NETWORK, seccomp.ALTERING, starting, writing=False)
    whole = filtered and not confinement.devices
    enforced = filtered, whole or landlocked, landlocked, landlocked or (whole and not programs)
    return dict(zip(PROMISES, enforced, strict=True))


def _allowed(programs: Iterable[str]) -> dict[str, int]:
    """Return the remaining rights by path."""
    allowed = dict.fromkeys((*_SYSTEM, *_python()), _READ)
    for program in programs:
        real = Path(program).resolve()
        for prefix in {Path(program).absolute().parent.parent, real.parent.parent}:
            allowed |= {str(prefix / name): _READ for name in _OF_PROGRAMS}
        allowed[str(real)] = _READ_FILE | _EXECUTE
        # The dynamic loader is executed, too.
        libraries = [path for path in allowed if Path(path).name in _LIBRARIES]
        allowed |= dict.fromkeys((*libraries, "/nix/store", "/gnu/store"), _READ | _EXECUTE)
    return allowed


def _python() -> Iterator[str]:
    """Yield the paths that Python imports from, without the whole folder of the user's script: it may hold a secret."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    covered = [f"{prefix.rstrip('/')}/{name}" for prefix in sorted(prefixes) for name in _LIBRARIES]
    yield from covered
    modules = {"llm_ocr", *(module.partition(".")[0] for module in sys.modules)}
    for entry in map(os.path.abspath, sys.path):
        folder = Path(entry)
        if entry.startswith(tuple(f"{place}/" for place in covered)):
            continue
        # `pip install --target` makes a folder that only has installed packages.
        if folder.is_file() or any((folder / name).is_dir() for name in ("PIL", "numpy", "pypdfium2")):
            yield entry
            continue
        # A folder of source code: this program's files, and the modules imported from the folder.
        paths = (path for name in modules for path in (folder / name, folder / f"{name}.py"))
        yield from (str(path) for path in paths if path.exists())


# Landlock. Source of all numbers: include/uapi/linux/landlock.h; Documentation/userspace-api/landlock.rst for versions.


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_VERSION = 1  # flag of the first call: returns the version
_PATH_BENEATH = 1

_EXECUTE = 1 << 0
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_READ = _READ_FILE | _READ_DIR
_WRITE_FILE, _TRUNCATE, _IOCTL_DEV = 1 << 1, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
#: Rights of files by version: 1 has 13, 2 adds moves between folders, 3 truncation, 5 ioctl of devices.
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEV}
_TCP = 0b11  # bind and connect, since version 4
_SCOPES = 0b11  # no abstract sockets and signals to outside processes, since version 6


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 for none (older, disabled, or hidden by a container)."""
    try:
        return call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return 0


def _restrict_files(allowed: Mapping[str, int]) -> int:
    """Restrict the file system to `allowed`, permanently. Also forbids TCP and signals to outside processes.

    Open files stay open. The restriction covers this thread, and threads and processes that it starts later. Needs
    PR_SET_NO_NEW_PRIVS.

    Args:
        allowed: rights by path; the rights of a folder include everything below it.

    Returns:
        The version of Landlock; 0 if it is not available.

    Raises:
        OSError: the kernel refuses.
    """
    offered = landlock_version()
    if not offered:
        return 0
    handled = sum(rights for since, rights in _RIGHTS.items() if since <= offered)
    attributes = [handled, _TCP, _SCOPES][: 1 + (offered >= 4) + (offered >= 6)]
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    ruleset = call(_CREATE_RULESET, ctypes.c_char_p(packed), ctypes.c_size_t(len(packed)), ctypes.c_uint32(0))
    try:
        for path, rights in allowed.items():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # unreadable anyway
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    folder = stat.S_ISDIR(os.fstat(place).st_mode)
                    granted = rights & handled & (-1 if folder else _OF_FILES)
                    rule = ctypes.c_char_p(struct.pack("=Qi", granted, place))
                    call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
                finally:
                    os.close(place)
        call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return offered


if __name__ == "__main__":
    give_up_privileges()
    sys.stdout.write(json.dumps(confine(Confinement(programs=tuple(sys.argv[1:])))))
