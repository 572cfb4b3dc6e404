"""Reading what lies under another process's root: a private /tmp, a container's layer.

Such a store is seen from here as `/proc/PID/root/…`. Plain file reads through that path are right; SQLite
is not: it resolves the link itself (as "/") and opens our own file of that name, without an error
(SQLite 3.40). So the reading is done by a child whose root directory is the other one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

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
