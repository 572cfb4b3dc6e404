"""What a copied pair holds: its counts, digests and findings, the same for every command that looks at one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mem0audit.core import snapshot as core
from mem0audit.core.model import Agent, Finding, Install, Origin
from mem0audit.core.reading import Reading
from mem0audit.core.rules import RULES
from mem0audit.core.snapshot import Manifest
from mem0audit.operations.audit import STORES_GROUPS, judge
from mem0audit.operations.look import no_collector
from mem0audit.stores.history import read_rows


def judged(reading: Reading) -> list[Finding]:
    """What the rules that judge the stores themselves find in a reading."""
    with no_collector():
        return judge(reading, [code for code in RULES if code[0] in STORES_GROUPS])[0]


def counted(found: Sequence[Finding]) -> dict[str, int]:
    """How many findings of each code."""
    return dict(sorted(Counter(f.code for f in found).items()))


def counts(reading: Reading) -> dict[str, int | None]:
    """Memories, entities, changes and live memories; None for what the reading does not know."""
    return {
        "memories": reading.memory_count,
        "entities": reading.entity_count,
        "changes": None if reading.timeline is None else len(reading.timeline.rowids),
        "live": reading.log_live_count,
    }


def digests(reading: Reading) -> tuple[str, str]:
    """Of the points and of the history rows; "" where the log does not read."""
    points = core.points_digest((c.info.name, c.read.rows) for c in reading.collections)
    state, digest = read_rows(reading.history_path, core.HistoryDigest)
    return points, digest.hexdigest() if digest is not None and state.problem is None else ""


def install_of(manifest: Manifest, folder: Path) -> Install:
    """The install that a snapshot's files are, in the folder they lie in."""
    return Install(
        history=Origin(str(folder / core.HISTORY), "the snapshot"),
        vectors=Origin(str(folder / core.VECTORS), "the snapshot"),
        collection=manifest.collection,
        mem0_dir=manifest.mem0_dir,
    )


def agent_of(manifest: Manifest) -> Agent:
    """The agent whose versions a manifest names."""
    versions = manifest.versions
    return Agent(None, versions.get("mem0ai"), versions.get("qdrant-client"), "manifest")
