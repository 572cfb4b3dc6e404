"""Reading what lies under another process's root: a private /tmp, a container's layer.

Such a store is seen from here as `/proc/PID/root/…`. Plain file reads through that path are right; SQLite
is not: it resolves the link itself (as "/") and opens our own file of that name, without an error
(SQLite 3.40). So the reading is done by a child whose root directory is the other one; what must be copied out
is mounted here, for this process alone (Linux 5.2 and later).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from mem0audit.core.errors import Mem0auditError
from mem0audit.stores.child import Child

T = TypeVar("T")


def in_root(root: str, function: Callable[[], T]) -> T:
    """What `function` returns in a child whose root directory is `root` (`/proc/PID/root`).

    It must only read, and need no further imports. Raises OSError where the root cannot be entered (it
    needs root rights), the Mem0auditError that `function` raised, and ChildFailed where the child failed.
    """

    def inside(_receive: Callable[[], Any]) -> T:
        os.chroot(root)
        os.chdir("/")
        # No scratch copies: they would be written into the other root.
        tempfile.tempdir = "/proc/self/no-scratch-here"
        return function()

    return Child(inside, (OSError, Mem0auditError)).result()


# --- Mounted here ----------------------------------------------------------------------------------

# Numbers of the kernel's, the same on every architecture (include/uapi/linux: sched.h, mount.h, fcntl.h).
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_NEW_MOUNTS: Final = 0x0002_0000
_CLONE_WHOLE: Final = 0x1 | 0x8000 | 0x1000  # OPEN_TREE_CLONE, AT_RECURSIVE, AT_EMPTY_PATH
_FROM_DESCRIPTOR: Final = 0x4
_PRIVATE_WHOLE: Final = 0x4000 | 0x4_0000


@contextmanager
def mounted_here(folders: Sequence[tuple[str, str]]) -> Iterator[None]:
    """While this lasts, each folder seen as `/proc/PID/root/…` is mounted on an empty folder of ours: pairs
    (that path, ours).

    For this thread alone, in a mount namespace of its own: nobody else sees it, and a kill leaves nothing behind.
    Raises OSError where that may not be done (it needs root rights).
    """
    import ctypes  # few need it, and it takes a while

    libc = ctypes.CDLL(None, use_errno=True)
    trees = [(_tree(libc, theirs), ours) for theirs, ours in folders]
    before = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    where = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _checked(libc.unshare(_NEW_MOUNTS))
        try:
            _checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE_WHOLE), None))
            for tree, ours in trees:
                to = os.fsencode(ours)
                here = ctypes.c_int(-100)  # AT_FDCWD
                _checked(
                    libc.syscall(
                        _MOVE_MOUNT, ctypes.c_int(tree), b"", here, to, ctypes.c_uint(_FROM_DESCRIPTOR)
                    )
                )
            yield
        finally:
            _checked(libc.setns(ctypes.c_int(before), _NEW_MOUNTS))
            os.fchdir(where)
    finally:
        for descriptor in (before, where, *(tree for tree, _ in trees)):
            os.close(descriptor)


def _tree(libc: Any, path: str) -> int:
    """A descriptor of a copy of the mounts at and below a folder seen as `/proc/PID/root/…`. Only a process in the
    same mount namespace may copy one: a child goes there and hands it over."""
    import ctypes
    import socket

    root = path.split("/root", 1)[0]
    ours, theirs = socket.socketpair()
    try:

        def inside(_receive: Callable[[], Any]) -> None:
            folder = os.open(f"{path}/.", os.O_PATH | os.O_CLOEXEC)  # the root is itself a link
            mounts = os.open(f"{root}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            _checked(libc.setns(ctypes.c_int(mounts), _NEW_MOUNTS))
            tree = libc.syscall(_OPEN_TREE, ctypes.c_int(folder), b"", ctypes.c_uint(_CLONE_WHOLE))
            socket.send_fds(theirs, [b"."], [_checked(tree)])

        Child(inside, (OSError,)).result()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_DONTWAIT)
        return descriptors[0]
    finally:
        ours.close()
        theirs.close()


def _checked(result: int) -> int:
    """What a system call returned. Raises OSError."""
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
