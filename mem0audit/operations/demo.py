"""A real mem0 install with planted faults, each brought about by what brings it about in life.

Nothing is forged: mem0 writes every row and every point. What goes wrong is a backup of the vectors put
back alone, a process killed between mem0's two writes, and two things that agents do by themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from mem0audit.core.errors import UsageProblem
from mem0audit.stores.files import copy_into, write_file
from mem0audit.stores.mem0api import Mem0Worker

COLLECTION = "mem0"
DIMS = 8

PLANTED: tuple[tuple[str, str], ...] = (
    ("D301", "3 memories of alice that were deleted and came back with an older copy of the vectors"),
    ("D302", "4 memories of carol that were added after that copy was made, and went with it"),
    ("D303", "1 memory of bob that was stored by a process killed before it could log it"),
    ("D304", "2 memories of bob whose change went with it too"),
    ("C601", "1 memory of alice that is stored twice"),
    ("T701", "1 memory of bob whose expiration date has passed"),
)
"""What the demo plants: the code of the rule that must find it, and what it is. No other rule about the
stores' content (groups I, D, H, E, C, T) may find anything in it."""

_ALICE = (
    "Lives in Lisbon, near the river",
    "Is allergic to peanuts",
    "Works as a nurse on the night shift",
    "Has a cat named Miso",
    "Prefers tea over coffee",
    "Plays the cello",
    "Is vegetarian on weekdays",
    "Wants answers in short sentences",
    "Travels by train where there is one",
    "Is saving for a house in Porto",
    "Reads crime novels",
    "Swims on Thursdays",
    "Has a brother, Rui, in Faro",
    "Dislikes phone calls before ten",
)
_BOB = (
    "Lives in Oslo",
    "Drives a red Volvo",
    "Is learning Portuguese",
    "Dislikes olives",
    "Plays chess by mail",
    "Keeps bees",
    "Pays rent on the first",
    "Runs Debian on his laptop",
    "Is in the choir on Mondays",
    "Has a meeting with Ann every second Friday",
    "Likes his code in small functions",
)
_CAROL = (
    "Lives in Quito",
    "Is left handed",
    "Collects stamps from islands",
    "Runs marathons",
    "Has a sister, Olga",
    "Is writing a thesis on moss",
    "Uses metric units",
    "Takes the dog out at seven",
)
_CAROL_LATER = (
    "Moved her thesis defence to June",
    "Has a new desk by the window",
    "Found a flat with a garden",
    "Is looking for a running partner",
)


@dataclass(frozen=True)
class DemoInstall:
    """Where the demo lies (absolute paths) and what was planted, as `PLANTED`."""

    history: str
    vectors: str
    mem0_dir: str
    collection: str
    mem0_version: str
    planted: tuple[tuple[str, str], ...]


def demo_interpreter(named: str | None = None) -> str:
    """The Python that writes the demo: the one named, else this one if it has mem0.

    Asks the package's metadata and imports nothing. Raises UsageProblem where there is no mem0.
    """
    if named is not None:
        return named
    try:
        metadata.version("mem0ai")
    except metadata.PackageNotFoundError:
        raise UsageProblem(
            "the demo is written by mem0 itself, and this Python has none",
            "in a checkout of mem0audit: scripts/mem0audit demo, which needs nothing, or pip install '.[demo]'",
        ) from None
    return sys.executable


def build_demo(
    folder: Path, interpreter: str | None = None, say: Callable[[str], None] | None = None
) -> DemoInstall:
    """Build the demo in an empty folder of ours; `say` hears what is being done. Takes some ten seconds.

    About forty memories of alice, bob and carol, and what `PLANTED` lists, always in the same numbers.
    Raises UsageProblem where no mem0 is found, Failed where mem0 fails, OSError where the disk does.
    """
    tell = say or (lambda _text: None)
    python = demo_interpreter(interpreter)
    mem0_dir, vectors = folder / "mem0", folder / "qdrant"
    history = mem0_dir / "history.db"
    points = vectors / "collection" / COLLECTION / "storage.sqlite"
    backup = folder / "copy-of-the-vectors.sqlite"

    def agent() -> Mem0Worker:
        return Mem0Worker(python, history, vectors, COLLECTION, mem0_dir, DIMS, embedder="offline")

    tell("an agent remembers things about alice, bob and carol")
    with agent() as memory:
        version = memory.versions.mem0 or "unknown"
        alice = [memory.add(text, {"user_id": "alice"}) for text in _ALICE]
        bob = [memory.add(text, {"user_id": "bob"}) for text in _BOB]
        for text in _CAROL:
            memory.add(text, {"user_id": "carol"})
        memory.add(_ALICE[4], {"user_id": "alice"})
        memory.add("Tries the paper's trial subscription", {"user_id": "bob"}, expiration_date="2025-01-31")
        memory.update(alice[0], "Lives in Lisbon, near the castle")
        memory.delete(bob[3])
    copy_into(str(points), backup)

    tell("it goes on for some days after a copy of the vectors was made")
    with agent() as memory:
        for text in _CAROL_LATER:
            memory.add(text, {"user_id": "carol"})
        for memory_id in (alice[1], alice[6], alice[9]):
            memory.delete(memory_id)
        memory.update(bob[0], "Lives in Bergen")
        memory.update(bob[1], "Drives a bicycle")

    tell("that copy is put back, without the log")
    write_file(points, backup.read_bytes())

    tell("the agent starts again, and is killed while it remembers something")
    with agent() as memory:
        memory.add("Has a dentist on the ninth", {"user_id": "alice"})
        memory.add("Bought a new coat", {"user_id": "bob"})
        memory.crash_after_vector("add", text="Has a new number at work", owner={"user_id": "bob"})
    return DemoInstall(
        history=str(history),
        vectors=str(vectors),
        mem0_dir=str(mem0_dir),
        collection=COLLECTION,
        mem0_version=version,
        planted=PLANTED,
    )
