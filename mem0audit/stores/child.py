"""A function run in a child process of our own: a fork, and its answer through a pipe.

For what this process cannot do itself: look out of another root directory, decode on a second processor. The
child only reads, needs no further imports, writes no file, and ends without running anything of its parent's.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

_PROGRESS: Final = "rich.live"
"""Where the class of a progress bar's thread is from: the only thread beside this one that a fork is made with."""


def possible() -> bool:
    """Whether there is a second processor, and this process can be forked: not where an agent may run in it, that is
    where there are other threads than a progress bar's."""
    try:
        return sys.platform == "linux" and processors() > 1 and _alone()
    except OSError:
        return False


def is_large(path: str, size_bytes: int) -> bool:
    """Whether there is a file of so many bytes, or more."""
    try:
        return Path(path).stat().st_size >= size_bytes
    except (OSError, ValueError):
        return False


def worthwhile(path: str, size_bytes: int) -> bool:
    """Whether a SQLite file is that large, and a child can read it.

    It cannot where the file is open here already: SQLite in the child would take the parent's locks for its own, and
    wait for ever for one that is given back in the parent only, or read with none.
    """
    try:
        return is_large(path, size_bytes) and possible() and not _is_open_here(path)
    except (OSError, ValueError):
        return False


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _alone() -> bool:
    """Whether this thread is the only one, but for progress bars."""
    bars = [thread for thread in threading.enumerate() if type(thread).__module__ == _PROGRESS]
    return len(_tasks()) <= 1 + len(bars)


def _tasks() -> list[str]:
    """Every thread of this process, those of native libraries too. Raises OSError."""
    return os.listdir("/proc/self/task")  # noqa: PTH208


def _is_open_here(path: str) -> bool:
    """Whether a descriptor of this process is of that file. Raises OSError."""
    wanted = Path(path).stat()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found = os.fstat(int(name))
        except OSError:  # closed meanwhile, as the one that listed them
            continue
        if os.path.samestat(found, wanted):
            return True
    return False


def packed(kept: list[Any]) -> tuple[Any, list[Any]]:
    """Named tuples of one class as that class and a tuple for each field, which cross the pipe in a third of the time;
    None and the same list where they are something else."""
    classes = set(map(type, kept))
    if len(classes) == 1:
        (one,) = classes
        if one.__bases__ == (tuple,) and hasattr(one, "_make"):
            return one, list(zip(*kept, strict=True))
    return None, kept


def unpacked(made_of: Any, kept: list[Any]) -> list[Any]:
    """What `packed` was given."""
    if made_of is None:
        return kept
    return list(map(tuple.__new__, repeat(made_of), zip(*kept, strict=True)))


class ChildFailed(Exception):
    """The child ended without an answer, or with an error that it could not hand over; its kind is the text."""


class Child(Generic[T]):
    """One running child. `tell` hands it a value that its function waits for, `result` waits for its answer,
    `stop` ends it; one of the last two must be called."""

    def __init__(
        self, function: Callable[[Callable[[], Any]], T], hand_over: tuple[type[Exception], ...]
    ) -> None:
        self._pid, self._pipe = _start(function, hand_over)

    def tell(self, value: Any) -> None:
        """Sends what the function's argument returns when called. Raises OSError where the child is gone."""
        self._pipe.send(value)

    def result(self) -> T:
        """What the function returned, or raises what it raised: a kind named in `hand_over`, else ChildFailed."""
        try:
            # no point of a store: what our own child pickled, through a pipe that nobody else has
            ok, value = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise ChildFailed("the child ended") from None
        finally:
            self.stop()
        if ok:
            answer: T = value
            return answer
        if isinstance(value, Exception):
            raise value
        raise ChildFailed(value)

    def stop(self) -> None:
        """Ends the child, whatever it does; nothing where it has ended."""
        self._pipe.close()
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _leave_no_core() -> None:
    """What the kernel would keep of this process if it ended it holds memory text: neither written (no room for a
    page) nor piped to a collector (Linux gives those everything, except where the limit is 1)."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))


def _start(
    function: Callable[[Callable[[], Any]], T], hand_over: tuple[type[Exception], ...]
) -> tuple[int, Connection[Any, Any]]:
    from multiprocessing import Pipe  # takes longer to load than a small store to read

    ours, theirs = Pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads (a progress bar is one): the child only reads and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    status = 1
    try:
        ours.close()
        _leave_no_core()
        try:
            answer: tuple[bool, Any] = (True, function(theirs.recv))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent says it
            answer = (False, error if isinstance(error, hand_over) else type(error).__name__)
        theirs.send_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
        theirs.close()
        status = 0
    finally:
        os._exit(status)
