"""A share that can be made sick: ``python -m tests.machines.sick_share SHARE SWITCH COMMAND…``.

Runs COMMAND in a mount namespace of its own, in which a file system of ours lies over SHARE and passes each call on to
what is there outside. While the file SWITCH holds the name of an error, such as ``EIO``, every call fails with it.
While it holds ``HANGS``, no call returns.
"""

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from mfusepy import FUSE, Operations

HANGS: Final = "HANGS"
_R = TypeVar("_R")
_CLONE_NEWNS: Final = 0x20000
_MS_REC_PRIVATE: Final = 0x44000
_STAT: Final = ("atime_ns", "mtime_ns", "ctime_ns", "mode", "nlink", "size", "uid", "gid")
_STATFS: Final = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "frsize")


def _meets(call: Callable[..., _R]) -> Callable[..., _R]:
    """Have *call* meet the fault of the moment first."""

    @wraps(call)  # of some calls the library counts the arguments
    def met(self: "SickShare", *args: Any) -> _R:
        while (fault := self.switch.read_text()) == HANGS:
            time.sleep(0.05)
        if fault:
            raise OSError(getattr(errno, fault), os.strerror(getattr(errno, fault)))
        return call(self, *args)

    return met


class SickShare(Operations):  # type: ignore[misc]
    """Passes calls on to the files below *root*; open files are known by their descriptors."""

    use_ns = True

    def __init__(self, root: str, switch: Path) -> None:
        self.root, self.switch = root, switch

    @_meets
    def getattr(self, path: str, file: int | None = None) -> dict[str, int]:
        found = os.lstat(self.root + path) if file is None else os.fstat(file)
        return {f"st_{name}".removesuffix("_ns"): getattr(found, f"st_{name}") for name in _STAT}

    @_meets
    def readdir(self, path: str, _: int) -> Iterable[str]:
        return [".", "..", *os.listdir(self.root + path)]

    @_meets
    def readlink(self, path: str) -> str:
        return os.readlink(self.root + path)

    @_meets
    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self.root + path, mode)

    @_meets
    def rmdir(self, path: str) -> None:
        os.rmdir(self.root + path)

    @_meets
    def unlink(self, path: str) -> None:
        os.unlink(self.root + path)

    @_meets
    def rename(self, old: str, new: str) -> None:
        os.rename(self.root + old, self.root + new)

    @_meets
    def link(self, new: str, old: str) -> None:
        os.link(self.root + old, self.root + new)

    @_meets
    def symlink(self, new: str, to: str) -> None:
        os.symlink(to, self.root + new)

    @_meets
    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.root + path, mode)

    @_meets
    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        os.utime(self.root + path, ns=times, follow_symlinks=False)

    @_meets
    def truncate(self, path: str, length: int, file: int | None = None) -> None:
        os.truncate(self.root + path if file is None else file, length)

    @_meets
    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self.root + path)
        return {f"f_{name}": getattr(found, f"f_{name}") for name in _STATFS}

    @_meets
    def open(self, path: str, flags: int) -> int:
        return os.open(self.root + path, flags)

    @_meets
    def create(self, path: str, mode: int) -> int:
        return os.open(self.root + path, os.O_RDWR | os.O_CREAT, mode)

    @_meets
    def read(self, _: str, size: int, offset: int, file: int) -> bytes:
        return os.pread(file, size, offset)

    @_meets
    def write(self, _: str, content: bytes, offset: int, file: int) -> int:
        return os.pwrite(file, content, offset)

    @_meets
    def fsync(self, _: str, __: int, file: int) -> None:
        os.fsync(file)

    def release(self, _: str, file: int) -> None:
        os.close(file)


def main(arguments: Sequence[str]) -> None:
    """Become the command, with a child that serves the share."""
    share, switch, *command = arguments
    device = os.open("/dev/fuse", os.O_RDWR)
    mounted, is_mounted = os.pipe()
    if os.fork() == 0:  # it stays where the share is seen as it is
        os.close(is_mounted)
        if os.read(mounted, 1):
            fresh = dict.fromkeys(("attr_timeout", "entry_timeout", "negative_timeout"), 0)
            FUSE(SickShare(share, Path(switch)), f"/dev/fd/{device}", foreground=True, **fresh)
        os._exit(0)
    _mount(device, share)
    os.write(is_mounted, b"x")
    os.execvp(command[0], command)


def _mount(device: int, share: str) -> None:
    """Mount what *device* serves over *share*, in a namespace of this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions".encode()
    if (
        libc.unshare(_CLONE_NEWNS)
        or libc.mount(None, b"/", None, _MS_REC_PRIVATE, None)
        or libc.mount(b"sick", share.encode(), b"fuse", 0, options)
    ):
        raise OSError(ctypes.get_errno(), f"{share}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(sys.argv[1:])
