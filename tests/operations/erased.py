"""Carol, who is erased after snapshots were taken that hold her, and Bob, of whom nothing may be lost: the texts, and
an install that says them, for restores of a folder and of a server alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import Refused
from mem0audit.core.model import Install
from mem0audit.install.host import this_host
from mem0audit.operations.audit import audit
from tests.builders import MemoryBuilder

HERS = [
    f'Carol hides "spare key" {n} under the flower pot, straße {n * 7} – 🔑\nof her flat' for n in range(6)
]
EARLIER = "Carol has told and taken back that she is going to move to Cuenca in spring"
BEFORE_ALL = "Carol once said that her grandmother baked the best bread of all Galicia"
ENTITY = "the flower pots of all the flats that Carol has keys of"
BOBS = [f"Bob mows lawn number {n} on Saturdays when it does not rain in the morning" for n in range(4)]
CHAT = "I am Carol, and I shall tell you where the spare keys of all my flats are"
MINE = [*HERS, EARLIER, BEFORE_ALL, ENTITY, CHAT]
LINKS_LEFT = {"lawn mowers": (0, 1), "Saturdays": (1,)}
"""What the entities that are left link: numbers of Bob's."""
_FOLDERS = ("install", "snapshots", "state")


@dataclass(frozen=True)
class Told:
    """Ids of what was told, and the snapshots `first` (from elsewhere: the ledger did not see what is in it) and
    `snapshot`. `before_all` was deleted between them; `earlier` was added and deleted there, and an audit saw it."""

    ids: list[str]
    bobs: list[str]
    before_all: str
    earlier: str
    first: str
    snapshot: str

    @property
    def hers(self) -> set[str]:
        return {*self.ids, self.earlier, self.before_all}


def tell(
    agent: MemoryBuilder,
    folder: Path,
    install: Callable[[], Install],
    take: Callable[[], str],
    bobs: Sequence[str] = BOBS,
) -> Told:
    """Tells the agent all of it, and takes the two snapshots; the agent is closed then, and nobody erased yet."""
    with agent:
        ids = [agent.add(text, user_id="carol") for text in HERS]
        his = [agent.add(text, user_id="bob", metadata={"topic": "lawn", "n": 0.1}) for text in bobs]
        agent.update(his[0], "Bob mows the first lawn on Sundays, when the others are in church")
        before_all = agent.add(BEFORE_ALL, user_id="carol")
        agent.plant_entity(ENTITY, ids[:2], user_id="carol")
        agent.plant_entity("Saturdays", [ids[2], his[1]], user_id="bob")
        agent.plant_entity("lawn mowers", his[:2], user_id="bob")
        agent.add_inferred([CHAT], user_id="carol")
        agent.add_inferred(["Bob likes the colour of the blue bowl in the kitchen"], user_id="bob")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "elsewhere"))
        first = take()
    agent.open()
    agent.delete(before_all)
    earlier = agent.add(EARLIER, user_id="carol")
    agent.close()
    audit(install(), this_host())
    agent.open()
    agent.delete(earlier)
    agent.close()
    return Told(ids, his, before_all, earlier, first, take())


def keep(folder: Path) -> None:
    """Keeps what lies in `folder` now, for `back`."""
    for name in _FOLDERS:
        shutil.copytree(folder / name, folder / "kept" / name)


def back(folder: Path) -> None:
    """As it was when it was kept."""
    for name in _FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(folder / "kept" / name, folder / name)


def no_door(*_words: Any, **_options: Any) -> Any:
    raise Refused("the agent's mem0 is too old")
