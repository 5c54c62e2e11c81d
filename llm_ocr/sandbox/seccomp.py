"""Refuse system calls that workers never make (seccomp, Linux 3.17 and newer, no privilege needed)."""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Mapping, Sequence

#: Supported machines: the name for a filter (AUDIT_ARCH_* of linux/audit.h), and the number of seccomp(2) itself.
_ARCHITECTURES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

# Numbers of the calls on x86-64 and arm64: asm/unistd_64.h and asm-generic/unistd.h of Linux 6.12; None if there is no
# such call.
Calls = Mapping[str, tuple[int | None, int | None]]

#: Calls on other processes, the kernel, and the machine. No kind of worker makes them.
KERNEL: Calls = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}
#: Calls on sockets; `socket` itself depends on its family.
NETWORK: Calls = {
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
}
#: Calls that change files or their metadata without opening them. Landlock does not cover owners, modes, and times.
ALTERING: Calls = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "truncate": (76, 45),
    "creat": (85, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "connect": (42, 203),
    "sendto": (44, 206),
}
STARTING: Calls = {
    "execve": (59, 221),
    "execveat": (322, 281),
}
#: Reported as nonexistent, so that libraries use the older call, whose arguments a filter can inspect.
UNKNOWN: Calls = {
    "clone3": (435, 435),
    "openat2": (437, 437),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
#: Permitted or refused by their arguments.
INSPECTED: Calls = {
    "clone": (56, 220),
    "open": (2, None),
    "openat": (257, 56),
    "prlimit64": (302, 261),
    "socket": (41, 198),
}
#: CLONE_NEWTIME, -NS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET (linux/sched.h).
_NEW_NAMESPACES = 0x80 | 0x20000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC

_Instruction = tuple[int, int, int, int]  # code, instructions to skip if true, if false, operand
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


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


def machine() -> str:
    """Return this process's architecture, `x86_64` or `aarch64`; empty if it is not supported."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:  # 32-bit programs have other numbers
        return ""
    name = os.uname().machine
    return name if name in _ARCHITECTURES else ""


def install(*refused: Calls, families: Sequence[int] = (), writing: bool) -> bool:
    """Let the kernel refuse calls (EPERM), permanently, for all threads and future children of this process.

    Needs PR_SET_NO_NEW_PRIVS.

    Args:
        refused: the calls.
        families: address families of permitted sockets.
        writing: permit opening files for writing.

    Returns:
        False if this is not Linux on x86-64 or arm64.

    Raises:
        OSError: the kernel refuses.
    """
    architecture = machine()
    if not architecture:
        return False
    audit_name, seccomp = _ARCHITECTURES[architecture]
    program: list[_Instruction] = [
        (_LOAD, 0, 0, 4),  # the architecture: a 32-bit call has other numbers
        (_EQUAL, 1, 0, audit_name),
        _answer(errno.EPERM),
        (_LOAD, 0, 0, 0),  # the number
        (_AT_LEAST, 0, 1, 0x40000000),  # x32's numbers
        _answer(errno.EPERM),
    ]
    answers = {
        "clone": _without_bits(0, _NEW_NAMESPACES),
        "socket": _any_of(0, families),
        "prlimit64": _any_of(0, (0,)),  # 0 is this process; it may not change the limits of others
        "open": [_answer(0)] if writing else _without_bits(1, _WRITING),
        "openat": [_answer(0)] if writing else _without_bits(2, _WRITING),
    }
    rules = [(numbers, [_answer(errno.EPERM)]) for calls in refused for numbers in calls.values()]
    rules += [(numbers, [_answer(errno.ENOSYS)]) for numbers in UNKNOWN.values()]
    rules += [(numbers, answers[name]) for name, numbers in INSPECTED.items()]
    for numbers, answer in rules:
        number = numbers[0 if architecture == "x86_64" else 1]
        if number is not None:
            program += [(_EQUAL, 0, len(answer), number), *answer]
    program.append(_answer(0))
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    pointer = ctypes.byref(_Program(len(program), code))
    # With this flag, the call returns the id of a thread that cannot be included, which is positive.
    stuck = call(seccomp, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_ALL_THREADS), pointer)
    if stuck:
        raise OSError(errno.ESRCH, f"thread {stuck} has a filter of its own")
    return True


def _answer(code: int) -> _Instruction:
    return _RETURN, 0, 0, _ERRNO | code if code else _ALLOW


def _argument(index: int) -> _Instruction:
    """Load the lower half of an argument: both architectures are little-endian, and the flags fit into it."""
    return _LOAD, 0, 0, 16 + 8 * index


def _without_bits(index: int, bits: int) -> list[_Instruction]:
    return [_argument(index), (_ANY_BIT, 0, 1, bits), _answer(errno.EPERM), _answer(0)]


def _any_of(index: int, values: Sequence[int]) -> list[_Instruction]:
    allowed = [step for value in values for step in ((_EQUAL, 0, 1, value), _answer(0))]
    return [_argument(index), *allowed, _answer(errno.EPERM)]
