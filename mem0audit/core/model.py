"""The words of the project as data: what is read, what it stands on, and what is said of it.

Everything here is plain and frozen. Nothing in this module opens, asks or decides anything.
Times are strings as the stores hold them unless a name ends in `_at` with type float: then they are
seconds since 1970, UTC. Sizes are bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from mem0audit.core.server import Secret

T = TypeVar("T")
PointId = str | int
"""A Qdrant point id, normalised: an int, or a UUID as lower-case text with dashes."""


class Severity(enum.IntEnum):
    """How bad a finding is; larger is worse, so that severities compare and sort."""

    INFO = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4

    @property
    def label(self) -> str:
        """The word users see: `info`, `low`, `medium`, `high` or `critical`."""
        return self.name.lower()


class Certainty(enum.IntEnum):
    """How sure an incident is, from its evidence."""

    POSSIBLE = 0
    LIKELY = 1
    CERTAIN = 2

    @property
    def label(self) -> str:
        """The word users see: `possible`, `likely` or `certain`."""
        return self.name.lower()


# --- What an install is -------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """A value and what decided it, for example `("/tmp/qdrant", "mem0's default")`."""

    value: str
    decided_by: str


@dataclass(frozen=True)
class Install:
    """One mem0 configuration: a history file, a vector store and its collection.

    `vectors` is the embedded folder; it is None where the store is a server (`server_url`) or another
    product than Qdrant (`provider`). `embedder_dims` and `on_disk` are None where no configuration
    said them. All paths are absolute and not resolved: symlinks stay as the user wrote them.
    """

    history: Origin
    vectors: Origin | None
    collection: Origin
    mem0_dir: Origin
    provider: str = "qdrant"
    server_url: Origin | None = None
    """The server's address as `core.server.parse_address` makes it whole; no credentials are in it."""
    server_key: Secret | None = None
    server_key_from: str | None = None
    """Where the key comes from ("$NAME", a file); None where there is none."""
    nodes: tuple[str, ...] = ()
    """The addresses of the other nodes of the server's cluster, as far as the user named them."""
    embedder_dims: int | None = None
    on_disk: bool | None = None
    agent_python: str | None = None
    config_file: str | None = None

    @property
    def entities_collection(self) -> str:
        """The name of the entities collection (mem0 2.x: `<collection>_entities`)."""
        return f"{self.collection.value}_entities"


@dataclass(frozen=True)
class Cleaning:
    """A systemd-tmpfiles rule that empties a directory.

    `when` is "at boot" for D and R lines, else the age as the rule says it ("10d").
    """

    source: str
    line: str
    when: str


@dataclass(frozen=True)
class Place:
    """What one path of an install stands on. None means: could not be found out from here."""

    path: str
    exists: bool
    filesystem: str | None = None
    mount_point: str | None = None
    volatile: bool | None = None
    network: bool | None = None
    container_layer: bool | None = None
    cleaned: Cleaning | None = None
    readable_by_others: str | None = None
    """How others reach it ("mode 0644, every parent searchable"), None when they cannot."""
    replaceable_parent: str | None = None
    """A parent folder in which others may replace entries (writable, not sticky), None if none."""
    size_bytes: int | None = None
    free_bytes: int | None = None
    born_at: float | None = None
    modified_at: float | None = None
    link_target: str | None = None
    problem: str | None = None
    """Why it could not be looked at ("permission denied"), None when it could."""


@dataclass(frozen=True)
class Holder:
    """A process that has a store of the install open.

    `how` is "lock" (it holds Qdrant's `.lock`) or "file". `unit` is a systemd unit, `container` a
    container id or name; None where it has none. `private_mounts` is True where it lives in another
    mount namespace than ours, so that the same path may mean another folder to it; `private_tmp` where
    moreover its /tmp is not ours. `interpreter` is its Python; versions are read from its
    site-packages without importing anything.
    """

    pid: int
    command: str
    how: Literal["lock", "file"]
    paths: tuple[str, ...] = ()
    user: str | None = None
    unit: str | None = None
    container: str | None = None
    private_mounts: bool = False
    private_tmp: bool = False
    interpreter: str | None = None
    started_at: float | None = None
    user_unit: bool = False
    """`unit` is one of the user's own manager: `systemctl --user stop` stops it."""


@dataclass(frozen=True)
class Agent:
    """Whose mem0 it is. A version is None where it is unknown; `source` says how it was found."""

    interpreter: str | None
    mem0_version: str | None
    client_version: str | None
    source: str


@dataclass(frozen=True)
class Candidate:
    """Another store found on this machine.

    `kind` is "history" or "vectors"; `found_by` says why we looked there ("held by pid 812",
    "home of root", "mem0's default", "working directory of pid 9"). `command` audits it as printed.
    """

    kind: Literal["history", "vectors"]
    path: str
    found_by: str
    command: str | None = None
    memories: int | None = None


@dataclass(frozen=True)
class NotChecked:
    """Something that was not looked at. `what` is a rule code, a path or a place.

    `gap` is True when it makes the audit incomplete (exit 3), False where it could not apply or was
    not asked for (no seal, the agent's version unknown, other people's processes).
    """

    what: str
    why: str
    gap: bool = True


# --- What is read -------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileState:
    """One SQLite file as it was found and opened.

    `journal_mode` is "rollback" or "wal", from bytes 18 and 19 of the header. `way` is how it was read:
    "read-only", "readonly-shm", "immutable" or "scratch copy"; "scroll" where it is no file but a collection of a
    server, "shard snapshots" where that was read as of one instant. `problem` is None when it was read whole.
    """

    path: str
    size_bytes: int = 0
    journal_mode: Literal["rollback", "wal"] | None = None
    way: str | None = None
    hot_journal: bool = False
    integrity: tuple[str, ...] | None = None
    """Lines of `integrity_check` that are not "ok"; () when ok; None when it was not run whole."""
    problem: FileProblem | None = None
    longest_hold_s: float = 0.0
    free_pages: int | None = None


@dataclass(frozen=True)
class FileProblem:
    """Why a file could not be read, or not whole.

    `kind`: "missing", "folder", "empty", "not-sqlite", "no-table", "damaged", "permission",
    "link-loop", "busy", "gone" (it changed identity while read) or "other". `detail` is one short line
    without memory text.
    """

    kind: str
    detail: str


class VectorFacts(NamedTuple):
    """What a point's vectors look like, without their floats.

    `dims` is the length of the dense unnamed vector, None where the point has none. `flaw` is "zero",
    "nan" (NaN or infinite) or None. `names` are the named vectors beside it (`bm25`).
    """

    dims: int | None
    flaw: Literal["zero", "nan"] | None
    names: tuple[str, ...] = ()


KeepPoint = Callable[[int, PointId, "Mapping[str, Any]", VectorFacts], T]
"""Called once a point with (rowid, normalised id, payload, vector facts); its result is kept."""


@dataclass(frozen=True)
class DuplicateRows:
    """Several rows for one point id. The highest rowid is what Qdrant loads, the others are losers."""

    point_id: PointId
    kept_rowid: int
    loser_rowids: tuple[int, ...]


@dataclass(frozen=True)
class BadRow:
    """A row whose blob does not decode (`reason`), or names what qdrant-client never writes (`names`)."""

    rowid: int
    point_id: PointId | None
    reason: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class CollectionInfo:
    """A collection as `meta.json` and the folders say it.

    `dims` is the size of the unnamed dense vector, None if it has none; `listed` whether meta.json
    names it, `has_folder` whether its folder (with a storage file) exists. `config_keys` are the
    collection's configuration keys as paths ("vectors.on_disk"), which date the writing client.
    `legacy` is True for a storage.dbm of qdrant-client before 1.1.7 that has no storage.sqlite, `closed`
    for a folder that could not be looked into (then `has_folder` is True, and reading it says why).
    """

    name: str
    path: str
    dims: int | None
    listed: bool
    has_folder: bool
    keyword_slot: bool = False
    config_keys: tuple[str, ...] = ()
    legacy: bool = False
    closed: bool = False
    server: ServerSide | None = None
    """What a server says of it; None for a folder, and where it was not asked."""
    foreign: bool = False
    """A collection of a server that is none of the install's, nor mem0's own: it is named and left alone."""


@dataclass(frozen=True)
class ShardCopy:
    """One copy of one shard as a server's node sees it: `state` is Qdrant's word ("Active", "Dead", …), `peer` the
    node that has it, None for the node that was asked."""

    shard: int
    state: str
    peer: str | None = None


@dataclass(frozen=True)
class ServerSide:
    """What only a server has to say of a collection.

    `status` is "green", "yellow" (being optimised), "grey" (waits for that) or "red"; `error` the optimiser's, None
    where it has none. `points` is the server's own, approximate count; `indexed` the payload fields with an index;
    `strict` the strict mode's limits where that is on. `copies` is empty where the key may not see them; `silent` is
    what the server says where one of them does not answer, whatever state it is in.
    """

    status: str
    error: str | None = None
    points: int | None = None
    indexed: tuple[str, ...] = ()
    replicas_wanted: int = 1
    copies: tuple[ShardCopy, ...] = ()
    silent: str | None = None
    strict: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoreLayout:
    """What a store holds: the embedded folder (what `meta.json` says beside what lies on disk), or a server, whose
    `path` is its address and `version` its version."""

    path: str
    exists: bool
    collections: tuple[CollectionInfo, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    meta_problem: str | None = None
    """None when meta.json reads; else "missing", "not JSON: …", "permission denied" and the like."""
    problem: FileProblem | None = None
    """The folder itself cannot be looked at, or the server does not answer as it should."""
    version: str | None = None
    read_only_key: bool = False
    """The key is a token that says of itself that it may only read."""
    lacks: str | None = None
    """The collection that is meant, where a server does not have it."""


@dataclass(frozen=True)
class PointsRead(Generic[T]):
    """All points of one collection as of one instant. `rows` maps the id to what `keep` returned."""

    file: FileState
    rows: Mapping[PointId, T]
    duplicates: tuple[DuplicateRows, ...] = ()
    bad: tuple[BadRow, ...] = ()
    unsafe: tuple[BadRow, ...] = ()


@dataclass(frozen=True)
class FoundPoint:
    """One row of one point id. `winner` is the row Qdrant loads (the highest rowid that decodes).

    `problem` says why a row does not decode; then payload is empty and the facts know nothing. A server has no rows:
    there `rowid` is 0.
    """

    rowid: int
    point_id: PointId
    payload: Mapping[str, Any]
    vector: VectorFacts
    winner: bool
    problem: str | None = None


class PointStore(Protocol):
    """A vector store to read: an embedded folder (`stores.embedded`) or a server (`stores.serverstore`)."""

    def layout(self) -> StoreLayout:
        """What collections there are; never raises."""
        ...

    def points(
        self, collection: CollectionInfo, keep: KeepPoint[T], *, helped: bool = False
    ) -> PointsRead[T]:
        """Every point of a collection, each through `keep`: a folder's as of one instant, a server's where its shards'
        snapshots are read. With `helped` several processes may do it. Never raises for what the store is:
        `file.problem` says it."""
        ...

    def find(self, collection: CollectionInfo, point_id: PointId) -> tuple[FoundPoint, ...]:
        """What the collection has of one id, what Qdrant loads first. Raises CouldNotRead."""
        ...

    def holding(self, collection: CollectionInfo, ids: Collection[str]) -> frozenset[str]:
        """Which of these ids the collection has."""
        ...


class HistoryRow(NamedTuple):
    """One row of the `history` table, whatever schema it came from; absent columns are None."""

    rowid: int
    id: Any
    memory_id: Any
    old_memory: Any
    new_memory: Any
    event: Any
    created_at: Any
    updated_at: Any
    is_deleted: Any
    actor_id: Any
    role: Any


@dataclass(frozen=True)
class StrandedTable:
    """A table an interrupted migration left (`history_old`, `old_history`), rows that history lacks."""

    name: str
    rows: int
    missing_rows: int
    memory_ids: frozenset[str] = frozenset()
    """The memories of the missing rows."""


@dataclass(frozen=True)
class MessageScope:
    """How many raw messages with a text one session scope keeps; `scope` is the key as mem0 wrote it."""

    scope: str
    count: int


@dataclass(frozen=True)
class HistoryFile:
    """What `history.db` is, apart from the rows themselves.

    `schema` is "7 columns", "9 columns", "10 columns", "other" or None (no table). `tables` maps every
    table to its row count (None where it cannot be counted), `create_statements` to its exact SQL.
    """

    file: FileState
    schema: str | None = None
    columns: tuple[str, ...] = ()
    tables: Mapping[str, int | None] = field(default_factory=dict)
    create_statements: Mapping[str, str] = field(default_factory=dict)
    stranded: tuple[StrandedTable, ...] = ()
    message_scopes: tuple[MessageScope, ...] = ()
    first_row_id: str | None = None


class RowSink(Protocol):
    """Takes history rows in rowid order, a page at a time."""

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page; pages come in rowid order and never repeat a row."""
        ...


# --- Snapshots ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeenSnapshot:
    """One snapshot of an install as an audit sees it, in passing: its manifest, names and sizes, not its bytes.

    `taken_at` is seconds since 1970, None where its manifest does not read. `problems` are in short what is wrong
    with its files, now or when it was last verified; none where that is nothing. `verified_at` is when every byte of
    it was last found good. `erased` is how many memories it holds of somebody who was erased since. `changes` are the
    rows of its log, `lost` the memories live in it that its vectors lack; None where its manifest does not say.
    `until` is when a short-lived one goes, in seconds since 1970: it is residue, and no way back.
    """

    name: str
    path: str
    taken_at: float | None
    settled: bool = True
    unsettled_why: str | None = None
    pair: bool = True
    problems: tuple[str, ...] = ()
    verified_at: float | None = None
    erased: int = 0
    changes: int | None = None
    lost: int | None = None
    until: float | None = None

    @property
    def good(self) -> bool:
        """A pair of both stores that nothing is known to be wrong with."""
        return self.pair and not self.problems


@dataclass(frozen=True)
class Snapshots:
    """What is known of an install's snapshots. `folders` were looked in, `snapshots` are in the order of time.

    `max_age_s` is how old the newest may be, in seconds; `seen_at` when this was so, in seconds since 1970.
    """

    folders: tuple[str, ...]
    snapshots: tuple[SeenSnapshot, ...]
    not_read: tuple[NotChecked, ...]
    max_age_s: float
    seen_at: float
    unfinished: tuple[str, ...] = ()
    """Hidden folders of a run that is at work there, or was cut off: no snapshots."""

    @property
    def newest_good(self) -> SeenSnapshot | None:
        """The newest pair that nothing is known to be wrong with."""
        return next((one for one in reversed(self.snapshots) if one.good and one.until is None), None)

    def before_loss(self, lost: int) -> SeenSnapshot | None:
        """The newest good pair from before `lost` memories went, with nobody in it who was erased since: it lacks at
        most half as many. One taken since lacks them too, and would bring nothing back."""
        return next((one for one in self._ways_back() if (one.lost or 0) * 2 <= lost), None)

    def before_reset(self, changes: int) -> SeenSnapshot | None:
        """The newest such pair from before a reset after which the log has grown to `changes` rows: it holds more,
        since mem0 takes no row away."""
        return next((one for one in self._ways_back() if (one.changes or 0) > changes), None)

    def _ways_back(self) -> list[SeenSnapshot]:
        return [one for one in reversed(self.snapshots) if one.good and not one.erased and one.until is None]


# --- What is said -------------------------------------------------------------------------------

Evidence = Mapping[str, str | int | float | bool | None]
"""Values, row ids and times that show a finding; never memory text. Order is display order."""


@dataclass(frozen=True)
class Finding:
    """One fault. `path` is the file or folder it is in. `subject` is what else identifies it
    (a collection, a table, a scope), for findings about no single memory. `help` is a command that runs
    as printed, or the manual steps."""

    code: str
    severity: Severity
    memory_id: str | None = None
    path: str | None = None
    subject: str | None = None
    evidence: Evidence = field(default_factory=dict)
    help: str | None = None


@dataclass(frozen=True)
class Incident:
    """The one event that explains many findings.

    `kind` is stable, for machines ("emptied-at-reboot"); `name` the sentence for people. `explains` are
    the codes it stands for, `memory_ids` those of the memories concerned.
    """

    kind: str
    name: str
    certainty: Certainty
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    codes: tuple[str, ...]
    memory_ids: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CopyOf:
    """A snapshot or a backup that was audited: its folder, the instant it is of (`taken_at`), as text what says so,
    and whether its halves were taken together."""

    path: str
    taken_at: float
    dated_by: str
    pair: bool


@dataclass(frozen=True)
class SealOutcome:
    """What came of sealing. `extended`: a seal was put to the chain; else `why` says why not.

    `number` and `at` (seconds since 1970) are the newest seal's, None where there is none. `accepted` names what
    the new seal lets stand. `unchanged`: everything is as the newest seal has it, so that none was needed.
    """

    extended: bool
    why: str | None = None
    number: int | None = None
    at: float | None = None
    accepted: tuple[str, ...] = ()
    unchanged: bool = False
    memories: int = 0
    rows: int = 0

    @property
    def refused(self) -> bool:
        """There is something to seal, and it was not sealed."""
        return not self.extended and not self.unchanged


@dataclass(frozen=True)
class Report:
    """The result of an audit: what was read, what was not, and what it means."""

    install: Install
    places: tuple[Place, ...]
    holders: tuple[Holder, ...]
    agent: Agent
    checked: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]
    incidents: tuple[Incident, ...]
    findings: tuple[Finding, ...]
    counts: Mapping[str, int | None]
    """memories, entities, changes, live (by the log), messages, other: as read, None if not read."""
    candidates: tuple[Candidate, ...] = ()
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    collections: tuple[str, ...] = ()
    """Every collection with a folder, in the order of the folder's listing; what a copy must take."""
    snapshots: Snapshots | None = None
    """What is known of the install's snapshots; None where nobody looked for them."""
    copy: CopyOf | None = None
    """Set where not an install was audited but a snapshot or a backup."""
    seal: SealOutcome | None = None
    """What came of sealing; None where it was not asked for."""

    @property
    def store_paths(self) -> tuple[str, ...]:
        """The history file, and the embedded folder where there is one."""
        vectors = self.install.vectors
        return (self.install.history.value, *([vectors.value] if vectors else ()))

    @property
    def nothing_found(self) -> bool:
        """Neither store of the install exists, so that there was nothing to audit."""
        places = [p for p in self.places if p.path in self.store_paths]
        return bool(places) and all(not p.exists and p.problem is None for p in places) and not self.findings
