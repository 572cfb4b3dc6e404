"""Progress on standard error: only on a terminal, only for what takes longer than a second."""

from __future__ import annotations

import os
import sys
import time
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
    def __init__(self) -> None:
        self._since = time.monotonic()
        self._live: Any = None
        self._task: Any = None

    def __call__(self, phase: str, done: int | None, total: int | None) -> None:
        if self._live is None:
            if time.monotonic() - self._since < _PATIENCE_S:
                return
            self._start()
        self._live.update(self._task, description=escape(phase), completed=done or 0, total=total)

    def _start(self) -> None:
        # rich takes some 0.15 s to import: only for somebody who is waiting anyway
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._live = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._live.add_task("", total=None)
        self._live.start()

    def stop(self) -> None:
        """Takes the bar off the screen."""
        if self._live is not None:
            self._live.stop()
