"""Refuse system calls that workers never make (seccomp, Linux 3.17 and newer, no privilege needed)."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Sequence

from llm_ocr.sandbox.system_calls import ARCHITECTURES, call, machine, number

_NUMBERS = {"x86_64": 317, "aarch64": 277}  # of seccomp(2) itself
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

#: Calls on other processes, the kernel, and the machine. No kind of worker makes them.
KERNEL = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp"),
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "personality", "modify_ldt"),
    *("mount", "umount2", "move_mount", "mount_setattr", "open_tree", "open_tree_attr", "pivot_root", "chroot"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "unshare", "setns", "open_by_handle_at", "name_to_handle_at"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff"),
    *("acct", "quotactl", "syslog", "iopl", "ioperm", "sethostname", "setdomainname"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
)
#: Calls on sockets; `socket` itself depends on its family.
NETWORK = ("bind", "listen", "accept", "accept4")
#: Calls that change files or their metadata without opening them. Landlock does not cover owners, modes, and times.
ALTERING = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    *("utime", "utimes", "futimesat", "utimensat", "truncate", "creat", "mknod", "mknodat", "mkdir", "mkdirat"),
    *("rmdir", "unlink", "unlinkat", "link", "linkat", "symlink", "symlinkat", "rename", "renameat", "renameat2"),
    *("shmget", "shmat", "msgget", "semget", "mq_open", "connect", "sendto"),
)
STARTING = ("execve", "execveat")
#: Reported as nonexistent, so that libraries use the older call, whose arguments a filter can inspect.
_UNKNOWN = ("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register")
#: CLONE_NEWTIME, -NS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET (linux/sched.h).
_NEW_NAMESPACES = 0x80 | 0x20000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC

_Instruction = tuple[int, int, int, int]  # code, instructions to skip if true, if false, operand
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(refused: Iterable[str], *, families: Sequence[int] = (), writing: bool) -> bool:
    """Let the kernel refuse the named calls (EPERM), permanently, for all threads and future children of this process.

    Needs PR_SET_NO_NEW_PRIVS.

    Args:
        refused: names of the calls.
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
    program: list[_Instruction] = [
        (_LOAD, 0, 0, 4),  # the architecture: a 32-bit call has other numbers
        (_EQUAL, 1, 0, ARCHITECTURES[architecture]),
        _answer(errno.EPERM),
        (_LOAD, 0, 0, 0),  # the number
        (_AT_LEAST, 0, 1, 0x40000000),  # x32's numbers
        _answer(errno.EPERM),
    ]
    rules: list[tuple[str, list[_Instruction]]] = [(name, [_answer(errno.EPERM)]) for name in refused]
    rules += [(name, [_answer(errno.ENOSYS)]) for name in _UNKNOWN]
    rules += [("clone", _without_bits(0, _NEW_NAMESPACES)), ("socket", _any_of(0, families))]
    rules += [("prlimit64", _any_of(0, (0,)))]  # 0 is this process; it may not change the limits of others
    if not writing:
        rules += [("open", _without_bits(1, _WRITING)), ("openat", _without_bits(2, _WRITING))]
    for name, answer in rules:
        nr = number(name, architecture)
        if nr is not None:
            program += [(_EQUAL, 0, len(answer), nr), *answer]
    program.append(_answer(0))
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    pointer = ctypes.byref(_Program(len(program), code))
    # With this flag, the call returns the id of a thread that cannot be included, which is positive.
    stuck = call(_NUMBERS[architecture], ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_ALL_THREADS), pointer)
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
