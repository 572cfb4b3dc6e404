"""The change log folded: one small record a memory, and the events in order.

Rows come in rowid order, which is the order they were written in (times are not: US/Pacific and UTC
are mixed in real logs, and DELETE rows of mem0 1.0.7 and older have none).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mem0audit.core.model import HistoryRow
from mem0audit.core.points import text_digest
from mem0audit.core.signs import FindSecrets, Secret, may_hold_secret
from mem0audit.core.times import instant

ADD, UPDATE, DELETE, OTHER = "ADD", "UPDATE", "DELETE", "?"
_CODES = {ADD: ord("A"), UPDATE: ord("U"), DELETE: ord("D")}
_UNKNOWN_TIME = float("nan")


class MemoryLog:
    """What the log says of one memory after all its rows.

    `text` is the digest of the last logged text; None where the row holds none (a DELETE, or texts
    lost or emptied). `start` and `top` are the rowids of its first and last row, `texts_kept` how many
    texts of it the rows still hold. `added_at` is the raw created_at of its ADD row, `created_at` and `updated_at`
    those of the last row. `last` and `first` are event names as written.
    """

    __slots__ = (
        "added_at",
        "created_at",
        "first",
        "last",
        "rows",
        "start",
        "text",
        "texts_kept",
        "top",
        "updated_at",
    )

    def __init__(self, first: str, rowid: int, created_at: Any = None, updated_at: Any = None) -> None:
        self.start = self.top = rowid
        self.first = self.last = first
        self.rows = 0
        self.text: bytes | None = None
        self.texts_kept = 0
        self.added_at: Any = None
        self.created_at = created_at
        self.updated_at = updated_at

    @property
    def live(self) -> bool:
        """The log's last word is that this memory exists."""
        return self.last in (ADD, UPDATE)


@dataclass(frozen=True)
class RowFault:
    """A row that does not fit the rows before it."""

    memory_id: str
    rowid: int
    event: str


class Timeline:
    """Takes history rows (a `model.RowSink`) and holds their fold.

    `rowids`, `events` and `whens` are parallel, a row each, in rowid order: the rowid, the event's first
    letter, and the time of the change as the row has it. `secrets` are the credentials in the rows' texts: how many
    rows have it, by memory and credential; empty where no `find` was given to look for them. `clean` are digests of
    texts that `find` was asked about and has nothing in: those of the points, which most rows have once more.
    """

    def __init__(self, find: FindSecrets | None = None, clean: Collection[bytes] = ()) -> None:
        self._find = find
        self._clean = clean
        self.secrets: dict[tuple[str, Secret], int] = {}
        self.memories: dict[str, MemoryLog] = {}
        self.rowids = array("q")
        self.events = bytearray()
        self.whens: list[Any] = []
        self.broken: list[RowFault] = []
        self.without_add: list[RowFault] = []
        self.after_delete: list[RowFault] = []
        self.unknown: list[RowFault] = []
        self.no_memory_id: list[int] = []

    @cached_property
    def times(self) -> array[float]:
        """`whens` as seconds since 1970, NaN where a row has no time. Read when first asked for: few rules do."""
        seconds = map(instant, self.whens)
        return array("d", [_UNKNOWN_TIME if s is None else s for s in seconds])

    @cached_property
    def offsets(self) -> dict[str, int]:
        """How many rows name each UTC offset ("-08:00"), for those that name one."""
        ends = Counter([when[-6:] for when in self.whens if type(when) is str])
        return {end: count for end, count in ends.items() if end[3:4] == ":" and end[0] in "+-"}

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """Fold one page of rows; pages come in rowid order and never repeat a row."""
        memories = self.memories
        self.rowids.extend([row[0] for row in page])
        self.events += bytes([_CODES.get(row[5], 63) if type(row[5]) is str else 63 for row in page])
        self.whens += [row[6] if row[7] is None else row[7] for row in page]
        digests = [text_digest(row[4]) if type(row[4]) is str and row[4] else None for row in page]
        if self._find is not None:
            self._look_for_secrets(page, digests, self._find)
        for row, digest in zip(page, digests, strict=True):
            rowid, _id, memory_id, old, _new, event, created, updated, _deleted, _actor, _role = row
            if type(memory_id) is not str:
                if memory_id is None:
                    self.no_memory_id.append(rowid)
                    continue
                memory_id = str(memory_id)
            log = memories.get(memory_id)
            if log is None and event == ADD and digest is not None:
                # what nearly every row is, without the questions below
                log = memories[memory_id] = MemoryLog(ADD, rowid, created, updated)
                log.rows = log.texts_kept = 1
                log.added_at = created
                log.text = digest
                continue
            if log is None:
                log = memories[memory_id] = MemoryLog(event if type(event) is str else OTHER, rowid)
                if event != ADD:
                    self.without_add.append(RowFault(memory_id, rowid, _shown_event(event)))
                known = False
            else:
                if log.last == DELETE and event != DELETE:
                    self.after_delete.append(RowFault(memory_id, rowid, _shown_event(event)))
                # An empty text is one that was lost in a migration or emptied on request: no evidence.
                known = log.text is not None
            log.rows += 1
            log.top = rowid
            log.created_at, log.updated_at = created, updated
            if event == ADD:
                log.added_at = created
                log.text = digest
                log.texts_kept += log.text is not None
            elif event in (UPDATE, DELETE):
                if known and type(old) is str and old and text_digest(old) != log.text:
                    self.broken.append(RowFault(memory_id, rowid, event))
                log.text = digest
                log.texts_kept += (log.text is not None) + (type(old) is str and old != "")
            else:
                self.unknown.append(RowFault(memory_id, rowid, _shown_event(event)))
                continue
            log.last = event

    def _look_for_secrets(
        self, page: Sequence[HistoryRow], digests: Sequence[bytes | None], find: FindSecrets
    ) -> None:
        clean = self._clean
        for row, digest in zip(page, digests, strict=True):
            old, new = row[3], row[4]
            asked = []
            if digest is not None and digest not in clean and may_hold_secret(new):
                asked.append(new)
            if type(old) is str and old and text_digest(old) not in clean and may_hold_secret(old):
                asked.append(old)
            if not asked:
                continue
            found = {secret for text in asked for secret in find(text)}
            for secret in found:
                key = (str(row[2]), secret)
                self.secrets[key] = self.secrets.get(key, 0) + 1

    @property
    def live_count(self) -> int:
        """How many memories exist by the log."""
        lasts = [log.last for log in self.memories.values()]
        return lasts.count(ADD) + lasts.count(UPDATE)

    def live(self) -> Iterator[tuple[str, MemoryLog]]:
        """The memories whose last event is ADD or UPDATE, with their logs."""
        for memory_id, log in self.memories.items():
            if log.last == ADD or log.last == UPDATE:
                yield memory_id, log


def _shown_event(event: Any) -> str:
    """An event for evidence. What is no plain word is named by its kind: it could be a memory's text."""
    if type(event) is not str:
        return "empty" if event is None else type(event).__name__
    return event if event.isalpha() and event.isascii() and len(event) <= 20 else "not a word"
