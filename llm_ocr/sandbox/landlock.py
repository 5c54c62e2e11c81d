"""Restrict this process's file system access with Landlock (Linux 5.13 and newer, no privilege needed).

Source of all numbers: include/uapi/linux/landlock.h; Documentation/userspace-api/landlock.rst for versions.
"""

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Mapping

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_VERSION = 1  # flag of the first call: returns the version
_PATH_BENEATH = 1

EXECUTE = 1 << 0
READ_FILE = 1 << 2
READ_DIR = 1 << 3
READ = READ_FILE | READ_DIR
_WRITE_FILE, _TRUNCATE, _IOCTL_DEV = 1 << 1, 1 << 14, 1 << 15
_OF_FILES = EXECUTE | _WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
#: Rights of files by version: 1 has 13, 2 adds moves between folders, 3 truncation, 5 ioctl of devices.
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEV}
_TCP = 0b11  # bind and connect, since version 4
_SCOPES = 0b11  # no abstract sockets and signals to outside processes, since version 6


def call(number: int, *arguments: object) -> int:
    """Make a system call, for which the C library may have no function.

    Raises:
        OSError: the kernel returned an error.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    result = int(library.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def version() -> int:
    """Return the kernel's version of Landlock; 0 for none (older, disabled, or hidden by a container)."""
    try:
        return call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return 0


def restrict(allowed: Mapping[str, int]) -> int:
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
    offered = version()
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
