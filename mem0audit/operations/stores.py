"""The vector store of an install to read, whatever it is: an embedded folder, or a Qdrant server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import (
    CollectionInfo,
    FoundPoint,
    Install,
    KeepPoint,
    PointId,
    PointsRead,
    StoreLayout,
)
from mem0audit.core.server import Secret, ServerAddress, parse_address
from mem0audit.stores import serverpoints
from mem0audit.stores.embedded import EmbeddedStore
from mem0audit.stores.pickles import PointVectors
from mem0audit.stores.server import Connection
from mem0audit.stores.serverstore import ServerStore

T = TypeVar("T")


def place_of(install: Install) -> str:
    """The folder of the vector store, or the server's address. Raises CouldNotRead for another product."""
    place = install.vectors or install.server_url
    if place is None:
        raise CouldNotRead(f"the vector store is {install.provider}, and no Qdrant")
    return place.value


@dataclass(frozen=True)
class Served:
    """A server as a store (a `model.PointStore`) that is connected to for each call: nobody has to close it."""

    address: ServerAddress
    key: Secret | None
    collection: str
    alone: bool = False
    """No other collection than that one and its entities is there for it."""

    @contextmanager
    def _connected(self) -> Iterator[ServerStore]:
        with Connection(self.address, self.key) as connection:
            yield ServerStore(connection, self.collection, alone=self.alone)

    def layout(self) -> StoreLayout:
        """What collections there are; never raises."""
        with self._connected() as store:
            return store.layout()

    def points(
        self, collection: CollectionInfo, keep: KeepPoint[T], *, helped: bool = False
    ) -> PointsRead[T]:
        """Every point of a collection; `file.problem` says why not."""
        with self._connected() as store:
            return store.points(collection, keep, helped=helped)

    def find(self, collection: CollectionInfo, point_id: PointId) -> tuple[FoundPoint, ...]:
        """The point of this id. Raises ServerProblem."""
        with self._connected() as store:
            return store.find(collection, point_id)

    def vectors(self, collection: CollectionInfo, point_id: PointId) -> PointVectors | None:
        """The vectors of one point; None where there is none. Raises ServerProblem."""
        with Connection(self.address, self.key) as connection:
            return serverpoints.vectors_on(connection, collection.name, point_id)

    def vectors_of(
        self, collection: CollectionInfo, ids: Sequence[PointId]
    ) -> dict[PointId, PointVectors | None]:
        """The vectors of these points, without those that are not there. Raises ServerProblem."""
        with Connection(self.address, self.key) as connection:
            return serverpoints.vectors_of(connection, collection.name, ids)

    def digests(self, collection: CollectionInfo) -> dict[str, bytes]:
        """Of every point its id and a digest of all that it has. Raises ServerProblem."""
        with Connection(self.address, self.key) as connection:
            return serverpoints.digests(connection, collection.name)

    def holding(self, collection: CollectionInfo, ids: Collection[str]) -> frozenset[str]:
        """Which of these ids the collection has. Raises ServerProblem."""
        with self._connected() as store:
            return store.holding(collection, ids)


def store_of(install: Install, folder: str | None = None) -> EmbeddedStore | Served:
    """The vector store of an install; `folder` is where the embedded one is found. Raises CouldNotRead for another
    product than Qdrant."""
    place = place_of(install)
    if install.vectors is not None:
        return EmbeddedStore(folder or place)
    return served_by(install)


def served_by(install: Install, *, alone: bool = False) -> Served:
    """The server of an install whose memories are on one; `alone`: for these and their entities only."""
    assert install.server_url is not None
    address = parse_address(install.server_url.value)
    return Served(address, install.server_key, install.collection.value, alone)


def store_of_copy(copy: Install) -> EmbeddedStore | Served:
    """The vector store of a copy that nobody else has open: a folder, or a scratch collection and its entities."""
    return (
        served_by(copy, alone=True) if copy.vectors is None else EmbeddedStore(copy.vectors.value, alone=True)
    )
