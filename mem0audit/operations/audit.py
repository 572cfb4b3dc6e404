"""The main job: both stores side by side, what is wrong, and why."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mem0audit.core.catalogue import CATALOGUE, matches
from mem0audit.core.errors import UsageProblem
from mem0audit.core.incident import incidents
from mem0audit.core.ledger import Kept
from mem0audit.core.model import (
    CopyOf,
    Finding,
    Incident,
    Install,
    NotChecked,
    Report,
    SealOutcome,
    Snapshots,
)
from mem0audit.core.reading import Reading
from mem0audit.core.relocate import LeftMove
from mem0audit.core.restore import Interrupted
from mem0audit.core.rules import RULES
from mem0audit.core.rules.divergence import PASSING, standing_key
from mem0audit.core.rules.files import unread
from mem0audit.core.rules.servers import NO_SERVER
from mem0audit.core.rules.snapshots import interrupted_operation
from mem0audit.core.seal import NO_SEAL, LastSeal, Sealing
from mem0audit.core.server import PAYLOADS, ServerRead
from mem0audit.core.signs import FindSecrets
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.look import LEFT_THERE, Progress, look, no_collector, no_progress
from mem0audit.operations.seal import seal_install
from mem0audit.stores.detectors import find_secrets
from mem0audit.stores.ledger import Ledger

SECOND_LOOK_S = 0.5
"""mem0 needs milliseconds between its two writes; half a second later a true fault still stands."""

STORES_GROUPS = ("D", "H", "E", "I", "C")
"""The rules that judge the stores themselves, and not where they lie."""

TEXT_CODES = frozenset(("S801", "S802", "S803"))
"""The rules for which every text has to be looked at."""

SERVER_GROUP = "Q"


def audit(
    install: Install,
    host: Host,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    snapshots: Snapshots | None = None,
    interrupted: Interrupted | None = None,
    left_moves: Sequence[LeftMove] = (),
    progress: Progress | None = None,
    pause: Callable[[float], None] = time.sleep,
    ledger: bool = True,
    keep: bool = True,
    seal: bool = False,
    accept: str | None = None,
    how: ServerRead = PAYLOADS,
) -> Report:
    """Audit an install that an agent may be using.

    `snapshots` are those that are known, None where nobody looked for them; `interrupted` and `left_moves` are a
    restore and moves that were cut off. `select` and `ignore` are rule codes or beginnings of codes; an empty
    `select` means every rule. On a live install (a process holds it, or that cannot be seen) a disagreement is
    reported only if it stands unchanged at a second look. `how` is how a server's points are read; a folder's always
    are with their vectors and as of one instant.

    Raises nothing for what cannot be read: the report names it; UsageProblem where one instant is asked for and the
    package for that is not installed. Where there is a `ledger` (False: it is neither read nor written) the stores are
    compared with its last seal, and with `keep` whose each memory is goes into it. With `seal` the chain is extended
    afterwards, if nothing is unexplained or `accept` says why it may stand.
    """
    say = progress or no_progress
    if how.instant and install.server_url is not None and importlib.util.find_spec("qdrant_edge") is None:
        raise UsageProblem(
            "--consistent reads a server's shard snapshots with qdrant-edge, which is not installed",
            "pip install 'mem0audit[edge]'",
        )
    with ledgers.opened(install, host, wanted=ledger) as book:
        sealing = NO_SEAL if book is None else ledgers.sealing_of(book)
        recovered, known = ledgers.recovered(book), ledgers.kept(book, host.now)
        with no_collector():
            report, reading = _audit(
                install,
                host,
                select,
                ignore,
                (snapshots, interrupted, tuple(left_moves), recovered, known),
                say,
                pause,
                sealing,
                how,
            )
        if reading is None or not keep:
            return report
        keeping = _Keeping(install, host, say, pause, seal, accept)
        if book is None and (seal or reading.memory_count):
            with ledgers.opened(install, host, make=True) as made:
                return keeping.kept(report, reading, made)
        return keeping.kept(report, reading, book)


@dataclass(frozen=True)
class _Keeping:
    """What an audit leaves in the ledger."""

    install: Install
    host: Host
    say: Progress
    pause: Callable[[float], None]
    seal: bool
    accept: str | None

    def kept(self, report: Report, reading: Reading, book: Ledger | NotChecked | None) -> Report:
        """Whose each memory is, and a seal where one is asked for; the report with what came of it."""
        if isinstance(book, NotChecked):
            outcome = SealOutcome(False, f"there is no ledger: {book.why}") if self.seal else None
            return replace(report, not_checked=(*report.not_checked, book), seal=outcome)
        if book is None:
            return report
        with no_collector():
            problem = ledgers.note_seen(book, reading, self.host.now)
        ledgers.note_agent(book, report.agent, report.holders, self.host)
        if problem is not None:
            report = replace(report, not_checked=(*report.not_checked, problem))
        if not self.seal:
            return report
        self.say("sealing", None, None)
        outcome = seal_install(
            book, self.install, self.host, accept=self.accept, progress=self.say, pause=self.pause
        )
        return replace(report, seal=outcome)


def _audit(
    install: Install,
    host: Host,
    select: Sequence[str],
    ignore: Sequence[str],
    kept: tuple[
        Snapshots | None, Interrupted | None, tuple[LeftMove, ...], Mapping[str, str], Kept | NotChecked
    ],
    say: Progress,
    pause: Callable[[float], None],
    sealing: Sealing | NotChecked,
    how: ServerRead,
) -> tuple[Report, Reading | None]:
    """The report, and what it was made of; None where there was nothing to read."""
    started = time.monotonic()
    codes = _codes(select, ignore, install.server_url is not None)

    def look() -> Reading:
        return replace(
            _look(install, host, say, sealing, None if TEXT_CODES.isdisjoint(codes) else find_secrets, how),
            snapshots=kept[0],
            interrupted=kept[1],
            left_moves=kept[2],
            recovered=kept[3],
            kept=kept[4],
        )

    left = _left_by_the_dead(install)
    reading = look()
    if _nothing_there(reading):
        cut_off = tuple(one for one in interrupted_operation(reading) if isinstance(one, Finding))
        seconds = time.monotonic() - started
        absent = _report(reading, cut_off, _absent(reading), (), codes=(), seconds=seconds)
        return absent, None
    say("comparing", None, None)
    findings, not_checked = judge(reading, codes)
    if reading.live and any(f.code.startswith(PASSING) for f in findings):
        first = {standing_key(f) for f in findings}
        say("looking again at what disagrees", None, None)
        pause(SECOND_LOOK_S)
        reading = look()
        again, not_checked = judge(reading, codes)
        findings = [f for f in again if not f.code.startswith(PASSING) or standing_key(f) in first]
        reading = _standing(reading, findings)
    return _whole(reading, findings, [*not_checked, *left], select, ignore, codes, started), reading


def _left_by_the_dead(install: Install) -> list[NotChecked]:
    """Clears away what killed runs left, here and on the server; what may lie there of theirs and does not go."""
    if install.server_url is None:
        return []
    from mem0audit.operations import scratch
    from mem0audit.stores.server import connection_to

    with connection_to(install) as connection:
        return [NotChecked(one, LEFT_THERE) for one in scratch.remove_left_folders(connection)]


def audit_copy(
    reading: Reading, copy: CopyOf, *, select: Sequence[str] = (), ignore: Sequence[str] = ()
) -> Report:
    """The audit of a snapshot or a backup, read before: the rules that judge the stores themselves, as of the time
    it was taken. Where it lies, who has it open and what it is beside are not looked at. `select` and `ignore` as
    for `audit`."""
    started = time.monotonic()
    with no_collector():
        wanted = _codes(select, ignore, False)
        codes = [
            code
            for code in wanted
            if code[0] in STORES_GROUPS or (reading.texts_looked_at and code in TEXT_CODES)
        ]
        findings, not_checked = judge(reading, codes)
        left = [code for code in wanted if code not in codes]
        not_checked += [NotChecked(code, "not asked of a copy", gap=False) for code in left]
        report = _whole(reading, findings, not_checked, select, ignore, codes, started)
    return replace(report, copy=copy)


def _codes(select: Sequence[str], ignore: Sequence[str], server: bool) -> list[str]:
    """The rules that are asked for and have a function; those about servers where there is one."""
    return [
        code
        for code in RULES
        if (server or not code.startswith(SERVER_GROUP))
        and (not select or matches(code, select))
        and not matches(code, ignore)
    ]


def _whole(
    reading: Reading,
    findings: Iterable[Finding],
    not_checked: list[NotChecked],
    select: Sequence[str],
    ignore: Sequence[str],
    codes: Sequence[str],
    started: float,
) -> Report:
    not_checked = [*not_checked, *unread(reading), *reading.not_read]
    if not reading.on_server:
        not_checked += _about_servers(select, ignore)
    return _report(
        reading,
        tuple(sorted(findings, key=lambda f: (-f.severity, f.code))),
        tuple(not_checked),
        tuple(i for i in incidents(reading) if _wanted(i.codes, select, ignore)),
        codes=codes,
        seconds=time.monotonic() - started,
    )


def _look(
    install: Install,
    host: Host,
    say: Progress,
    sealing: Sealing | NotChecked,
    find: FindSecrets | None,
    how: ServerRead,
) -> Reading:
    """A look beside the last seal; where there is none an ordinary one, which is quicker."""
    if isinstance(sealing, Sealing) and isinstance(sealing.last, LastSeal):
        return look(install, host, say, sealing, find, how)
    last = sealing.last if isinstance(sealing, Sealing) else sealing
    assert isinstance(last, NotChecked)
    return replace(look(install, host, say, find=find, how=how), last_seal=last)


def judge(reading: Reading, codes: Iterable[str]) -> tuple[list[Finding], list[NotChecked]]:
    """What these rules find in a reading, and what they could not look at."""
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    for code in codes:
        for verdict in RULES[code](reading):
            if isinstance(verdict, Finding):
                findings.append(_without_rows(verdict) if reading.on_server else verdict)
            else:
                not_checked.append(verdict)
    return findings, not_checked


def _without_rows(finding: Finding) -> Finding:
    """The finding without the row of its point: a server has none."""
    evidence = {key: value for key, value in finding.evidence.items() if key != "point row"}
    return replace(finding, evidence=evidence)


def _standing(reading: Reading, findings: Iterable[Finding]) -> Reading:
    """The reading with only the disagreements that stood, so that no incident is made of the others."""
    both = reading.comparison
    if both is None:
        return reading
    ids = {
        code: {f.memory_id for f in findings if f.code == code} for code in ("D301", "D302", "D303", "D304")
    }
    kept = replace(
        both,
        resurrected=tuple(i for i in both.resurrected if i in ids["D301"]),
        lost=tuple(i for i in both.lost if i in ids["D302"]),
        unlogged=tuple(i for i in both.unlogged if i in ids["D303"]),
        differing=tuple(i for i in both.differing if i in ids["D304"]),
    )
    return replace(reading, standing=kept)


def _nothing_there(reading: Reading) -> bool:
    history_missing = not reading.history_place.exists and reading.history_place.problem is None
    if reading.on_server:
        return False  # somebody named it
    vectors = reading.vectors_place
    return history_missing and (vectors is None or (not vectors.exists and vectors.problem is None))


def _absent(reading: Reading) -> tuple[NotChecked, ...]:
    places = [p for p in (reading.history_place, reading.vectors_place) if p is not None]
    return tuple(NotChecked(p.path, "not there") for p in places)


def _wanted(codes: Sequence[str], select: Sequence[str], ignore: Sequence[str]) -> bool:
    if not codes:
        return not select
    return any((not select or matches(c, select)) and not matches(c, ignore) for c in codes)


def _about_servers(select: Sequence[str], ignore: Sequence[str]) -> list[NotChecked]:
    """The rules about servers, which are not asked where there is none."""
    return [
        NotChecked(code, NO_SERVER, gap=False)
        for code in CATALOGUE
        if code.startswith(SERVER_GROUP) and _wanted((code,), select, ignore)
    ]


def _report(
    reading: Reading,
    findings: tuple[Finding, ...],
    not_checked: tuple[NotChecked, ...],
    events: tuple[Incident, ...],
    *,
    codes: Sequence[str],
    seconds: float,
) -> Report:
    unchecked = {n.what for n in not_checked}
    places = [p for p in (reading.vectors_place, reading.history_place) if p is not None]
    history = reading.history
    return Report(
        install=reading.install,
        places=tuple(places),
        holders=reading.holders,
        agent=reading.agent,
        checked=tuple(c for c in codes if c not in unchecked),
        not_checked=not_checked,
        incidents=events,
        findings=findings,
        counts={
            "memories": reading.memory_count,
            "entities": reading.entity_count,
            "changes": None if reading.timeline is None else len(reading.timeline.rowids),
            "live": reading.log_live_count,
            "messages": None if history is None else history.tables.get("messages", 0),
        },
        candidates=reading.candidates,
        seconds=seconds,
        versions=_server_version(reading),
        collections=tuple(c.info.name for c in reading.collections),
        snapshots=reading.snapshots,
    )


def _server_version(reading: Reading) -> dict[str, str]:
    layout = reading.layout
    return {"qdrant": layout.version} if layout is not None and layout.version is not None else {}
