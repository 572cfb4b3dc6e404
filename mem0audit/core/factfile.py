"""A plain SQLite store of facts that is not mem0's: which of its facts hold, and what is wrong with it.

The columns are those of `config/memory.sql`; a file may lack any of them but `id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mem0audit.core.ledger import DAY_S, REVIEW_S, UNUSED_S
from mem0audit.core.model import FileState, Finding, NotChecked
from mem0audit.core.rules.validity import FEWEST_STALE, STALE_SHARE
from mem0audit.core.rules.verdict import finding
from mem0audit.core.times import instant, shown

TABLE: Final = "memory"
COLUMNS: Final = (
    "source",
    "created_at",
    "confirmed_at",
    "expires_at",
    "last_used_at",
    "superseded_by",
    "superseded_at",
)
"""What is asked of a fact, in the order of `Fact`. Times are seconds since 1970, or ISO texts."""
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "T701": ("expires_at",),
    "T702": ("superseded_by",),
    "T703": ("confirmed_at",),
    "T704": ("last_used_at",),
    "T705": ("superseded_by",),
    "T706": (),
}
"""The columns without which a rule cannot be asked."""
NAMED: Final = 5
"""How many ids a finding names."""


class Fact(NamedTuple):
    """One row as it stands; None where there is no such column."""

    id: Any
    source: Any
    created_at: Any
    confirmed_at: Any
    expires_at: Any
    last_used_at: Any
    superseded_by: Any
    superseded_at: Any


@dataclass(frozen=True)
class FactFile:
    """The file as read. `dangling` are (id, missing successor) of one instant; `unchecked_key` is true where its
    schema declares no foreign key on `superseded_by`, `violations` what `foreign_key_check` lists beside these."""

    file: FileState
    table: str
    columns: frozenset[str]
    facts: tuple[Fact, ...] = ()
    dangling: tuple[tuple[Any, Any], ...] = ()
    unchecked_key: bool = False
    violations: int = 0


@dataclass(frozen=True)
class FactReport:
    """What is wrong with such a file. `counts`: all, live, expired, superseded, unconfirmed (of the live), sourceless
    (of the live); None where a column is missing."""

    path: str
    file: FileState
    table: str
    counts: Mapping[str, int | None]
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]
    notes: tuple[str, ...]
    now: float


def _at(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return instant(value) if isinstance(value, str) else None


def _when(value: Any) -> str | None:
    at = _at(value)
    return None if at is None else shown(at)


def is_expired(fact: Fact, now: float) -> bool:
    """Its end has come. `now` is in seconds since 1970."""
    end = _at(fact.expires_at)
    return end is not None and end <= now


def is_superseded(fact: Fact) -> bool:
    """Something replaced it, whether or not that is still there."""
    return fact.superseded_by is not None or fact.superseded_at is not None


def judge(found: FactFile, now: float) -> FactReport:
    """What the file says at `now` (seconds since 1970)."""
    facts = found.facts
    expired = [f for f in facts if is_expired(f, now)]
    superseded = [f for f in facts if is_superseded(f)]
    live = [f for f in facts if not is_superseded(f) and not is_expired(f, now)]
    old = [f for f in live if (_at(f.confirmed_at) or 0.0) <= now - REVIEW_S]
    has = found.columns

    def count(facts: list[Fact], *needed: str) -> int | None:
        return len(facts) if has.issuperset(needed) else None

    whole = found.file.problem is None
    counts = {
        "all": len(facts) if whole else None,
        "live": len(live) if whole else None,
        "expired": count(expired, "expires_at") if whole else None,
        "superseded": count(superseded, "superseded_by") if whole else None,
        "unconfirmed": count(old, "confirmed_at") if whole else None,
        "without a source": count([f for f in live if not f.source], "source") if whole else None,
    }
    if not whole:
        problem = found.file.problem.detail if found.file.problem else ""
        nothing = NotChecked(found.file.path, problem)
        return FactReport(found.file.path, found.file, found.table, counts, (), (), (nothing,), (), now)
    missing = {code: [c for c in needed if c not in has] for code, needed in NEEDS.items()}
    unasked = tuple(
        NotChecked(code, f"the table has no column {', '.join(lacks)}", gap=False)
        for code, lacks in missing.items()
        if lacks
    )
    if found.file.integrity is None:
        unasked += (
            NotChecked("integrity", "the file is too large for a check beside its writers", gap=False),
        )
    findings = [f for f in _findings(found, expired, superseded, live, old, now) if not missing.get(f.code)]
    return FactReport(
        found.file.path,
        found.file,
        found.table,
        counts,
        tuple(sorted(findings, key=lambda f: (-f.severity, f.code))),
        tuple(code for code, lacks in missing.items() if not lacks),
        unasked,
        tuple(_notes(found)),
        now,
    )


def _ids(facts: list[Fact]) -> str:
    named = ", ".join(str(f.id) for f in facts[:NAMED])
    return named + (f" and {len(facts) - NAMED:,} more" if len(facts) > NAMED else "")


def _in_circles(facts: tuple[Fact, ...]) -> dict[Any, Any]:
    """The facts that replace each other in a circle, each with its successor."""
    after = {f.id: f.superseded_by for f in facts if f.superseded_by is not None}
    found: dict[Any, Any] = {}
    seen: set[Any] = set()
    for one in after:
        way: list[Any] = []
        while one in after and one not in seen:
            seen.add(one)
            way.append(one)
            one = after[one]
        if one in way:
            found |= {i: after[i] for i in way[way.index(one) :]}
    return found


def _findings(
    found: FactFile,
    expired: list[Fact],
    superseded: list[Fact],
    live: list[Fact],
    old: list[Fact],
    now: float,
) -> Iterator[Finding]:
    path, table, facts = found.file.path, found.table, found.facts
    if found.file.integrity:
        yield finding("I202", {"problem": found.file.integrity[0]}, path=path, subject=table, help=_RESTORE)
    keys = _DECLARE if found.unchecked_key else _KEYS
    circles = _in_circles(facts)
    broken = {i for i, _ in found.dangling}
    for one, missing in found.dangling:
        yield finding(
            "T705",
            {"replaced by": missing, "why": "there is no such row"},
            memory_id=str(one),
            path=path,
            subject=table,
            help=keys,
        )
    for one, successor in circles.items():
        yield finding(
            "T705",
            {"replaced by": successor, "why": "they replace each other, and none is live"},
            memory_id=str(one),
            path=path,
            subject=table,
            help="say of one of them that it holds: superseded_by and superseded_at empty",
        )
    emptied = [f for f in superseded if f.superseded_by is None and "superseded_by" in found.columns]
    for fact in emptied:
        yield finding(
            "T705",
            {"since": _when(fact.superseded_at), "why": "what replaced it is not known any more"},
            memory_id=str(fact.id),
            path=path,
            subject=table,
            help=keys,
        )
    if found.violations > len(broken):
        yield finding(
            "T705",
            {"rows": found.violations - len(broken), "why": "foreign_key_check lists them"},
            path=path,
            subject=table,
            help=keys,
        )
    if expired:
        yield finding(
            "T701", {"rows": len(expired), "ids": _ids(expired)}, path=path, subject=table, help=_PRUNE
        )
    stored = [
        f for f in superseded if f.id not in broken and f.id not in circles and f.superseded_by is not None
    ]
    if stored:
        yield finding(
            "T702", {"rows": len(stored), "ids": _ids(stored)}, path=path, subject=table, help=_PRUNE
        )
    if old:
        sourceless = sum(not f.source for f in old) if "source" in found.columns else None
        times = [t for f in old if (t := _at(f.confirmed_at)) is not None]
        yield finding(
            "T703",
            {
                f"not confirmed for {REVIEW_S // DAY_S} days": len(old),
                "never": len(old) - len(times),
                "without a source": sourceless,
                "oldest": shown(min(times)) if times else None,
            },
            path=path,
            subject=table,
            help="have somebody look at the oldest, and write down when and from what it was confirmed",
        )
    used = [t for f in live if (t := _at(f.last_used_at)) is not None]
    if used and min(used) <= now - UNUSED_S:
        unused = [f for f in live if (_at(f.last_used_at) or 0.0) <= now - UNUSED_S]
        yield finding(
            "T704", {"rows": len(unused), "ids": _ids(unused)}, path=path, subject=table, help=_PRUNE
        )
    stale = len(facts) - len(live)
    if stale >= FEWEST_STALE and stale * STALE_SHARE > len(facts):
        yield finding("T706", {"rows": len(facts), "live": len(live)}, path=path, subject=table, help=_PRUNE)


_PRUNE: Final = "sqlite3 FILE < config/memory-prune.sql, after a backup"
_KEYS: Final = "PRAGMA foreign_keys = ON in every program that writes it"
_DECLARE: Final = "let superseded_by reference the table's id, as config/memory.sql does"
_RESTORE: Final = "put back the last backup that passes integrity_check"


def _notes(found: FactFile) -> Iterator[str]:
    if "superseded_by" in found.columns and found.unchecked_key:
        yield "superseded_by is no foreign key: nothing keeps a fact from pointing to one that is gone"
    elif found.dangling:
        yield "foreign keys are declared, and a program that writes the file leaves them off"
    if found.file.journal_mode == "rollback":
        yield "rollback journal: a writer waits while somebody reads; journal_mode = WAL does not"
