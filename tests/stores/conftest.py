"""What several of these tests need."""

from __future__ import annotations

import sys

import pytest

from mem0audit.stores import child


@pytest.fixture
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numpy, which other tests import, starts native threads, and a Qdrant client's progress bar a watching one; a
    program that only audits has none."""
    if sys.platform == "linux":
        real = child._tasks
        others = len(real()) - 1
        monkeypatch.setattr(child, "_tasks", lambda: real()[others:])
