"""What each version of mem0 and of qdrant-client does, as far as a rule depends on it.

The boundaries are measured: every mem0ai release on PyPI up to 2.2.1 was compared and the behaviour run
on both sides of each boundary; every qdrant-client release that differs in its collection models,
1.1.7 to 1.20.0, was read. A statement without an upper end holds for the newest release that was
measured and is said of later ones too, until they are measured.

Every function takes versions as text, as found in a site-packages folder, or None where the agent's
version is unknown; it then answers None: not checked. Ranges include both ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Version = tuple[int, ...]

NEWEST_MEASURED_CLIENT = "1.20.0"

_RELEASE = re.compile(r"\s*v?(\d+(?:\.\d+)*)", re.ASCII | re.IGNORECASE)


def parse(text: str | None) -> Version | None:
    """The release numbers of a version, at least three: "2.0" is (2, 0, 0). None if it has none.

    Marks of a pre-release, post-release or local build are left out: "2.0.0b1" counts as 2.0.0.
    "0.0.0" is what build tools write when they know no version, and is None as well.
    """
    match = _RELEASE.match(text) if text is not None and len(text) <= 100 else None
    if match is None:
        return None
    numbers = tuple(int(part) for part in match[1].split("."))
    return numbers + (0,) * (3 - len(numbers)) if any(numbers) else None


def _between(version: str | None, first: Version, last: Version | None = None) -> bool | None:
    """Whether a version is in a range, both ends included; None if the version is unknown."""
    numbers = parse(version)
    if numbers is None:
        return None
    return first <= numbers[:3] and (last is None or numbers[:3] <= last)


# --- mem0 ---------------------------------------------------------------------------------------


def wipes_folder_at_start(mem0: str | None, on_disk: bool | None) -> bool | None:
    """Whether `Memory()` deletes the local Qdrant folder before it opens it.

    `vector_stores/qdrant.py` calls `shutil.rmtree(path)`: 0.0.8 to 0.0.15 always; 0.0.16 to 1.0.7
    unless `on_disk` is true. None means that no configuration said it: mem0's default is false.
    Run: wiped with 0.1.40 to 1.0.7, kept with 1.0.8 and later.
    """
    if _between(mem0, (0, 0, 8), (0, 0, 15)):
        return True
    wiping = _between(mem0, (0, 0, 16), (1, 0, 7))
    return wiping and on_disk is not True if wiping is not None else None


def changes_given_config(mem0: str | None) -> bool | None:
    """Whether a Memory changes the MemoryConfig it is given: 0.1.89 and 0.1.92 to 0.1.116; AsyncMemory in 0.1.117 and
    0.1.118.

    Its collection_name and path become those of the migrations, so that a second Memory from the same object (also
    `Memory(); Memory()`: the default is one object) stores there. `from_config` makes a new object of the dict each
    time, and is safe. Run with 0.1.114 both ways; AsyncMemory run with 0.1.114, 1.0.0, 1.0.5 and 1.0.7 (not), read in
    0.1.117 and 0.1.118.
    """
    if _between(mem0, (0, 1, 89), (0, 1, 89)):
        return True
    return _between(mem0, (0, 1, 92), (0, 1, 118))


def one_memory_a_folder(mem0: str | None) -> bool | None:
    """Whether a second live Memory with the same MEM0_DIR and on_disk fails, whatever its own folder: 0.1.89, 0.1.92 to
    1.0.5.

    Both open `MEM0_DIR/migrations_qdrant`, even with telemetry off, and with on_disk the first is not wiped away under
    the second. Run with 0.1.114, 1.0.0 and 1.0.5; 1.0.6 opens none with telemetry off.
    """
    if _between(mem0, (0, 1, 89), (0, 1, 89)):
        return True
    return _between(mem0, (0, 1, 92), (1, 0, 5))


def bulk_delete_drops_collection(mem0: str | None) -> bool | None:
    """Whether `Memory.delete_all(filter)` drops everybody's memories: 0.1.118 to 1.0.5, sync only.

    After deleting the matching ones it called `vector_store.reset()`. Run with 0.1.118, 1.0.0, 1.0.5
    (dropped), 0.1.117 and 1.0.6 (not).
    """
    return _between(mem0, (0, 1, 118), (1, 0, 5))


def bulk_delete_stops_at_100(mem0: str | None) -> bool | None:
    """Whether `delete_all` deletes the first 100 matching memories and reports success: to 2.0.14.

    It took the vector store's `list` with its default limit; 2.0.15 loops until nothing is left. Run
    with 250 memories of one user on 0.1.114, 0.1.117, 1.0.6, 1.0.11, 2.0.6, 2.0.14 (150 left), 2.0.15.
    """
    return _between(mem0, (0, 0, 0), (2, 0, 14))


def trims_owner_ids(mem0: str | None) -> bool | None:
    """Whether add, get_all and search trim owner ids and refuse blanks inside them: from 2.0.0.

    `_validate_and_trim_entity_id` in `memory/main.py`; `delete_all` calls it from 2.0.10 only.
    """
    return _between(mem0, (2, 0, 0))


def reaches_owner(mem0: str | None, owner: Any) -> bool | None:
    """Whether mem0 can list and delete by this owner id exactly as it is stored in a payload.

    `owner` is the payload's value. Empty ids, and numbers with a fraction, no version can name. A list
    matches by any of its members, as Qdrant does it.
    """
    if isinstance(owner, list):
        answers = [reaches_owner(mem0, member) for member in owner]
        return True if True in answers else None if None in answers else False
    if not isinstance(owner, (str, int)) or not owner:
        return False
    if isinstance(owner, str) and not any(character.isspace() for character in owner):
        return True
    trims = trims_owner_ids(mem0)
    return None if trims is None else not trims


def phantom_add(mem0: str | None) -> bool | None:
    """Whether `add` logs and returns memories that the vector store refused: 2.0.0 to 2.2.0.

    The failed insert is swallowed, the ADD rows are written. 2.2.1 raises instead. Run with a vector
    of the wrong length on 2.0.6, 2.2.0 and 2.2.1.
    """
    return _between(mem0, (2, 0, 0), (2, 2, 0))


def log_at_start(mem0: str | None, schema: str | None) -> str | None:
    """What `Memory()` makes of a log of this schema ("7 columns", "9 columns", "10 columns") when it opens it.

    "migrated", "loses texts" (7 columns, 0.1.100 on), "hangs" (9 columns, 0.1.100 to 0.1.106: a deadlock in the
    constructor, and killed there it leaves the rows in history_old), "fails" (10 columns, to 0.1.99: the first
    start raises and leaves the rows in old_history), or None: nothing, or not known. Run on both sides of each.
    """
    numbers = parse(mem0)
    if numbers is None:
        return None
    new, hanging = numbers[:3] >= (0, 1, 100), _between(mem0, (0, 1, 100), (0, 1, 106))
    if schema == "7 columns" and numbers[:3] >= (0, 0, 10):
        return "hangs" if hanging else "loses texts" if new else "migrated"
    if schema == "9 columns" and new:
        return "hangs" if hanging else "migrated"
    return "fails" if schema == "10 columns" and not new else None


def changes_times_without_row(sealed: str | None, now: str | None) -> bool:
    """Whether a mem0 between these two versions changed updated_at, agent_id and run_id of a payload and wrote no
    history row: 1.0.9 to 1.0.11, where the model answered NONE and an agent or run was named. Run with 1.0.11.

    An unknown version can be any.
    """
    first, last = _order(sealed, now)
    return first <= (1, 0, 11) and last >= (1, 0, 9)


def moves_owner_on_update(sealed: str | None, now: str | None) -> bool:
    """Whether a mem0 between these two versions moves a memory to another owner on `update(metadata={"user_id": …})`:
    1.0.8 to 2.0.12. Run with 1.0.8, 1.0.11, 2.0.0, 2.0.6 and 2.0.12; ignored from 2.0.13.

    Where both are unknown: no, so that such a move is said.
    """
    if parse(sealed) is None and parse(now) is None:
        return False
    first, last = _order(sealed or now, now or sealed)
    return first <= (2, 0, 12) and last >= (1, 0, 8)


def _order(one: str | None, other: str | None) -> tuple[Version, Version]:
    """The lower and the higher of two versions; an unknown one leaves its end open."""
    a, b = parse(one), parse(other)
    if a is None or b is None:
        return (0, 0, 0), (1 << 30, 0, 0)
    return min(a[:3], b[:3]), max(a[:3], b[:3])


OLDEST_TO_CHANGE, NEWEST_TO_CHANGE = "1.0.8", "2.2"
"""The mem0 releases under which memories are changed, 2.2 with every patch: those that the tests run."""


def changes_are_tried(mem0: str | None) -> bool | None:
    """Whether memories may be changed under this mem0: 1.0.8 to 2.2.x.

    Before 1.0.8 `Memory()` can delete the folder, and a deletion leaves rows without times; a later one than 2.2 was
    not measured.
    """
    numbers = parse(mem0)
    return None if numbers is None else numbers[:3] >= (1, 0, 8) and numbers[:2] <= (2, 2)


def hides_expired(mem0: str) -> bool:
    """Whether it knows `expiration_date`, and hides memories whose day has passed (2.0.10 on)."""
    return (parse(mem0) or (0,)) >= (2, 0, 10)


# --- qdrant-client, local mode ------------------------------------------------------------------

OLDEST_SQLITE_CLIENT: Version = (1, 1, 7)
"""The oldest client whose local format was measured; `storage.dbm` comes from clients before it."""


def rewrites_whole(mem0: str) -> bool:
    """Whether its update of a memory keeps the metadata that is not mem0's own (2.0.7 on)."""
    return (parse(mem0) or (0,)) >= (2, 0, 7)


def converts_dbm(client: str | None) -> bool | None:
    """Whether a client turns a `storage.dbm` into storage.sqlite when it opens it: 1.1.7 to 1.19.1.

    It deletes the dbm file then. 1.20.0 refuses such a folder. Read in `local/persistence.py`.
    """
    return _between(client, (1, 1, 7), (1, 19, 1))


def pins_its_keys(client: str | None) -> bool | None:
    """Whether a client stores ids under the same key whatever Python it runs under: 1.20.0 on.

    Before, Python 3.14 (another default pickle protocol) adds rows beside the old ones and deletes none of them.
    """
    return _between(client, (1, 20, 0))


# The first release whose models know a key of meta.json. Clients from 1.3.2 on refuse unknown keys
# (pydantic's extra="forbid"), whatever their value, and write every key they know. Read from the models of
# the releases on both sides of each boundary. Keys within hnsw_config and the like are written only
# where somebody set that configuration.
_FIRST_CLIENT: dict[str, Version] = {
    **dict.fromkeys(
        (
            "vectors", "shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload",
            "hnsw_config", "wal_config", "optimizers_config", "init_from", "quantization_config",
            "vectors.size", "vectors.distance", "vectors.hnsw_config", "vectors.quantization_config",
        ),
        (1, 1, 7),
    ),
    "vectors.on_disk": (1, 2, 0),
    "sparse_vectors": (1, 7, 0),
    "sharding_method": (1, 7, 0),
    "sparse_vectors.index": (1, 7, 0),
    "vectors.datatype": (1, 9, 0),
    "vectors.multivector_config": (1, 10, 0),
    "sparse_vectors.modifier": (1, 10, 0),
    "sparse_vectors.index.datatype": (1, 10, 0),
    "strict_mode_config": (1, 13, 0),
    "metadata": (1, 16, 0),
    "hnsw_config.inline_storage": (1, 16, 0),
    "wal_config.wal_retain_closed": (1, 16, 0),
    "optimizers_config.prevent_unoptimized": (1, 17, 0),
    "payload": (1, 19, 0),
    "vectors.memory": (1, 19, 0),
    "hnsw_config.memory": (1, 19, 0),
    "sparse_vectors.index.memory": (1, 19, 0),
    "id_tracker": (1, 20, 0),
}  # fmt: skip


def _first_client(key: str, names: set[str]) -> Version | None:
    """The first client that knows one configuration key; None for one that no measured client knows."""
    parts = key.split(".")
    top = parts[0]
    if len(parts) > 1 and top in ("vectors", "sparse_vectors"):
        # Named vectors have their name between: "vectors.image.on_disk". A name is no key.
        inner = parts[2:] if parts[1] in names or top == "sparse_vectors" else parts[1:]
        for start in range(len(inner)):
            found = _FIRST_CLIENT.get(".".join((top, *inner[start:]))) or (
                _FIRST_CLIENT.get(".".join(inner[start:])) if len(inner[start:]) > 1 else None
            )
            if found is not None:
                return max(found, _FIRST_CLIENT[top])
        return _FIRST_CLIENT[top]
    return _FIRST_CLIENT.get(key) or (_FIRST_CLIENT.get(top) if len(parts) > 1 else None)


def oldest_client_that_reads(config_keys: Iterable[str]) -> str | None:
    """The oldest qdrant-client that opens a collection with these configuration keys, as "1.19.0".

    `config_keys` are key paths of a collection in meta.json ("vectors.on_disk"; with named vectors
    "vectors.image.on_disk"). None where a key is newer than every client that was measured.
    """
    keys = set(config_keys)
    names = {parts[1] for parts in (key.split(".") for key in keys) if len(parts) > 2 and parts[2] == "size"}
    oldest = OLDEST_SQLITE_CLIENT
    for key in keys:
        first = _first_client(key, names)
        if first is None:
            return None
        oldest = max(oldest, first)
    return ".".join(map(str, oldest))


def can_read(client: str | None, config_keys: Iterable[str]) -> bool | None:
    """Whether this qdrant-client opens a collection with these configuration keys.

    Older clients refuse the whole folder for one key they do not know ("Extra inputs are not
    permitted") and change nothing; newer ones open every older store. Clients before 1.3.2 ignore such
    keys, what they then make of the points was not tried: None, as for an unknown client version, and
    for a store and a client that are both newer than what was measured.
    """
    numbers = parse(client)
    if numbers is None:
        return None
    oldest = oldest_client_that_reads(config_keys)
    needed = parse(oldest)
    if needed is None:
        return False if numbers <= (parse(NEWEST_MEASURED_CLIENT) or ()) else None
    if numbers >= needed:
        return True
    return False if numbers >= (1, 3, 2) else None


def _always_written(key: str) -> bool:
    """Whether a client writes this key for every collection, and not only where somebody set it."""
    return "." not in key or key.startswith("vectors.")


def written_keys(client: str) -> frozenset[str]:
    """The configuration keys that this client writes for every collection with one unnamed vector."""
    numbers = parse(client) or (0,)
    gone = {"init_from"} if numbers >= (1, 16, 0) else set()
    return frozenset(
        k for k, first in _FIRST_CLIENT.items() if first <= numbers and _always_written(k) and k not in gone
    )


def locks_out(writer: str, reader: str | None) -> bool | None:
    """Whether a meta.json that `writer` wrote keeps `reader`, both qdrant-clients, from opening the folder."""
    reads = can_read(reader, written_keys(writer))
    return None if reads is None else not reads


def is_format_of(client: str, config_keys: Iterable[str]) -> bool:
    """Whether a collection's configuration keys are those that this client writes: neither older nor newer."""
    return {k for k in config_keys if _always_written(k)} == written_keys(client)
