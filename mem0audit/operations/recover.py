"""Recover memories: which ones the log (or a snapshot) still has and the store lost, whose they are, and adding them
back through mem0's own API."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from mem0audit.core import recover as core
from mem0audit.core import snapshot as snapshot_core
from mem0audit.core.erasures import Covering, Erasure
from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import (
    CollectionInfo,
    FileProblem,
    HistoryRow,
    Install,
    NotChecked,
    PointId,
    PointStore,
    Report,
    Snapshots,
    VectorFacts,
)
from mem0audit.core.points import OWNER_KEYS, Owner, normalised, text_digest
from mem0audit.core.reconcile import SAME_INSTANT_S
from mem0audit.core.recover import LeftOut, Recoverable, Recovered, RecoverPlan, State
from mem0audit.core.times import instant
from mem0audit.install.config import Settings
from mem0audit.install.host import Host
from mem0audit.operations import ledger as ledgers
from mem0audit.operations.audit import audit
from mem0audit.operations.erasures import damaged_beside, erasures_on_record
from mem0audit.operations.interrupted import interrupted
from mem0audit.operations.known import known_snapshots
from mem0audit.operations.leftmoves import refuse_left_moves
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress, chosen_collection, no_collector, no_progress
from mem0audit.operations.mem0door import Door, open_door
from mem0audit.operations.otherroots import where_it_lies
from mem0audit.operations.stores import place_of, store_of
from mem0audit.operations.targets import refuse_in_use
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.history import read_history_file, read_rows, rows_of, speakers
from mem0audit.stores.ledger import CannotUse, KnownAgent
from mem0audit.stores.mem0api import Mem0Worker
from mem0audit.stores.snapshots import small_file

IN_A_ROW: Final = 3
"""So many memories in a row that could not be added mean the embedder, and not a text that is too long for it."""

MANY: Final = 500
"""From so many memories on one pass over the whole log is quicker than a look at each row of theirs."""

_Payload = Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. `memories` are ids (none: every one that was lost), `snapshot` the path of the one
    whose texts are meant, `assign_user` whose those are that nobody knows the owner of (`skip_unknown`: they are left
    out); `doubtful` takes those too
    that may have been deleted."""

    memories: tuple[str, ...] = ()
    snapshot: str | None = None
    assign_user: str | None = None
    skip_unknown: bool = False
    doubtful: bool = False


def plan_recover(
    install: Install,
    host: Host,
    wanted: Wanted,
    *,
    settings: Settings,
    ledger: bool = True,
    progress: Progress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> RecoverPlan:
    """Which memories can be added back, and whose they are. Changes nothing, and needs no embedder.

    Lost is what an audit calls lost (D302), at two looks where an agent is running. Raises CouldNotRead where a store
    could not be read whole or a named memory is not known, Refused where a record of erasures is damaged or a named
    memory was erased.
    """
    say = progress or no_progress
    known = known_snapshots(install, host, settings, ledger=ledger)
    report = audit(install, host, snapshots=known, progress=progress, pause=pause, ledger=ledger, keep=False)
    with no_collector():
        return _planned(report, known, host, wanted, ledger, say)


def _planned(
    report: Report, known: Snapshots, host: Host, wanted: Wanted, ledger: bool, say: Progress
) -> RecoverPlan:
    """The plan of an audited install. Raises as plan_recover does."""
    install = report.install
    _check_read(report)
    say("looking for texts and owners", None, None)
    record = _Record.read(install, known, host, ledger)
    lost = {f.memory_id for f in report.findings if f.code == "D302" and f.memory_id is not None}
    ids = _named_ids(wanted.memories) if wanted.memories else tuple(lost)
    rows = _rows(install, host, ids)
    store = _Store.read(install, host, [i for i in ids if i not in lost])
    if wanted.memories:
        _check_known(ids, rows, store, wanted.snapshot)
    sources = _Sources.read(install, host, known, ids, ledger, wanted.snapshot)
    agent = report.agent
    if agent.mem0_version is None and sources.agent is not None:
        agent = replace(agent, mem0_version=sources.agent.mem0, client_version=sources.agent.client)
    actors = core.owners_by_actor(
        _speakers(install, host),
        [
            (actor, owner)
            for i in ids
            if (actor := core.spoken_by(rows.get(i, ()))[1]) is not None
            for owner in (sources.ledger.get(i), sources.owner_in_snapshot(i))
            if owner is not None
        ],
    )
    sure = {
        i for incident in report.incidents if incident.kind in core.LOST_FOR_SURE for i in incident.memory_ids
    }
    sure |= sources.lost
    found: list[Recoverable] = []
    unknown: list[Recoverable] = []
    left: list[LeftOut] = []
    texts: list[Recoverable] = []
    for memory_id in ids:
        one = _recoverable(
            memory_id,
            rows.get(memory_id, ()),
            lost,
            store,
            sources,
            actors,
            wanted.snapshot,
            agent.mem0_version,
        )
        if one is None:
            left.append(LeftOut(memory_id, "no-text"))
        else:
            texts.append(one)
    back = _back_already(texts, store)
    covering = Covering(record.erasures)
    for one in texts:
        if one.memory_id in back:
            left.append(LeftOut(one.memory_id, "there", back[one.memory_id]))
            continue
        if one.owner is None and wanted.assign_user is not None:
            one = replace(one, owner=(wanted.assign_user, None, None), owner_by="--assign-user")
        left_out = _left_out(one, sources, covering, sure, wanted)
        if left_out is not None:
            left.append(left_out)
        elif one.owner is None:
            unknown.append(one)
        else:
            found.append(one)
    found.sort(key=lambda one: one.row)
    memories, again = _once(found, store)
    if wanted.memories:
        _refuse_erased(left)
    return RecoverPlan(
        install=install,
        agent=agent,
        lost=len(lost),
        lost_ids=frozenset(lost),
        memories=memories,
        left_out=tuple(left) + again,
        unknown=tuple(sorted(unknown, key=lambda one: one.row)),
        incidents=tuple(i for i in report.incidents if "D302" in i.codes),
        snapshot=known.before_loss(len(lost)) if lost else None,
        stranded=_stranded(install, host),
        not_read=record.not_read,
        not_looked_into=sources.not_read,
        asked=tuple(wanted.memories),
        running=bool(report.holders),
    )


def _check_read(report: Report) -> None:
    """Raises CouldNotRead where it is not known what is lost."""
    for one in report.not_checked:
        if one.what == "D302":
            why = "; ".join(dict.fromkeys(n.why for n in report.not_checked if n.gap and n.why != one.why))
            raise CouldNotRead(
                f"it is not known what is lost: {one.why}" + (f" ({why})" if why else ""),
                "what can be read, and how to read the rest: mem0audit audit",
            )
    if not report.checked:
        absent = ", ".join(f"{n.what}: {n.why}" for n in report.not_checked)
        raise CouldNotRead(
            f"nothing to recover from: {absent}", "where this install writes: mem0audit status"
        )


def _named_ids(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(normalised(word)) for word in words))


def _rows(install: Install, host: Host, ids: Collection[str]) -> dict[str, list[HistoryRow]]:
    """The rows of each memory, in rowid order. Raises CouldNotRead."""

    def failed(problem: FileProblem) -> NoReturn:
        raise CouldNotRead(f"{install.history.value}: {problem.detail}")

    def read(path: str) -> tuple[HistoryRow, ...]:
        if len(ids) < MANY:
            return rows_of(path, ids)
        state, kept = read_rows(path, lambda: _KeptRows(frozenset(ids)))
        if kept is None or state.problem is not None:
            raise CouldNotRead(f"{path}: {state.problem.detail if state.problem else 'cannot be read'}")
        return tuple(kept.found)

    rows = where_it_lies(install.history.value, host, read, failed) if ids else ()
    found: dict[str, list[HistoryRow]] = defaultdict(list)
    for row in rows:
        found[str(row.memory_id)].append(row)
    return found


class _KeptRows:
    """Takes history rows (a `model.RowSink`) and keeps those of some memories."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted
        self.found: list[HistoryRow] = []

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        self.found += [row for row in page if row.memory_id in self.wanted]


def _speakers(install: Install, host: Host) -> frozenset[tuple[Any, Any]]:
    def none(problem: FileProblem) -> frozenset[tuple[Any, Any]]:
        return frozenset()

    try:
        return where_it_lies(install.history.value, host, speakers, none)
    except CouldNotRead:
        return frozenset()


def _stranded(install: Install, host: Host) -> tuple[Any, ...]:
    file = where_it_lies(install.history.value, host, read_history_file, lambda problem: None)
    return () if file is None else tuple(table for table in file.stranded if table.missing_rows)


def _check_known(
    ids: Sequence[str], rows: Mapping[str, Sequence[HistoryRow]], store: _Store, snapshot: str | None
) -> None:
    for memory_id in ids:
        if not rows.get(memory_id) and memory_id not in store.payloads and snapshot is None:
            raise CouldNotRead(
                f"no memory {memory_id[:200]} in the log or the store",
                "a snapshot that still has it: --snapshot NAME; newest changes: mem0audit log",
            )


# --- One memory ---------------------------------------------------------------------------------------


def _recoverable(
    memory_id: str,
    rows: Sequence[HistoryRow],
    lost: Collection[str],
    store: _Store,
    sources: _Sources,
    actors: Mapping[str, Owner],
    snapshot: str | None,
    mem0: str | None,
) -> Recoverable | None:
    """What there is of a memory to add again; None where no text of it is left."""
    payload, named = sources.payload(memory_id)
    here = store.payloads.get(memory_id)
    state: State = "lost" if memory_id in lost else "deleted" if here is None else "overwritten"
    found = core.text_before(rows) if state == "overwritten" else core.last_text(rows)
    text, row = found if found is not None else (None, rows[-1] if rows else None)
    if (
        (snapshot is not None or text is None)
        and payload is not None
        and isinstance(payload.get("data"), str)
    ):
        text = payload["data"]
    if text is None or not text.strip():
        return None
    role, actor = core.spoken_by(rows)
    snapshot_owner = sources.owner_in_snapshot(memory_id)
    if here is not None:
        owner, by = core.whose(_owner(here), None, None, None, mem0)
        by = by.replace("the ledger", "the store")
    else:
        owner, by = core.whose(
            sources.ledger.get(memory_id),
            snapshot_owner,
            named,
            actors.get(actor) if actor else None,
            mem0,
        )
    return Recoverable(
        memory_id=memory_id,
        text=text,
        state=state,
        row=row.rowid if row is not None else 0,
        created_at=core.added_at(rows) or (payload or {}).get("created_at"),
        logged_at=(row.updated_at or row.created_at) if row is not None else None,
        owner=owner,
        owner_by=by,
        role=role,
        actor=actor,
        metadata=core.own_metadata(payload) if payload is not None else {},
        metadata_by=named if payload is not None else None,
        expires=_expires(payload, rows),
    )


def _expires(payload: _Payload | None, rows: Sequence[HistoryRow]) -> str | None:
    """The expiration date that a snapshot has of a memory; None where the log has a change of it since then, which may
    have been of the date."""
    if payload is None or not isinstance(payload.get("expiration_date"), str):
        return None
    logged = [at for row in rows if (at := instant(row.updated_at or row.created_at)) is not None]
    held = instant(payload.get("updated_at") or payload.get("created_at"))
    if logged and held is not None and logged[-1] - held > SAME_INSTANT_S:
        return None
    return str(payload["expiration_date"])


def _owner(payload: _Payload) -> Owner:
    return (payload.get("user_id"), payload.get("agent_id"), payload.get("run_id"))


def _left_out(
    one: Recoverable,
    sources: _Sources,
    covering: Covering,
    sure: Collection[str],
    wanted: Wanted,
) -> LeftOut | None:
    """Why a memory is not added; None where it is."""
    if any(_is_erased(one, owner, covering) for owner in (one.owner, sources.ledger.get(one.memory_id))):
        return LeftOut(one.memory_id, "erased")
    if one.state == "lost" and one.memory_id not in sure and not (wanted.doubtful or wanted.memories):
        return LeftOut(one.memory_id, "doubtful")
    if one.owner is None and wanted.skip_unknown:
        return LeftOut(one.memory_id, "owner", one.owner_by)
    return None


def _is_erased(one: Recoverable, owner: Owner | None, covering: Covering) -> bool:
    """Whether it was erased: by its id, or as an older memory of a scope that its owner lies in.

    One whose time is not known counts as older.
    """
    at = instant(one.logged_at or one.created_at)
    if covering.has_id(one.memory_id):
        return True
    return owner is not None and covering.covers_memory(owner, one.memory_id, at)


def _refuse_erased(left: Iterable[LeftOut]) -> None:
    for one in left:
        if one.why == "erased":
            raise Refused(f"{one.memory_id} was erased on request: it is never brought back")


def _back_already(texts: Iterable[Recoverable], store: _Store) -> dict[str, str]:
    """Of those that nobody knows the owner of, the ones that were added back before, as the store shows it where the
    ledger of that run is gone: they are of whoever they were added for, and not of another one. Old id -> new id.

    Of memories that say the same, one had been added for all.
    """
    lost = [one for one in texts if one.owner is None and one.state == "lost"]
    by_text: dict[bytes, str] = {}
    for one in lost:
        key = core.made(one.text, one.created_at)
        if key is not None and key in store.made:
            by_text[key[0]] = store.made[key]
    digests = {one.memory_id: text_digest(one.text) for one in lost}
    return {i: by_text[digest] for i, digest in digests.items() if digest in by_text}


def _once(found: Sequence[Recoverable], store: _Store) -> tuple[tuple[Recoverable, ...], tuple[LeftOut, ...]]:
    """Those whose text is not there yet for their owner, each text once for an owner."""
    kept, left = [], []
    seen: dict[core.Twin, str] = {}
    for one in found:
        assert one.owner is not None
        key = core.twin(one.text, one.owner)
        if key in store.twins:
            left.append(LeftOut(one.memory_id, "there", store.twins[key]))
        elif key in seen:
            left.append(LeftOut(one.memory_id, "twice", seen[key]))
        else:
            seen[key] = one.memory_id
            kept.append(one)
    return tuple(kept), tuple(left)


# --- Adding them back -----------------------------------------------------------------------------------


def apply_recover(
    plan: RecoverPlan,
    door: Door,
    host: Host,
    config: Mapping[str, Any],
    *,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
) -> Recovered:
    """Adds the memories that were planned, oldest first, through the agent's mem0 and with the user's own embedder.

    `config` is the dict that the user gives to `Memory.from_config`. Each new id is recorded in the ledger at once, and
    a text that its owner has by now is not added: so a run that was cut off goes on where it stopped, and a second one
    adds nothing. One that cannot be added is named and skipped, some in a row end the run. Raises Refused where the
    install is in use or no ledger can be kept, Failed where it stopped half-way: the message says how far it came.
    """
    say = progress or no_progress
    started = time.monotonic()
    refuse_in_use(plan.install, host)
    refuse_left_moves(plan.install, host)
    if interrupted(plan.install, host) is not None:
        raise Refused(
            "a restore was cut off here: that comes first", "mem0audit snapshot restore --in-place --dry-run"
        )
    done: dict[str, str] = {}
    added: list[tuple[str, str]] = []
    failed: list[tuple[str, str]] = []
    row = 0
    with ledgers.opened(plan.install, host, make=True) as book:
        if book is None or isinstance(book, NotChecked):
            raise Refused(
                f"what is added back is recorded in the ledger, and there is none: {book.why if book else 'not kept'}",
                "their texts without it: mem0audit recover --export FILE",
            )
        try:
            book.note_lost(_lost_for_sure(plan), now())
            if plan.memories:
                say("opening mem0", None, None)
                with open_door(door, host, config=config) as memory:
                    # by now nobody else can write
                    twins = _Store.read(plan.install, host, ()).twins
                    for number, one in enumerate(plan.memories):
                        say("adding memories back", number, len(plan.memories))
                        assert one.owner is not None
                        new = twins.get(core.twin(one.text, one.owner))
                        if new is None:
                            try:
                                new = _added(memory, one, door.mem0)
                            except (Failed, Refused) as problem:
                                failed.append((one.memory_id, problem.message))
                                row += 1
                                if row == IN_A_ROW:
                                    raise
                                continue
                            added.append((one.memory_id, new))
                            row = 0
                        done[one.memory_id] = new
                        if one.state == "lost":
                            book.note_recovered(one.memory_id, new, now())
            for out in plan.left_out:
                if (
                    out.why in ("there", "twice")
                    and out.detail is not None
                    and out.memory_id in plan.lost_ids
                ):
                    book.note_recovered(out.memory_id, done.get(out.detail, out.detail), now())
        except CannotUse as error:
            raise _stopped(f"the ledger {error.why}", None, len(done), len(plan.memories)) from None
        except (Failed, Refused) as problem:
            if not done and not failed:
                raise
            first = failed[-row][1] if row else problem.message
            raise _stopped(first, problem.hint, len(done), len(plan.memories)) from None
    there = len(done) - len(added)
    return Recovered(plan, tuple(added), door.mem0, there, tuple(failed), time.monotonic() - started)


def _lost_for_sure(plan: RecoverPlan) -> list[str]:
    """Those that wait or are added, now or as the twins of others."""
    ids = [one.memory_id for one in plan.texts if one.state == "lost"]
    return ids + [
        out.memory_id
        for out in plan.left_out
        if out.why in ("there", "twice") and out.memory_id in plan.lost_ids
    ]


def _added(memory: Mem0Worker, one: Recoverable, mem0: str) -> str:
    owner = {k: v for k, v in zip(OWNER_KEYS, one.owner or (), strict=True) if v is not None}
    # what a pickle can hold and JSON cannot is given as text
    metadata = json.loads(json.dumps(core.metadata_for(one, mem0), default=str))
    return memory.add(
        one.text,
        owner,
        metadata or None,
        core.expiration_for(one, mem0),
        role=core.role_of(one),
        name=one.actor,
    )


def _stopped(why: str, hint: str | None, done: int, of: int) -> Failed:
    return Failed(
        f"{done:,} of {of:,} were added back, then: {why}; nothing is lost",
        f"the same command goes on with the others{f'; {hint}' if hint else ''}",
    )


# --- Where owners, texts and erasures are known --------------------------------------------------------


@dataclass(frozen=True)
class _Record:
    """The erasures on record, and which places could not be read."""

    erasures: tuple[Erasure, ...]
    not_read: tuple[str, ...]

    @staticmethod
    def read(install: Install, known: Snapshots, host: Host, ledger: bool) -> _Record:
        """Raises Refused where the ledger is damaged: it may say that somebody was erased."""
        folders: list[str | None] = [f for f in known.folders if Path(f).is_dir()]
        found: dict[Erasure, None] = {}
        not_read: dict[str, None] = {}
        for folder in folders or [None]:
            record = erasures_on_record(install, folder, host, ledger=ledger)
            damaged = [gap for gap in record.not_read if gap.what == "ledger" and gap.gap]
            if damaged:
                raise Refused(
                    f"the ledger {damaged[0].why}: it is not known who was erased",
                    "to go on without it: --no-ledger",
                )
            found.update(dict.fromkeys(record.erasures))
            gaps = damaged_beside(record) if record.known else record.not_read
            not_read.update(dict.fromkeys(f"{gap.what}: {gap.why}" for gap in gaps))
        return _Record(tuple(found), tuple(not_read))


@dataclass(frozen=True)
class _Store:
    """What the store holds now: by text and owner, by text and time, and the payloads of the memories that were asked
    for."""

    twins: Mapping[core.Twin, str]
    made: Mapping[Any, str]
    payloads: Mapping[str, _Payload]

    @staticmethod
    def read(install: Install, host: Host, ids: Collection[str]) -> _Store:
        """Raises CouldNotRead."""
        folder, wanted = place_of(install), frozenset(ids)

        def failed(problem: FileProblem) -> NoReturn:
            raise CouldNotRead(f"{folder}: {problem.detail}")

        def read(store: PointStore) -> tuple[dict[core.Twin, str], dict[Any, str], dict[str, _Payload]]:
            twins: dict[core.Twin, str] = {}
            made: dict[Any, str] = {}
            payloads: dict[str, _Payload] = {}

            def keep(_row: int, point_id: PointId, payload: _Payload, _facts: VectorFacts) -> None:
                data = payload.get("data")
                if type(data) is str:
                    twins[core.twin(data, _owner(payload))] = str(point_id)
                    if (key := core.made(data, payload.get("created_at"))) is not None:
                        made[key] = str(point_id)
                if str(point_id) in wanted:
                    payloads[str(point_id)] = dict(payload)

            layout = store.layout()
            name = chosen_collection(install.collection, layout).value
            for info in layout.collections:
                if info.name == name and info.has_folder and not info.legacy:
                    points = store.points(info, keep)
                    if points.file.problem is not None:
                        raise CouldNotRead(f"{points.file.path}: {points.file.problem.detail}")
            return twins, made, payloads

        if install.vectors is None:
            return _Store(*read(store_of(install)))
        return _Store(*where_it_lies(folder, host, lambda path: read(EmbeddedStore(path)), failed))


@dataclass(frozen=True)
class _Sources:
    """What the ledger and the snapshots know of the memories that are asked for: whose they are, and which are `lost`
    for sure because they were when others were added back."""

    ledger: Mapping[str, Owner]
    payloads: Mapping[str, tuple[_Payload, str]]
    lost: frozenset[str] = frozenset()
    agent: KnownAgent | None = None
    not_read: tuple[str, ...] = ()

    @staticmethod
    def read(
        install: Install,
        host: Host,
        known: Snapshots,
        ids: Collection[str],
        ledger: bool,
        snapshot: str | None,
    ) -> _Sources:
        """Raises CouldNotRead where the `snapshot` that is meant cannot be read."""
        wanted = frozenset(ids)
        owners: dict[str, Owner] = {}
        lost: frozenset[str] = frozenset()
        agent: KnownAgent | None = None
        with ledgers.opened(install, host, wanted=ledger) as book:
            if book is not None and not isinstance(book, NotChecked):
                try:
                    owners = {i: owner for i, owner in book.owners().items() if i in wanted}
                    lost, agent = book.lost(), book.agent()
                except CannotUse as error:
                    raise Refused(f"the ledger {error.why}", "to go on without it: --no-ledger") from None
        payloads: dict[str, tuple[_Payload, str]] = {}
        not_read: list[str] = []
        of_server: list[str] = []
        if snapshot is not None:
            with _memories_in(snapshot, install) as store:
                found = _in_snapshot(snapshot, store, wanted)
            payloads = {i: (payload, Path(snapshot).name) for i, payload in found.items()}
            return _Sources(owners, payloads, lost, agent)
        # the newest that has it counts
        for one in reversed(known.snapshots):
            missing = wanted - payloads.keys()
            if not missing or one.problems or one.taken_at is None:
                continue
            if Path(one.path, snapshot_core.SERVER).is_dir():
                of_server.append(one.path)
                continue
            try:
                found = _in_snapshot(one.path, _folder_of(one.path), missing)
            except CouldNotRead as problem:
                not_read.append(problem.message)
                continue
            payloads.update({i: (payload, one.name) for i, payload in found.items()})
        if of_server:
            more = f" and {len(of_server) - 1:,} more" if of_server[1:] else ""
            not_read.append(
                f"{of_server[0]}{more}, which only a server reads: yours does with --memory ID --snapshot DIR"
            )
        return _Sources(owners, payloads, lost, agent, tuple(not_read))

    def payload(self, memory_id: str) -> tuple[_Payload | None, str | None]:
        """A memory's payload in the newest snapshot that has it, and that snapshot's name."""
        return self.payloads.get(memory_id, (None, None))

    def owner_in_snapshot(self, memory_id: str) -> Owner | None:
        """Its owner there; None where no snapshot has it."""
        payload, _ = self.payload(memory_id)
        return None if payload is None else _owner(payload)


def _folder_of(path: str) -> EmbeddedStore:
    return EmbeddedStore(str(Path(path, snapshot_core.VECTORS)), alone=True)


@contextmanager
def _memories_in(path: str, install: Install) -> Iterator[PointStore]:
    """What reads the vectors of a snapshot: its folder; where a server took it, the server of the install, under a
    scratch name. Raises CouldNotRead."""
    if not Path(path, snapshot_core.SERVER).is_dir():
        yield _folder_of(path)
        return
    if install.vectors is not None or install.server_url is None:
        raise CouldNotRead(
            f"{path}: its points are in a Qdrant server's own format, which a server has to read",
            "restore it into new collections of one:  mem0audit snapshot restore --to NEWDIR --qdrant-url URL",
        )
    from mem0audit.operations.servererase import lent_memories

    try:
        manifest = snapshot_core.parse_manifest(small_file(Path(path, snapshot_core.MANIFEST)))
    except (OSError, ValueError, snapshot_core.NotAManifest):
        raise CouldNotRead(f"{path}: its manifest cannot be read") from None
    with lent_memories(Path(path), manifest, install) as store:
        yield store


def _in_snapshot(path: str, store: PointStore, ids: Collection[str]) -> dict[str, _Payload]:
    """The payloads of these memories in a snapshot. Raises CouldNotRead."""
    found: dict[str, _Payload] = {}

    def keep(_row: int, point_id: PointId, payload: _Payload, _facts: VectorFacts) -> None:
        if str(point_id) in ids:
            found[str(point_id)] = dict(payload)

    layout = store.layout()
    if layout.problem is not None or not layout.exists:
        raise CouldNotRead(f"{path}: its vectors cannot be read")
    for info in _of_memories(layout.collections):
        points = store.points(info, keep)
        if points.file.problem is not None:
            raise CouldNotRead(f"{path}: {points.file.problem.detail}")
    return found


def _of_memories(collections: Sequence[CollectionInfo]) -> list[CollectionInfo]:
    names = {info.name for info in collections}
    return [
        info
        for info in collections
        if info.has_folder
        and not info.legacy
        and not info.foreign
        and not (info.name.endswith(ENTITIES_SUFFIX) and info.name[: -len(ENTITIES_SUFFIX)] in names)
    ]
