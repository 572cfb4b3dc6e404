"""A log that belongs to a server's points although somebody writes: taken while its writers are kept waiting.

The points are looked at while the log is held (stores/heldlog.py); what they hold then stands in the server's
snapshots if it still stands when those are made. Of the log, one of the next instants fits to that: the one that is
held, or one after a row that waited. Which one, the rules that compare both stores say: in the pair they may find only
what they found in the install before, and find there again afterwards. So a write that is in one half and not in the
other is never taken for settled, whoever made it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from mem0audit.core.model import Agent, CollectionInfo, Install, KeepPoint, PointsRead
from mem0audit.core.reading import Reading
from mem0audit.core.rules import RULES
from mem0audit.core.rules.divergence import PASSING, standing_key
from mem0audit.core.seal import Sealing
from mem0audit.core.snapshot import PayloadDigest
from mem0audit.operations.audit import judge
from mem0audit.operations.look import points_beside_logs
from mem0audit.stores import files, pair
from mem0audit.stores.heldlog import HeldLog, held_log
from mem0audit.stores.server import Connection
from mem0audit.stores.serverstore import ServerStore

HOLD_S: Final = pair.LONGEST_HOLD_S
"""How long a writer may be kept waiting at most; mem0 waits 5 s."""
QUIET_S: Final = 0.03
"""So long after the log is held, writes to the points that were on their way have landed."""
LOOK_S: Final = 0.5
"""Where one look at both stores takes longer, two of them and the snapshots take longer than a writer may wait."""
MOST_LOG: Final = 64 << 20
"""Bytes of a log that is copied and read while it is held."""
CATCHES: Final = 8
"""So many commits after the one that was held are looked at."""
NEXT_S: Final = 0.3
LATER_S: Final = 3600.0
"""What mem0 cleans up within a minute is judged as if that were over: it is not in the pair."""

_CODES: Final = tuple(code for code in RULES if code.startswith(PASSING))
_NOT_ASKED: Final = Agent(None, None, None, "not asked")


class _Digested(ServerStore):
    """A server's points, digested while they are read."""

    def __init__(self, connection: Connection, collection: str) -> None:
        super().__init__(connection, collection)
        self.digests: dict[str, PayloadDigest] = {}

    def points(
        self, collection: CollectionInfo, keep: KeepPoint[Any], *, helped: bool = False
    ) -> PointsRead[Any]:
        digest = self.digests[collection.name] = PayloadDigest()

        def both(row: int, point_id: Any, payload: Any, vector: Any) -> Any:
            digest.add(point_id, payload)
            return keep(row, point_id, payload, vector)

        return super().points(collection, both, helped=helped)


class HeldPair:
    """Both stores while the log is held. `digests` are of the points as they were read then, by collection; `reading`
    is the pair that was taken, for a seal."""

    def __init__(
        self,
        install: Install,
        path: str,
        connection: Connection,
        log: HeldLog,
        now: float,
        sealing: Sealing | None,
    ) -> None:
        self._log, self._path = log, path
        self._install, self._connection, self._now = install, connection, now
        self._before = self._found()
        self._kept: frozenset[Any] = frozenset()
        self._sealing = sealing
        self.reading: Reading | None = None
        self.digests: dict[str, tuple[int, str]] = {}

    def hold(self) -> bool:
        """Holds the log and looks at the points; False where that cannot be."""
        if self._before is None or not self._log.hold(HOLD_S):
            return False
        time.sleep(QUIET_S)
        store = _Digested(self._connection, self._install.collection.value)
        self._beside = points_beside_logs(self._install, _NOT_ASKED, self._now, store, self._sealing)
        self.digests = {name: (one.count, one.hexdigest()) for name, one in store.digests.items()}
        return True

    def taken(self, raw: Path) -> pair.Pair | None:
        """The log that belongs to the points, copied into `raw`; None where no instant of it does."""
        target = raw / "held.db"
        for tries in range(1, CATCHES + 1):
            if not self._log.copy(target):
                break
            reading = self._beside(str(target), True)
            found = disagreements(reading)
            if found is not None and self._before is not None and found <= self._before:
                self.let_go()
                self._kept, self.reading = found, reading
                source = pair.Source("history", self._path, "history")
                copied = pair.CopiedFile(source, target, "rollback", "backup")
                return pair.Pair((copied,), None, None, tries, self._log.longest_s)
            files.remove_new(target)
            if not self._log.hold_next(HOLD_S, NEXT_S):
                break
        return None

    def let_go(self) -> None:
        """Lets whoever waits go on."""
        self._log.let_go()

    def stands(self) -> bool:
        """Whether all that the pair has against itself is in the install still: to be asked some time afterwards."""
        return not self._kept or self._kept <= (self._found() or frozenset())

    def _found(self) -> frozenset[Any] | None:
        store = ServerStore(self._connection, self._install.collection.value)
        beside = points_beside_logs(self._install, _NOT_ASKED, self._now, store)
        return disagreements(beside(self._path, False))


@contextmanager
def held_pair(
    install: Install, path: str, connection: Connection, now: float, sealing: Sealing | None
) -> Iterator[HeldPair | None]:
    """The log at `path` held, and the points looked at; None where that cannot be, or would take too long."""
    with held_log(path) as log:
        if log is None or Path(path).stat().st_size > MOST_LOG:
            yield None
            return
        started = time.monotonic()
        both = HeldPair(install, path, connection, log, now + LATER_S, sealing)
        quick = time.monotonic() - started <= LOOK_S
        yield both if quick and both.hold() else None


def disagreements(reading: Reading) -> frozenset[Any] | None:
    """What the rules that compare both stores find, a key for each; None where a store was not read whole."""
    if not reading.history_readable or not reading.vectors_readable:
        return None
    if any(one.read.file.problem is not None for one in reading.entities):
        return None
    return frozenset(standing_key(found) for found in judge(reading, _CODES)[0])
