"""The record of erasures, from the ledger and from beside the snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from mem0audit.core import snapshot as core
from mem0audit.core.erasures import (
    RECORD,
    Covering,
    Erasure,
    ErasureRecord,
    NotARecord,
    erasures_text,
    joined,
    made_at,
    parse_erasures,
)
from mem0audit.core.model import HistoryRow, Install, NotChecked, PointId, VectorFacts
from mem0audit.core.reading import ENTITIES_SUFFIX
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.stores import files, snapshots
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_rows
from mem0audit.stores.ledger import CannotUse

MISSING: Final = "is not there"


def erasures_on_record(
    install: Install, snapshots_folder: str | None, host: Host, *, ledger: bool = True
) -> ErasureRecord:
    """Every erasure that is on record for an install, in its ledger and beside its snapshots.

    `snapshots_folder` is the folder that the snapshot lies in; None where there is none. Raises nothing: a place that
    is missing or damaged is in `not_read`, with why. Where `known` is False no record could be read at all.
    """
    found: list[tuple[Erasure, ...]] = []
    read: list[str] = []
    not_read: list[NotChecked] = []
    with ledgers.opened(install, host, wanted=ledger) as book:
        if isinstance(book, NotChecked):
            not_read.append(book)
        elif book is None:
            not_read.append(NotChecked("ledger", "none is kept of this install yet", gap=False))
        else:
            try:
                found.append(book.erasures())
                read.append(str(book.path))
            except CannotUse as error:
                not_read.append(ledgers.unusable(book.path, error))
    if snapshots_folder is not None:
        path = str(Path(snapshots_folder, RECORD))
        beside = _beside(Path(snapshots_folder))
        if isinstance(beside, NotChecked):
            not_read.append(beside)
        else:
            found.append(beside)
            read.append(path)
    return ErasureRecord(joined(*found), tuple(read), tuple(not_read))


def damaged_beside(record: ErasureRecord) -> tuple[NotChecked, ...]:
    """Records beside snapshots that are there and do not read: a ledger that does need not know what they say."""
    return tuple(one for one in record.not_read if Path(one.what).name == RECORD and one.why != MISSING)


def erasures_beside(folder: Path) -> tuple[Erasure, ...]:
    """Those on record beside the snapshots of a folder; () where there is no record, or none that reads."""
    found = _beside(folder)
    return () if isinstance(found, NotChecked) else found


def _beside(folder: Path) -> tuple[Erasure, ...] | NotChecked:
    """The record beside the snapshots."""
    path = folder / RECORD
    try:
        return parse_erasures(snapshots.small_file(path))
    except FileNotFoundError:
        why = MISSING
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
    except (ValueError, NotARecord) as error:
        why = str(error)
    return NotChecked(str(path), why)


def keep_beside(folder: Path, record: ErasureRecord) -> str | None:
    """Sees that a locked snapshot folder holds a record of these erasures and of those it knew; why not, or None.

    A record that is damaged is left as it is: it may be the only one, and a person can still read it. None is begun
    where the ledger is damaged: it would say that there were no erasures. Raises OSError where it cannot be written.
    """
    there = _beside(folder)
    known: tuple[Erasure, ...] = ()
    if not isinstance(there, NotChecked):
        known = there
    elif there.why != MISSING:
        return f"{there.what} {there.why}: it is left as it is, and a restore cannot go by it"
    elif damaged := [n for n in record.not_read if n.gap]:
        return f"no record of erasures is begun in {folder}: the ledger {damaged[0].why}"
    wanted = joined(record.erasures, known)
    if isinstance(there, NotChecked) or set(known) != set(wanted):
        files.keep_beside_snapshots(folder, RECORD, erasures_text(wanted).encode("ascii"))
    return None


def erased_in(path: Path, manifest: core.Manifest, erasures: Sequence[Erasure]) -> int:
    """How many memories that these erasures cover a snapshot holds, in its vectors or its log.

    One of a Qdrant server is taken to hold one at least: only a server can read its points."""
    found: set[str] = set()
    entities: set[str] = set()
    covering = Covering(erasures)

    def keeping(into: set[str]) -> Callable[[int, PointId, Any, VectorFacts], None]:
        def keep(_rowid: int, point_id: PointId, payload: Any, _facts: VectorFacts) -> None:
            owner = (payload.get("user_id"), payload.get("agent_id"), payload.get("run_id"))
            if covering.covers_memory(owner, point_id, made_at(payload.get("created_at"), manifest)):
                into.add(str(point_id))

        return keep

    store = EmbeddedStore(str(path / core.VECTORS), alone=True)
    for info in store.layout().collections:
        if info.has_folder and not info.legacy:
            store.points(info, keeping(entities if info.name.endswith(ENTITIES_SUFFIX) else found))
    read_rows(str(path / core.HISTORY), lambda: _ErasedRows(covering, found), alone=True)
    if erasures and (path / core.SERVER).is_dir():
        return max(1, len(found))  # its points cannot be looked at here
    return len(found) or min(1, len(entities))  # where only an entity names them, it is not without


class _ErasedRows:
    """Takes history rows (a `model.RowSink`) and notes those about erased memories: by id, since no row names an
    owner."""

    def __init__(self, covering: Covering, found: set[str]) -> None:
        self.covering = covering
        self.found = found
        self.seen: set[str] = set()

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        for memory_id in {str(row.memory_id) for row in page if row.memory_id is not None} - self.seen:
            self.seen.add(memory_id)
            if self.covering.has_id(memory_id):
                self.found.add(memory_id)
