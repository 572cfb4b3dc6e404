"""What several files about servers use."""

from __future__ import annotations

import pytest

from mem0audit.operations import audit, serverrestore, serversnapshot, serververify


def quicker(patch: pytest.MonkeyPatch) -> None:
    """What is waited for a real agent is not waited for."""
    patch.setattr(serversnapshot, "STILL_S", 0.02)
    patch.setattr(serversnapshot, "STILL_WAIT_S", 0.3)
    patch.setattr(serververify, "APPEARS_S", 0.3)
    patch.setattr(serverrestore, "APPEARS_S", 0.3)
    patch.setattr(serverrestore, "AFTERWARDS_S", 0.02)
    patch.setattr(audit, "SECOND_LOOK_S", 0.02)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for one test."""
    quicker(monkeypatch)
