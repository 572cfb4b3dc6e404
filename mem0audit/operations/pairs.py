"""A paired snapshot before a change, whatever the vector store is."""

from __future__ import annotations

import time
from collections.abc import Callable

from mem0audit.core.model import Install
from mem0audit.core.snapshot import ServerPlan, SnapshotPlan, Taken
from mem0audit.install.host import Host
from mem0audit.operations.look import Progress
from mem0audit.operations.serversnapshot import create_of_server, on_server, plan_server_create
from mem0audit.operations.snapshot import create, plan_create


def plan_pair(install: Install, host: Host, folder: str) -> SnapshotPlan | ServerPlan:
    """What `take_pair` would do. Changes nothing. Raises Refused, CouldNotRead where none can be taken."""
    return (
        plan_server_create(install, host, folder)
        if on_server(install)
        else plan_create(install, host, folder)
    )


def take_pair(
    install: Install,
    host: Host,
    folder: str,
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
    ledger: bool = True,
    until: float | None = None,
) -> Taken:
    """Takes a snapshot of both stores into a folder; a short-lived one goes `until` then. Without `ledger` that is
    neither read nor written. Raises Refused, CouldNotRead, Failed."""
    plan = plan_pair(install, host, folder)
    if isinstance(plan, ServerPlan):
        return create_of_server(plan, host, progress=progress, now=now, ledger=ledger, until=until)
    return create(plan, host, progress=progress, now=now, ledger=ledger, until=until)
