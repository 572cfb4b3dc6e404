"""Each boundary from both sides, and the client table against the installed client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from mem0audit.core import versions
from tests.builders import MemoryBuilder, vector_of

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.2.1", (2, 2, 1)),
        ("0.1.118", (0, 1, 118)),
        ("2.0", (2, 0, 0)),
        ("2", (2, 0, 0)),
        ("1.0.0b2", (1, 0, 0)),
        ("1.0.11.post1", (1, 0, 11)),
        ("2.2.1+local.3", (2, 2, 1)),
        ("v1.20.0\n", (1, 20, 0)),
        ("1.2.3.4", (1, 2, 3, 4)),
        (None, None),
        ("", None),
        ("unknown", None),
        ("0.0.0", None),
        ("١.٢.٣", None),
        ("1" * 5000, None),
    ],
)
def test_parse(text: str | None, numbers: tuple[int, ...] | None) -> None:
    assert versions.parse(text) == numbers


# The last version before, the first and the last with the behaviour, the first one after; "-" is open.
BOUNDARIES: dict[Callable[[str | None], bool | None], tuple[str, str, str, str]] = {
    versions.bulk_delete_drops_collection: ("0.1.117", "0.1.118", "1.0.5", "1.0.6"),
    versions.bulk_delete_stops_at_100: ("-", "0.0.2", "2.0.14", "2.0.15"),
    versions.trims_owner_ids: ("1.0.11", "2.0.0", "2.2.1", "-"),
    versions.phantom_add: ("1.0.11", "2.0.0", "2.2.0", "2.2.1"),
    versions.converts_dbm: ("1.1.6", "1.1.7", "1.19.1", "1.20.0"),
}


@pytest.mark.parametrize("statement", BOUNDARIES, ids=lambda statement: statement.__name__)
def test_boundaries(statement: Callable[[str | None], bool | None]) -> None:
    before, first, last, after = BOUNDARIES[statement]
    assert statement(first) is True
    assert statement(last) is True
    assert statement(f"{last}.post1") is True
    if before != "-":
        assert statement(before) is False
        assert statement(f"{before}.post1") is False
    if after != "-":
        assert statement(after) is False
    assert statement("99.0.0") is (after == "-")
    assert statement(None) is None
    assert statement("of this morning") is None


@pytest.mark.parametrize(
    ("mem0", "on_disk", "wipes"),
    [
        ("0.0.7", None, False),
        ("0.0.8", True, True),
        ("0.0.15", True, True),
        ("0.0.16", True, False),
        ("0.0.16", False, True),
        ("0.1.118", None, True),
        ("1.0.7", None, True),
        ("1.0.7", False, True),
        ("1.0.7", True, False),
        ("1.0.8", None, False),
        ("1.0.8", False, False),
        ("2.2.1", False, False),
        (None, True, None),
        (None, False, None),
    ],
)
def test_wipes_folder_at_start(mem0: str | None, on_disk: bool | None, wipes: bool | None) -> None:
    assert versions.wipes_folder_at_start(mem0, on_disk) is wipes


@pytest.mark.parametrize(
    ("owner", "on_1", "on_2", "unknown"),
    [
        ("alice", True, True, True),
        (" alice", True, False, None),
        ("alice\n", True, False, None),
        ("alice b", True, False, None),
        (5, True, False, None),
        (True, True, False, None),
        (["alice"], True, True, True),
        ([5, "alice"], True, True, True),
        ([5], True, False, None),
        ("", False, False, False),
        (0, False, False, False),
        (5.5, False, False, False),
        ({"a": 1}, False, False, False),
        ([], False, False, False),
        (None, False, False, False),
    ],
)
def test_reaches_owner(owner: Any, on_1: bool, on_2: bool, unknown: bool | None) -> None:
    assert versions.reaches_owner("1.0.11", owner) is on_1
    assert versions.reaches_owner("2.0.0", owner) is on_2
    assert versions.reaches_owner("2.2.1", owner) is on_2
    assert versions.reaches_owner(None, owner) is unknown


def test_reaches_owner_is_what_the_installed_mem0_does(tmp_path: Path) -> None:
    owners: list[Any] = ["dora", " bob", "bob c", 5, True, ["zed"], 5.5]
    with MemoryBuilder(tmp_path) as install:
        memory = install.memory
        for number, owner in enumerate(owners):
            memory.vector_store.insert(
                [vector_of(f"text {number}")],
                payloads=[{"data": f"text {number}", "user_id": owner}],
                ids=[f"00000000-0000-0000-0000-{number:012}"],
            )
        reached = []
        for owner in owners:
            before = len(install.points())
            try:
                memory.delete_all(user_id=owner[0] if isinstance(owner, list) else owner)
            except ValueError as error:
                assert "whitespace" in str(error)
            reached.append(len(install.points()) < before)
    assert reached == [versions.reaches_owner("2.2.1", owner) for owner in owners]


# --- qdrant-client ---


def key_paths(config: Any, prefix: str = "") -> Iterator[str]:
    """The key paths of one collection's configuration, as meta.json has it."""
    if isinstance(config, dict):
        for key, value in config.items():
            yield prefix + key
            yield from key_paths(value, f"{prefix}{key}.")


def meta_keys(path: Path) -> dict[str, set[str]]:
    collections = json.loads(path.read_text())["collections"]
    return {name: set(key_paths(config)) for name, config in collections.items()}


@pytest.mark.parametrize(
    ("store", "oldest", "refused"),
    [
        ("qdrant-stores/1.1.7", "1.1.7", None),
        ("qdrant-stores/1.4.0-python3.7", "1.2.0", None),
        ("qdrant-stores/1.9.2", "1.9.0", "1.8.2"),
        ("qdrant-stores/1.20.0", "1.20.0", "1.19.1"),
    ],
)
def test_oldest_client_of_real_stores(store: str, oldest: str, refused: str | None) -> None:
    stores = meta_keys(DATA / store / "meta.json")
    if "novec" in stores:  # a collection without vectors has fewer keys, and may be older
        assert not any(key.startswith("vectors.") for key in stores.pop("novec"))
    assert {versions.oldest_client_that_reads(keys) for keys in stores.values()} == {oldest}
    for keys in stores.values():
        assert versions.can_read(oldest, keys) is True
        assert versions.can_read("1.20.0", keys) is True
        assert refused is None or versions.can_read(refused, keys) is False
        assert versions.can_read(None, keys) is None


def test_every_key_of_the_installed_client_is_known() -> None:
    """A key the client writes and this table lacks would be taken for one from the future."""
    config = models.CreateCollection(
        vectors=models.VectorParams(
            size=8,
            distance=models.Distance.COSINE,
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
        ),
        sparse_vectors={
            "bm25": models.SparseVectorParams(index=models.SparseIndexParams(), modifier=models.Modifier.IDF)
        },
        hnsw_config=models.HnswConfigDiff(),
        optimizers_config=models.OptimizersConfigDiff(),
        wal_config=models.WalConfigDiff(),
    )
    keys = set(key_paths(config.model_dump()))
    assert {"vectors.memory", "id_tracker", "sparse_vectors.bm25.index.memory"} <= keys
    assert versions.oldest_client_that_reads(keys) == "1.20.0"
    for model, prefix in (
        (models.CreateCollection, ""),
        (models.VectorParams, "vectors."),
        (models.SparseVectorParams, "sparse_vectors.bm25."),
        (models.SparseIndexParams, "sparse_vectors.bm25.index."),
    ):
        for name in model.model_fields:
            assert versions.oldest_client_that_reads({prefix + name}) is not None


@pytest.mark.parametrize(
    ("keys", "oldest"),
    [
        ({"vectors.size"}, "1.1.7"),
        ({"vectors.on_disk"}, "1.2.0"),
        ({"sparse_vectors"}, "1.7.0"),
        ({"sparse_vectors.bm25.index"}, "1.7.0"),
        ({"sharding_method"}, "1.7.0"),
        ({"vectors.datatype"}, "1.9.0"),
        ({"vectors.multivector_config", "vectors.multivector_config.comparator"}, "1.10.0"),
        ({"sparse_vectors.bm25", "sparse_vectors.bm25.modifier"}, "1.10.0"),
        ({"sparse_vectors.bm25.index.datatype"}, "1.10.0"),
        ({"strict_mode_config"}, "1.13.0"),
        ({"metadata", "metadata.anything.at.all"}, "1.16.0"),
        ({"vectors.hnsw_config.inline_storage"}, "1.16.0"),
        ({"optimizers_config.prevent_unoptimized"}, "1.17.0"),
        ({"payload"}, "1.19.0"),
        ({"vectors.memory"}, "1.19.0"),
        ({"vectors.image", "vectors.image.size", "vectors.image.memory"}, "1.19.0"),
        ({"vectors.memory", "vectors.memory.size", "vectors.memory.on_disk"}, "1.2.0"),
        ({"id_tracker"}, "1.20.0"),
        ({"of_next_year"}, None),
        (set(), "1.1.7"),
    ],
)
def test_oldest_client_of_keys(keys: set[str], oldest: str | None) -> None:
    assert versions.oldest_client_that_reads(keys) == oldest


def test_a_key_of_the_future_is_refused_by_what_was_measured() -> None:
    keys = {"vectors.size", "of_next_year"}
    assert versions.can_read("1.19.1", keys) is False
    assert versions.can_read("1.20.0", keys) is False
    assert versions.can_read("1.21.0", keys) is None


def test_clients_that_ignore_unknown_keys_are_not_judged() -> None:
    assert versions.can_read("1.3.1", {"vectors.datatype"}) is None
    assert versions.can_read("1.3.2", {"vectors.datatype"}) is False


@pytest.mark.parametrize(
    ("mem0", "may"),
    [("1.0.7", False), ("1.0.8", True), ("2.2.1", True), ("2.2.99", True), ("2.3.0", False), (None, None)],
)
def test_under_which_mem0_memories_are_changed(mem0: str | None, may: bool | None) -> None:
    assert versions.changes_are_tried(mem0) is may


def test_what_a_client_writes_is_its_own_format_and_may_lock_out_older_ones(tmp_path: Path) -> None:
    """A collection of the installed client, mem0's own, against the table."""
    from mem0audit.stores.embedded import EmbeddedStore

    with MemoryBuilder(tmp_path) as agent:
        agent.add("one", user_id="alice")
    (info,) = EmbeddedStore(str(agent.vectors)).layout().collections
    assert versions.is_format_of("1.20.0", info.config_keys)
    assert not versions.is_format_of("1.19.1", info.config_keys)
    assert versions.locks_out("1.20.0", "1.19.1") is True
    assert versions.locks_out("1.19.1", "1.20.0") is False
    assert versions.locks_out("1.17.1", "1.16.2") is False
    assert versions.locks_out("1.20.0", None) is None
    assert versions.pins_its_keys("1.20.0") and not versions.pins_its_keys("1.19.1")
