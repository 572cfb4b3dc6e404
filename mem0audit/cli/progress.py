"""Progress on standard error: only on a terminal, only for what takes longer than a second."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mem0audit.cli.output import is_terminal
from mem0audit.report.escape import escape

Progress = Callable[[str, "int | None", "int | None"], None]
"""Called with (phase, done, total); None where a number is not known."""

_PATIENCE_S = 1.0


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress | None]:
    """A progress callback, or None where nobody would see it. The bar is gone when the work is done."""
    if quiet or not is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
        yield None
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.stop()


class _Bar:
    """Starts by a clock of its own: one phase alone, a big collection, can be what takes long."""

    def __init__(self) -> None:
        self._told: dict[str, Any] = {"description": "", "completed": 0, "total": None}
        self._live: Any = None
        self._task: Any = None
        self._ended = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(_PATIENCE_S, self._start)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, phase: str, done: int | None, total: int | None) -> None:
        self._told = {"description": escape(phase), "completed": done or 0, "total": total}
        if self._live is not None:
            self._live.update(self._task, **self._told)

    def _start(self) -> None:
        # rich takes some 0.15 s to import: only for somebody who is waiting anyway
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._ended:
                return
            live = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = live.add_task(**self._told)
            live.start()
            self._live = live

    def stop(self) -> None:
        """Takes the bar off the screen."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._live is not None:
                self._live.stop()
