"""Readings for rules that judge what a test machine cannot be: another agent, another place, another time."""

from __future__ import annotations

import dataclasses
from typing import Any

from mem0audit.core.model import Agent
from mem0audit.core.reading import Reading
from mem0audit.install.host import this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.look import look


def reading_of(
    store: Any, *, mem0: str | None = "2.2.1", client: str | None = "1.20.0", **changes: Any
) -> Reading:
    """A real look at a store, with the agent's versions and whatever else the test changes in it.

    `install` and `vectors_place`, `history_place` may be dicts of fields to change.
    """
    machine = this_host()
    given: dict[str, Any] = {f.name: None for f in dataclasses.fields(Flags)}
    given.update(history=str(store.history), qdrant_path=str(store.vectors))
    reading = look(locate(Flags(**given), machine), machine)
    for name in ("install", "vectors_place", "history_place"):
        if isinstance(changes.get(name), dict):
            changes[name] = dataclasses.replace(getattr(reading, name), **changes[name])
    agent = Agent("/usr/bin/python3", mem0, client, "the test says so")
    return dataclasses.replace(reading, agent=agent, **changes)
