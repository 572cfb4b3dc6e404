"""Reading what lies under another process's root: a private /tmp, a container's layer.

Such a store is seen from here as `/proc/PID/root/…`. Plain file reads through that path are right; SQLite
is not: it resolves the link itself (as "/") and opens our own file of that name, without an error
(SQLite 3.40). So the reading is done by a child whose root directory is the other one.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing import Pipe
from typing import TypeVar

from mem0audit.core.errors import Mem0auditError

T = TypeVar("T")


def in_root(root: str, function: Callable[[], T]) -> T:
    """What `function` returns in a child whose root directory is `root` (`/proc/PID/root`).

    It must only read, and need no further imports. Raises OSError where the root cannot be entered (it
    needs root rights), the Mem0auditError that `function` raised, and RuntimeError where the child failed.
    """
    receiving, sending = Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads (a progress bar is one): the child only reads and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            receiving.close()
            try:
                os.chroot(root)
                os.chdir("/")
                # No scratch copies: they would be written into the other root.
                tempfile.tempdir = "/proc/self/no-scratch-here"
                sending.send((True, function()))
            except Exception as error:  # noqa: BLE001 - whatever it is, the parent says it
                told = isinstance(error, (OSError, Mem0auditError))
                sending.send((False, error if told else type(error).__name__))
            sending.close()
            status = 0
        finally:
            os._exit(status)
    sending.close()
    try:
        ok, value = receiving.recv()
    except EOFError:
        ok, value = False, "the child ended"
    finally:
        receiving.close()
        os.waitpid(child, 0)
    if ok:
        result: T = value
        return result
    if isinstance(value, (OSError, Mem0auditError)):
        raise value
    raise RuntimeError(value)
