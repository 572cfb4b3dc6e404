"""What a snapshot is: its manifest, its name, its digests, and what `verify` says of it.

A snapshot is one dated folder that holds both stores, taken as a pair:

    2026-11-29T023000Z/
      manifest.json           what it is (this module), written last
      manifest.json.sha256    the checksum of that file, as `sha256sum -c` reads it
      history.db
      qdrant/meta.json
      qdrant/collection/NAME/storage.sqlite

Where the points lie on a Qdrant server, `server/NAME.snapshot` is the server's own snapshot of a collection (a tar that
any Qdrant of a like version takes), in place of `qdrant/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from mem0audit.core.model import HistoryRow, Install, NotChecked, Origin, Place, SealOutcome
from mem0audit.core.points import EntityRecord, PointRecord
from mem0audit.core.times import instant, shown

if TYPE_CHECKING:
    from mem0audit.core.marks import Checked, Kept

FORMAT: Final = 1
SERVER_FORMAT: Final = 2
"""Of a snapshot whose points lie on a server: an older mem0audit says that it is of a newer one."""
KIND: Final = "mem0audit-snapshot"
MANIFEST: Final = "manifest.json"
CHECKSUM: Final = "manifest.json.sha256"
HISTORY: Final = "history.db"
VECTORS: Final = "qdrant"
META: Final = "qdrant/meta.json"
SERVER: Final = "server"
"""The folder of what a Qdrant server gave."""

BY_PAGES_BYTES: Final = 2_000_000_000
"""As much of both stores is copied page by page: before the locks, and read whole again while the agent waits, which
must never be longer than two seconds (1.7 GB in the page cache: about 0.8 s). The collections of larger ones are
copied row by row."""

NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{6}Z(-[1-9]\d{0,3})?", re.ASCII)
"""A snapshot's name: the second it was taken in, UTC, and a number where there are several of one second."""


class NotAManifest(Exception):
    """The manifest does not say what a manifest says; one line, without anything from the stores."""


@dataclass(frozen=True)
class SnapshotFile:
    """One file of a snapshot. `path` is relative to it, with slashes; `source` where it was copied from.

    `collection` is None for the log and for meta.json. `journal_mode` is that of the source ("rollback" or
    "wal", None for meta.json): a copy is always in rollback mode. `way` is how its pages were copied.
    """

    path: str
    size_bytes: int
    sha256: str
    source: str
    collection: str | None
    journal_mode: Literal["rollback", "wal"] | None
    way: str


CopyRole = Literal["memories", "entities", "telemetry"]


@dataclass(frozen=True)
class ShardFile:
    """One shard of a collection in a snapshot: `path` is its file."""

    shard: int
    path: str


@dataclass(frozen=True)
class CollectionCopy:
    """One collection of a server in a snapshot. `path` is its file, relative to the snapshot; `params` and
    `payload_schema` are as the server says them of the collection (vectors, shards; field -> type of index), and so
    are the rest of its `config` and its `indexes` whole (field -> what it says of that): empty in older manifests.

    Of one that was spread over the nodes of a cluster `shards` has a file for each shard, and `path` is what their
    names begin with; else it is empty.

    `points` and `digest` are of all its points' ids and payloads, read while the server took its snapshot; None and ""
    where the points changed meanwhile, so that what the file holds is not known from outside.
    """

    name: str
    role: CopyRole
    path: str
    points: int | None
    digest: str
    params: Mapping[str, Any]
    payload_schema: Mapping[str, str]
    shards: tuple[ShardFile, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    indexes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files."""
        return tuple(one.path for one in self.shards) or (self.path,)


@dataclass(frozen=True)
class ServerCopy:
    """What a snapshot holds of a Qdrant server: its address (no credentials are in it), version and collections, the
    memories first."""

    url: str
    version: str
    collections: tuple[CollectionCopy, ...]


@dataclass(frozen=True)
class Manifest:
    """What a snapshot holds. Times are text (UTC), sizes bytes, `longest_hold_s` seconds.

    `counts` are memories, entities, changes and live (memories that exist by the log); None where the copy
    could not give the number. `findings` counts the D, H, E, I and C findings of the copy by code: the faults
    that the install itself had. `pair` is true where both stores were taken together. `until` is when a short-lived
    one goes, None for every other. `server` is None where the points lay in a folder; where they lay on a server,
    `vectors` is its address.
    """

    name: str
    created_at: str
    history: Origin
    vectors: Origin
    collection: Origin
    mem0_dir: Origin
    hostname: str
    filesystems: Mapping[str, str | None]
    versions: Mapping[str, str | None]
    files: tuple[SnapshotFile, ...]
    counts: Mapping[str, int | None]
    points_digest: str
    history_digest: str
    findings: Mapping[str, int]
    settled: bool
    unsettled_why: str | None
    tries: int
    longest_hold_s: float
    pair: bool = True
    until: str | None = None
    server: ServerCopy | None = None

    @property
    def short_lived_until(self) -> float | None:
        """`until` as seconds since 1970."""
        return None if self.until is None else instant(self.until) or 0.0

    @property
    def size_bytes(self) -> int:
        """All its files but the manifest."""
        return sum(file.size_bytes for file in self.files)

    @property
    def taken_at(self) -> float:
        """`created_at` as seconds since 1970."""
        return instant(self.created_at) or 0.0


def name_of(seconds: float) -> str:
    """The name of a snapshot taken then: `2026-11-29T023000Z`."""
    return shown(seconds).replace(":", "").replace(" ", "T")


# --- The manifest as text -----------------------------------------------------------------------


def manifest_text(manifest: Manifest) -> str:
    """The manifest file: JSON, ASCII, two spaces."""
    number = FORMAT if manifest.server is None else SERVER_FORMAT
    body = {"kind": KIND, "format": number, **asdict(manifest)}
    for key in ("until", "server"):  # as every manifest was before there were short-lived ones, and servers
        if body[key] is None:
            del body[key]
    return json.dumps(body, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def checksum_text(manifest: bytes) -> str:
    """The file beside the manifest, as `sha256sum -c` reads it."""
    return f"{sha256(manifest).hexdigest()}  {MANIFEST}\n"


def parse_manifest(data: bytes) -> Manifest:
    """A manifest file read strictly: every field, of its type, and no other.

    Raises NotAManifest with one line; a newer format is named as one.
    """
    try:
        raw = json.loads(data.decode("ascii"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotAManifest("is no JSON") from None
    if not isinstance(raw, dict) or raw.get("kind") != KIND:
        raise NotAManifest("is not a manifest of mem0audit's")
    number = raw.get("format")
    if type(number) is int and number > SERVER_FORMAT:
        raise NotAManifest(
            f"has format {number}, of a newer mem0audit: this one reads formats {FORMAT} and {SERVER_FORMAT}"
        )
    if type(number) is not int or number not in (FORMAT, SERVER_FORMAT):
        raise NotAManifest("names no format that there was")
    if (raw.get("server") is None) == (number == SERVER_FORMAT):
        raise NotAManifest("has another format than what it holds")
    del raw["kind"], raw["format"]
    return _manifest(raw)


def _refuse(_constant: str) -> float:
    raise ValueError


def _manifest(raw: dict[str, Any]) -> Manifest:
    raw = {"until": None, "server": None, **raw}
    _keys(raw, [f.name for f in fields(Manifest)], "it")
    values = dict(raw)
    for key in ("history", "vectors", "collection", "mem0_dir"):
        values[key] = _origin(raw[key], key)
    values["filesystems"] = _mapping(raw, "filesystems", (str, type(None)))
    values["versions"] = _mapping(raw, "versions", (str, type(None)))
    values["counts"] = _mapping(raw, "counts", (int, type(None)))
    values["findings"] = _mapping(raw, "findings", (int,))
    _types(
        raw,
        {
            "name": (str,),
            "created_at": (str,),
            "hostname": (str,),
            "points_digest": (str,),
            "history_digest": (str,),
            "settled": (bool,),
            "unsettled_why": (str, type(None)),
            "tries": (int,),
            "longest_hold_s": (float, int),
            "pair": (bool,),
            "until": (str, type(None)),
        },
    )
    if not NAME.fullmatch(raw["name"]) or instant(raw["created_at"]) is None:
        raise NotAManifest("has no name or time that a snapshot has")
    if raw["until"] is not None and instant(raw["until"]) is None:
        raise NotAManifest("goes at a time that is none")
    if not isinstance(raw["files"], list):
        raise NotAManifest("lists no files")
    values["files"] = tuple(_file(file) for file in raw["files"])
    if raw["server"] is not None:
        values["server"] = _server(raw["server"], [file.path for file in values["files"]])
    return Manifest(**values)


def _server(raw: Any, listed: Sequence[str]) -> ServerCopy:
    if not isinstance(raw, dict):
        raise NotAManifest("its server is of another type")
    _keys(raw, [f.name for f in fields(ServerCopy)], "the server")
    _types(raw, {"url": (str,), "version": (str,), "collections": (list,)})
    found = []
    for one in raw["collections"]:
        if not isinstance(one, dict):
            raise NotAManifest("lists a collection that is none")
        one = {"shards": [], "config": {}, "indexes": {}, **one}
        _keys(one, [f.name for f in fields(CollectionCopy)], "a collection")
        text = (str,)
        _types(one, {"name": text, "role": text, "path": text, "points": (int, type(None)), "digest": text})
        _mapping(one, "payload_schema", (str,))
        _mapping(one, "indexes", (dict,))
        settings = (one["params"], one["config"])
        if not all(isinstance(said, dict) for said in settings) or one["role"] not in get_args(CopyRole):
            raise NotAManifest("lists a collection of another kind")
        shards = _shards(one["shards"])
        paths = [shard.path for shard in shards] or [one["path"]]
        if not set(paths) <= set(listed) or not safe_collection(one["name"]):
            raise NotAManifest("lists a collection that has no file")
        found.append(CollectionCopy(**cast("dict[str, Any]", {**one, "shards": shards})))
    if not found or len({one.name for one in found}) != len(found):
        raise NotAManifest("lists no collection, or one twice")
    return ServerCopy(raw["url"], raw["version"], tuple(found))


def _shards(raw: Any) -> tuple[ShardFile, ...]:
    if not isinstance(raw, list) or not all(isinstance(one, dict) for one in raw):
        raise NotAManifest("its shards are of another type")
    for one in raw:
        _keys(one, [f.name for f in fields(ShardFile)], "a shard")
        _types(one, {"shard": (int,), "path": (str,)})
    found = tuple(ShardFile(one["shard"], one["path"]) for one in raw)
    if len({one.shard for one in found}) != len(found) or any(one.shard < 0 for one in found):
        raise NotAManifest("lists a shard twice, or one that is none")
    return found


def safe_collection(name: str) -> bool:
    """Whether a collection's name can be that of a file in a snapshot: a server takes no slashes, and we no dots."""
    short = 0 < len(name.encode("utf-8", "replace")) <= 200
    return short and name.isprintable() and not name.startswith(".") and not set(name) & set("/\\")


def server_path(name: str, shard: int | None = None) -> str:
    """Where the server's snapshot of a collection, or of one shard of it, lies in ours."""
    return f"{SERVER}/{name}.snapshot" if shard is None else f"{SERVER}/{name}/shard-{shard}.snapshot"


def _keys(raw: Mapping[str, Any], wanted: Sequence[str], what: str) -> None:
    if set(raw) != set(wanted):
        missing = sorted(set(wanted) - set(raw))
        which = f"lacks {missing[0]}" if missing else "has a field that no manifest has"
        raise NotAManifest(f"{which}" if what == "it" else f"{which} ({what})")


def _types(raw: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> None:
    for key, kinds in types.items():
        if type(raw[key]) not in kinds:
            raise NotAManifest(f"its {key} is of another type")


def _mapping(raw: Mapping[str, Any], key: str, kinds: tuple[type, ...]) -> dict[str, Any]:
    value = raw[key]
    if not isinstance(value, dict) or any(type(v) not in kinds for v in value.values()):
        raise NotAManifest(f"its {key} are of another type")
    return value


def _origin(raw: Any, key: str) -> Origin:
    if not isinstance(raw, dict) or set(raw) != {"value", "decided_by"}:
        raise NotAManifest(f"its {key} is of another type")
    _types(raw, {"value": (str,), "decided_by": (str,)})
    return Origin(raw["value"], raw["decided_by"])


def _file(raw: Any) -> SnapshotFile:
    if not isinstance(raw, dict):
        raise NotAManifest("lists a file that is none")
    _keys(raw, [f.name for f in fields(SnapshotFile)], "a file")
    text_or_none = (str, type(None))
    _types(
        raw,
        {
            "path": (str,),
            "size_bytes": (int,),
            "sha256": (str,),
            "source": (str,),
            "collection": text_or_none,
            "journal_mode": text_or_none,
            "way": (str,),
        },
    )
    parts = raw["path"].split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise NotAManifest("lists a file outside the snapshot")
    if raw["journal_mode"] not in ("rollback", "wal", None):
        raise NotAManifest("names a journal mode that there is not")
    return SnapshotFile(**cast("dict[str, Any]", raw))


# --- Digests ------------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """A value as text: equal values give equal texts, in every process. What is no plain data is named by its
    type."""
    if value is None or type(value) in (str, bool, float):
        return repr(value)
    if type(value) is int:
        return hex(value)  # of any length, where decimal digits are limited
    if isinstance(value, bytes):
        return "b" + value.hex()
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{canonical(k)}:{canonical(v)}" for k, v in value.items())) + "}"
    return f"<{type(value).__name__}>"


def points_digest(
    collections: Iterable[tuple[str, Mapping[Any, PointRecord] | Mapping[Any, EntityRecord]]],
) -> str:
    """The digest of all points, whatever their order: id, text, owner, times and vector facts of memories;
    id, owner, links and vector facts of entities. Rowids are left out, since a rebuild renumbers them."""
    total = 0
    for name, rows in collections:
        for point_id, record in rows.items():
            line = canonical((name, point_id, record[1:]))
            total += int.from_bytes(sha256(line.encode("utf-8", "surrogatepass")).digest(), "big")
    return f"{total % (1 << 256):064x}"


class HistoryDigest:
    """Takes history rows (a `model.RowSink`) and digests them in their order, without their rowids: the
    columns are the same for every schema, so that mem0's own migration is no change."""

    def __init__(self) -> None:
        self._sha = sha256()
        self.count = 0

    def rows(self, page: Sequence[HistoryRow]) -> None:
        """One page of rows."""
        for row in page:
            line = canonical(tuple(row[1:])) + "\n"
            self._sha.update(line.encode("utf-8", "surrogatepass"))
        self.count += len(page)

    def hexdigest(self) -> str:
        """The digest of the rows so far."""
        return self._sha.hexdigest()


class PayloadDigest:
    """The digest of a collection's points whatever their order and its name: each id with its whole payload. Vectors
    are not in it: reading them takes ten times as long, and the server's own checksum covers them."""

    def __init__(self) -> None:
        self.count = 0
        self._total = 0

    def add(self, point_id: Any, payload: Any) -> None:
        """One point."""
        line = json.dumps([point_id, payload], sort_keys=True, separators=(",", ":"))
        self._total += int.from_bytes(sha256(line.encode("ascii")).digest(), "big")
        self.count += 1

    def hexdigest(self) -> str:
        """The digest of the points so far."""
        return f"{self._total % (1 << 256):064x}"


def server_digest(collections: Iterable[CollectionCopy]) -> str:
    """The digest of all points of a server's snapshot; "" where one collection's is not known."""
    known = sorted((one.name, one.digest) for one in collections)
    if not all(digest for _, digest in known):
        return ""
    return sha256(canonical(known).encode("utf-8", "surrogatepass")).hexdigest()


# --- What a command plans and says ----------------------------------------------------------------


@dataclass(frozen=True)
class SnapshotPlan:
    """What `snapshot create` would do. `size_bytes` is what both stores weigh, `needed_bytes` what must be free
    while it works, `free_bytes` what is. `hold_s` is how long the agent may be made to wait at most."""

    install: Install
    folder: str
    name: str
    sources: tuple[tuple[str, str], ...]
    """(file of the install, its path in the snapshot)."""
    size_bytes: int
    needed_bytes: int
    free_bytes: int | None
    hold_s: float
    place: Place
    running: bool
    """A process has the install open, or that cannot be seen."""


@dataclass(frozen=True)
class ServerPlan:
    """What `snapshot create` would do where the points lie on a Qdrant server of `version`. `collections` are (role,
    name, points now, path in the snapshot), the memories first: what the server's snapshots of them weigh is known
    only when it has made them. `needed_bytes` is what the log alone takes; the rest as in SnapshotPlan."""

    install: Install
    folder: str
    name: str
    version: str
    collections: tuple[tuple[CopyRole, str, int, str], ...]
    history_bytes: int
    needed_bytes: int
    free_bytes: int | None
    hold_s: float
    place: Place
    running: bool


@dataclass(frozen=True)
class Taken:
    """What `snapshot create` did."""

    path: str
    manifest: Manifest
    removed: tuple[str, ...] = ()
    """Leftovers of runs that were cut off, removed by this one."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What the run could not do beside the snapshot itself, a sentence each."""
    seal: SealOutcome | None = None
    """What came of sealing the pair."""


@dataclass(frozen=True)
class Listed:
    """One entry of a snapshot folder; `problem` says why its manifest does not read.

    `checked` is the last verdict of `verify` on this very snapshot, `kept` its mark, as the marks beside the
    snapshots say.
    """

    name: str
    path: str
    manifest: Manifest | None
    problem: str | None = None
    checked: Checked | None = None
    kept: Kept | None = None


@dataclass(frozen=True)
class SnapshotProblem:
    """What is wrong with one file of a snapshot; `path` is relative to it."""

    path: str
    detail: str


@dataclass(frozen=True)
class Verdict:
    """What `verify` says of one snapshot: no problem means that it holds what its manifest says.

    `depth` is "quick", "default" or "deep". What was asked for and could not be looked at is `not_checked`.
    """

    name: str
    path: str
    depth: str
    manifest: Manifest | None
    problems: tuple[SnapshotProblem, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    seconds: float = 0.0
    findings: Mapping[str, int] = field(default_factory=dict)
    """The findings of the pair as read now, by code; empty where the depth does not read it."""

    @property
    def good(self) -> bool:
        """Nothing is wrong and nothing was left out."""
        return not self.problems and not self.not_checked
