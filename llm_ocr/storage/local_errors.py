"""From the operating system's errors to errors that say what to do."""

import contextlib
import errno
from collections.abc import Iterator

from llm_ocr.errors import ObjectNotFound, StorageError

_AGAIN = "What was published stays: run the same command again afterwards."
_MAY_NOT = "This user may not do that there: change the folder's permissions, or use another folder (-w FOLDER)."
_HINTS = {
    errno.ENOSPC: f"The disk is full. Free some space, or use a workspace on another disk. {_AGAIN}",
    errno.EDQUOT: f"The disk quota is used up. Free some space, or use a workspace on another disk. {_AGAIN}",
    errno.EROFS: "The file system is mounted read-only: use a workspace elsewhere (-w FOLDER).",
    errno.EACCES: _MAY_NOT,
    errno.EPERM: _MAY_NOT,
    errno.EFBIG: "The file would be larger than this process may write (ulimit -f) or the file system takes.",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n).",
    errno.ENAMETOOLONG: "The path is too long for this file system: use a workspace with a shorter path.",
    errno.ENOTDIR: "A file stands where a folder is needed: use another folder (-w FOLDER).",
    errno.EEXIST: "A file stands where a folder is needed: use another folder (-w FOLDER).",
    errno.EISDIR: "A folder stands where a file is needed: use another folder (-w FOLDER).",
    errno.EIO: "The disk or the network file system failed: check it, then run the same command again.",
    errno.ESTALE: "The network file system lost the file: run the same command again.",
}
_PASSING = frozenset({errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR, errno.EBUSY})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})

#: What `link` answers where there are no hard links: FAT, exFAT, object stores mounted as folders, some shares.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})

NO_LINKS_HINT = "Use a folder on another file system, or a bucket (-w s3://BUCKET/PREFIX, gs://… or hf://buckets/…)."
NO_LOCKS_HINT = "Units cannot be claimed here. Share them out beforehand: --shard-index I --shard-count N."


@contextlib.contextmanager
def translated(action: str, where: str, *, reading: bool = False) -> Iterator[None]:
    """Turn an OSError into a `StorageError` "cannot <action> <where>"; when `reading`, a missing file into its own."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        if reading and error.errno in _MISSING:
            raise ObjectNotFound(f"no object {where}") from error
        raise storage_error(error, action, where) from error


def storage_error(error: OSError, action: str, where: str) -> StorageError:
    """The error to raise for `error`, which came while doing `action` with `where`."""
    said = StorageError(f"cannot {action} {where}: {error.strerror or error}", hint=_HINTS.get(error.errno or 0, ""))
    said.errno = error.errno
    said.retryable = error.errno in _PASSING
    return said


def has_no_links(error: OSError) -> bool:
    """Whether `link` failed because the file system has no hard links."""
    return error.errno in _NO_LINKS
