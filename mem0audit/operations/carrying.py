"""Where the points of a move to or from a Qdrant server come from: a folder whose lock is held, or a server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mem0audit.core.errors import CouldNotRead, Failed, Refused
from mem0audit.core.model import CollectionInfo, Install, PointId, VectorFacts
from mem0audit.core.server import Secret, ServerAddress, parse_address
from mem0audit.core.toserver import Carried
from mem0audit.operations.look import ENTITIES_SUFFIX, Progress
from mem0audit.stores import serverpoints
from mem0audit.stores.embedded import STORAGE, EmbeddedStore
from mem0audit.stores.pickles import WholePoint
from mem0audit.stores.server import Connection
from mem0audit.stores.serverstore import ServerStore

_NAMED = 3

Take = Callable[[list[WholePoint]], None]


@dataclass(frozen=True)
class Looked:
    """A collection to carry: what there is, the ids of its points, and of a folder's the row of each."""

    info: CollectionInfo
    carried: Carried
    ids: Collection[PointId]
    rowids: Mapping[PointId, int] = field(default_factory=dict)


def moving(wanted: Install, there: Sequence[CollectionInfo]) -> list[CollectionInfo]:
    """The configured collection, and its entities."""
    names = (wanted.collection.value, wanted.collection.value + ENTITIES_SUFFIX)
    return [info for info in there if info.name in names and info.has_folder]


class _Kept(NamedTuple):
    rowid: int
    wrong: str | None


def _refuse_odd(name: str, odd: Sequence[tuple[PointId, str]]) -> None:
    if odd:
        named = "; ".join(f"{str(i)[:100]} ({why})" for i, why in odd[:_NAMED])
        more = f" and {len(odd) - _NAMED:,} more" if len(odd) > _NAMED else ""
        raise Refused(
            f"{name}: a server does not take {named}{more}; nothing was changed",
            "delete or change them first, through the program that made them",
        )


@dataclass(frozen=True)
class FromFolder:
    """An embedded folder, links followed; while points are carried its lock is held."""

    folder: str

    @property
    def store(self) -> EmbeddedStore:
        """It, to be read."""
        return EmbeddedStore(self.folder)

    def looked(self, info: CollectionInfo, say: Progress) -> Looked:
        """Raises CouldNotRead, Refused where a point has what a server does not take."""
        say(f"reading {info.name}", None, None)
        dims, distance = info.dims, self.store.distance(info)
        if dims is None or distance not in serverpoints.DISTANCES:
            raise Refused(f"{info.path}: meta.json does not say which vectors it has", "mem0audit audit")

        def keep(rowid: int, point_id: PointId, payload: Mapping[str, Any], facts: VectorFacts) -> _Kept:
            wrong = serverpoints.refused_payload(payload)
            if serverpoints.refused_id(point_id):
                wrong = "its id is neither a UUID nor a number"
            elif facts.flaw == "nan":
                wrong = "its vector holds what is no number"
            elif facts.dims is not None and facts.dims != dims:
                wrong = f"its vector has {facts.dims} dimensions"
            elif set(facts.names) - {"bm25"} or (facts.names and not info.keyword_slot):
                wrong = "it has vectors that mem0 does not write"
            return _Kept(rowid, wrong)

        read = self.store.points(info, keep)
        if read.file.problem is not None:
            raise CouldNotRead(f"{read.file.path}: {read.file.problem.detail}", "mem0audit audit")
        if read.bad or read.unsafe:
            raise Refused(
                f"{info.path}: {len(read.bad) + len(read.unsafe):,} points do not decode and would be left behind",
                "mem0audit audit",
            )
        _refuse_odd(info.name, [(i, one.wrong) for i, one in read.rows.items() if one.wrong is not None])
        repeats = sum(len(one.loser_rowids) for one in read.duplicates)
        carried = Carried(info.name, dims, distance, info.keyword_slot, len(read.rows), repeats)
        return Looked(info, carried, read.rows.keys(), {i: one.rowid for i, one in read.rows.items()})

    def carry(self, one: Looked, take: Take) -> None:
        """Every point to `take`, some at once. Raises CouldNotRead."""
        at_once = serverpoints.at_once(one.carried.dims)
        self.store.whole(one.info, frozenset(one.rowids.values()), take, at_once=at_once)

    def stamp(self, looked: Sequence[Looked]) -> object:
        """What is another where somebody wrote meanwhile, without Qdrant's lock: size and time of every database."""
        found = [(Path(one.info.path) / STORAGE).stat() for one in looked]
        return [(one.st_size, one.st_mtime_ns) for one in found]


@dataclass(frozen=True)
class FromServer:
    """A Qdrant server. It has no lock: who else writes is found out by reading it once more."""

    address: ServerAddress
    key: Secret | None
    collection: str

    @classmethod
    def of(cls, install: Install) -> FromServer:
        """That of an install."""
        assert install.server_url is not None
        return cls(parse_address(install.server_url.value), install.server_key, install.collection.value)

    def infos(self) -> tuple[CollectionInfo, ...]:
        """Its collections. Raises CouldNotRead."""
        with Connection(self.address, self.key) as connection:
            layout = ServerStore(connection, self.collection).layout()
        if layout.problem is not None:
            raise CouldNotRead(f"{layout.path}: {layout.problem.detail}")
        return layout.collections

    def looked(self, info: CollectionInfo, say: Progress) -> Looked:
        """Raises ServerProblem, Refused where it has other vectors than mem0 makes."""
        say(f"reading {info.name}", None, None)
        with Connection(self.address, self.key) as connection:
            kind = serverpoints.kind_of(connection, info.name)
            ids = serverpoints.ids_in(connection, info.name)
        vectors = kind.vectors
        if vectors is None:
            raise Refused(f"{info.path}: it has other vectors than mem0 makes", "mem0audit audit")
        keywords = "bm25" in (kind.config["params"].get("sparse_vectors") or {})
        on_disk = vectors.get("on_disk") is True
        carried = Carried(
            info.name, vectors["size"], vectors["distance"], keywords, len(ids), on_disk=on_disk
        )
        return Looked(info, carried, ids)

    def carry(self, one: Looked, take: Take) -> None:
        """Every point to `take`, a page at once. Raises ServerProblem, Failed."""
        at_once = serverpoints.at_once(one.carried.dims)
        with Connection(self.address, self.key) as connection:
            for page in serverpoints.whole_pages(connection, one.info.name, at_once):
                points = [serverpoints.whole_of(point) for point in page]
                if any(point is None for point in points):
                    raise Failed(f"{one.info.path}: a point has other vectors than mem0 makes")
                if points:
                    take([point for point in points if point is not None])

    def stamp(self, looked: Sequence[Looked]) -> object:
        """What is another where somebody wrote meanwhile: a digest of every point. Raises ServerProblem."""
        with Connection(self.address, self.key) as connection:
            return [serverpoints.digests(connection, one.info.name) for one in looked]
