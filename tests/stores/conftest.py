"""What several of these tests need."""

from __future__ import annotations

import sys
import threading

import pytest

from mem0audit.stores import child


@pytest.fixture
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numpy, which other tests import, starts native threads; a program that only audits has none."""
    if sys.platform == "linux":
        real = child._tasks
        native = len(real()) - threading.active_count()
        monkeypatch.setattr(child, "_tasks", lambda: real()[native:])
