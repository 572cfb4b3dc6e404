"""Group I: can the stores be read, and as what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mem0audit.core import versions
from mem0audit.core.model import FileState, NotChecked, PointId
from mem0audit.core.reading import Reading
from mem0audit.core.rules.servers import misses_nothing
from mem0audit.core.rules.verdict import RuleFunction, Verdict, finding

NOT_A_HISTORY = frozenset({"not-sqlite", "empty", "no-table", "folder"})
LOCAL_LIMIT = 20_000
"""Above this qdrant-client itself warns that local mode is slow (its LARGE_DATA_THRESHOLD)."""
CURRENT_SCHEMA = "10 columns"


def files(r: Reading) -> Iterator[tuple[str, FileState]]:
    """Every SQLite file of the install that was looked at, with the word for it."""
    if r.history is not None:
        yield "history", r.history.file
    for collection in r.collections:
        yield collection.info.name, collection.read.file


def not_a_history(r: Reading) -> Iterable[Verdict]:
    """I201: the log is not SQLite, or has no history table."""
    if r.history is None:
        return
    problem = r.history.file.problem
    if problem is None:
        return
    if problem.kind in NOT_A_HISTORY:
        yield finding("I201", {"is": problem.detail}, path=r.history_path)
    elif problem.kind == "missing":
        yield finding(
            "I201",
            {"is": "not there", "memories in the vector store": r.memory_count},
            path=r.history_path,
        )


def damaged_database(r: Reading) -> Iterable[Verdict]:
    """I202: integrity_check says no, or reading failed half-way."""
    for what, state in files(r):
        kinds = {"damaged"} if what == "history" else NOT_A_HISTORY | {"damaged"}
        if state.problem is not None and state.problem.kind in kinds:
            yield finding("I202", {"what": what, "is": state.problem.detail}, path=state.path)
        elif state.integrity:
            yield finding(
                "I202",
                {"what": what, "integrity_check": "; ".join(state.integrity[:3])},
                path=state.path,
            )


def hot_journal(r: Reading) -> Iterable[Verdict]:
    """I203: the last writer died inside a transaction."""
    for what, state in files(r):
        if state.hot_journal:
            yield finding("I203", {"what": what, "read from": state.way}, path=state.path)


def old_history_schema(r: Reading) -> Iterable[Verdict]:
    """I204: columns of an earlier mem0; it will rewrite the table at its next start."""
    if r.history is not None and r.history.schema not in (None, CURRENT_SCHEMA):
        yield finding(
            "I204",
            {"schema": r.history.schema, "columns": ", ".join(r.history.columns)},
            path=r.history_path,
        )


def stranded_history(r: Reading) -> Iterable[Verdict]:
    """I205: an interrupted migration left rows in another table."""
    if r.history is None:
        return
    for table in r.history.stranded:
        if table.missing_rows:
            yield finding(
                "I205",
                {"rows": table.rows, "rows that history lacks": table.missing_rows},
                path=r.history_path,
                subject=table.name,
            )


def damaged_meta(r: Reading) -> Iterable[Verdict]:
    """I206: meta.json does not say what lies on disk."""
    if r.layout is None or not r.layout.exists or r.on_server:
        return
    if r.layout.meta_problem is not None:
        yield finding("I206", {"meta.json": r.layout.meta_problem}, path=r.layout.path)
        return
    for info in r.layout.collections:
        if info.listed and not info.has_folder and not info.legacy:
            yield finding(
                "I206", {"listed": True, "folder": "not there"}, path=r.layout.path, subject=info.name
            )
        elif not info.listed and not info.closed:
            yield finding(
                "I206", {"listed": False, "folder": info.path}, path=r.layout.path, subject=info.name
            )


def unreadable_point(r: Reading) -> Iterable[Verdict]:
    """I207: a blob that does not decode."""
    for collection in r.collections:
        for row in collection.read.bad:
            yield finding(
                "I207",
                {"point row": row.rowid, "reason": row.reason},
                memory_id=_text_id(row.point_id),
                path=collection.info.path,
                subject=collection.info.name,
            )


def unsafe_pickle(r: Reading) -> Iterable[Verdict]:
    """I208: a blob that would run code when the store is opened."""
    for collection in r.collections:
        for row in collection.read.unsafe:
            yield finding(
                "I208",
                {"point row": row.rowid, "names": ", ".join(row.names)},
                memory_id=_text_id(row.point_id),
                path=collection.info.path,
                subject=collection.info.name,
            )


def duplicate_rows(r: Reading) -> Iterable[Verdict]:
    """I209: several rows for one point id."""
    for collection in r.collections:
        for double in collection.read.duplicates:
            yield finding(
                "I209",
                {
                    "newest row": double.kept_rowid,
                    "older rows": ", ".join(str(i) for i in double.loser_rowids),
                },
                memory_id=_text_id(double.point_id),
                path=collection.info.path,
                subject=collection.info.name,
            )


def wrong_vector(r: Reading) -> Iterable[Verdict]:
    """I210: no dense vector, dimensions other than the collection's, or a vector of zeros, NaN or infinity."""
    if not r.vectors_read:
        yield NotChecked("I210", "a server's vectors are read with --vectors only", gap=False)
        return
    for collection in r.collections:
        wanted = collection.info.dims
        rows = collection.read.rows
        wrong = {
            vector
            for vector in {p.vector for p in rows.values()}  # few differ
            if vector.flaw is not None or not (wanted is None or vector.dims == wanted)
        }
        if not wrong:
            continue
        for point_id, rowid, vector in ((i, p.rowid, p.vector) for i, p in rows.items() if p.vector in wrong):
            evidence = {
                "dimensions": vector.dims,
                "the collection's": wanted,
                "values": {"zero": "all zero", "nan": "NaN or infinite"}.get(vector.flaw or ""),
            }
            yield finding(
                "I210",
                {"point row": rowid, **({"dense vector": "none"} if vector.dims is None else evidence)},
                memory_id=str(point_id),
                path=collection.info.path,
                subject=collection.info.name,
            )


def dimension_mismatch(r: Reading) -> Iterable[Verdict]:
    """I211: the embedder of this configuration has other dimensions than the collection."""
    wanted = r.install.embedder_dims
    memories = r.configured
    if memories is None:
        return
    if wanted is not None and memories.info.dims is not None and memories.info.dims != wanted:
        yield finding(
            "I211",
            {"configured": wanted, "the collection's": memories.info.dims},
            path=memories.info.path,
            subject=memories.info.name,
        )
    for entities in r.entities:
        if entities.of != memories.info.name or not entities.read.rows:
            continue
        if None not in (entities.info.dims, memories.info.dims) and entities.info.dims != memories.info.dims:
            yield finding(
                "I211",
                {"entities": entities.info.dims, "memories": memories.info.dims},
                path=entities.info.path,
                subject=entities.info.name,
            )
    if wanted is None:
        yield NotChecked("I211", "no configuration names the embedder's dimensions", gap=False)


def old_storage_format(r: Reading) -> Iterable[Verdict]:
    """I212: written by a client whose files the agent's client cannot open."""
    if r.layout is None or r.on_server:
        return
    client = r.agent.client_version
    for info in r.layout.collections:
        if info.legacy:
            if not versions.converts_dbm(client):
                yield finding(
                    "I212",
                    {"storage": "storage.dbm", "written by": "qdrant-client before 1.1.7"},
                    path=info.path,
                    subject=info.name,
                )
        elif versions.can_read(client, info.config_keys) is False:
            yield finding(
                "I212",
                {
                    "agent's qdrant-client": client,
                    "needs at least": versions.oldest_client_that_reads(info.config_keys),
                },
                path=info.path,
                subject=info.name,
            )
    if client is None:
        yield NotChecked("I212", f"the agent's versions are not known: {r.agent.source}", gap=False)


def no_keyword_slot(r: Reading) -> Iterable[Verdict]:
    """I213: a collection made before mem0 2.0."""
    if r.configured is not None and r.configured.info.listed and not r.configured.info.keyword_slot:
        yield finding(
            "I213",
            {"dimensions": r.configured.info.dims},
            path=r.configured.info.path,
            subject=r.configured.info.name,
        )


def slow_embedded_store(r: Reading) -> Iterable[Verdict]:
    """I214: more points than qdrant-client's own warning threshold."""
    for collection in () if r.on_server else r.memories:
        if len(collection.read.rows) > LOCAL_LIMIT:
            yield finding(
                "I214",
                {"points": len(collection.read.rows), "threshold": LOCAL_LIMIT},
                path=collection.info.path,
                subject=collection.info.name,
            )


def journal_mode(r: Reading) -> Iterable[Verdict]:
    """I215: which journal mode each file has."""
    for what, state in files(r):
        if state.journal_mode is not None:
            yield finding(
                "I215", {"mode": state.journal_mode, "read": state.way}, path=state.path, subject=what
            )


def unread(r: Reading) -> Iterator[NotChecked]:
    """Files that could not be read for a reason that is no fault of theirs; not a rule, but a gap."""
    faults = NOT_A_HISTORY | {"damaged", "missing"}
    for _, state in files(r):
        if state.problem is not None and state.problem.kind not in faults:
            yield NotChecked(state.path, state.problem.detail)
    if r.layout is None:
        return
    if r.layout.problem is not None and r.layout.problem.kind != "missing":
        yield NotChecked(r.layout.path, r.layout.problem.detail)
    elif not r.layout.exists and not r.log_live_count:
        yield NotChecked(r.layout.path, "not there")  # with live memories in the log it is L106
    elif r.on_server and r.configured is None and misses_nothing(r):  # else it is Q951
        name, others = r.install.collection.value, ", ".join(c.name for c in r.layout.collections[:10])
        yield NotChecked(f"the collection {name}", f"not there; there are: {others or 'none'}")


def _text_id(point_id: PointId | None) -> str | None:
    return None if point_id is None else str(point_id)


RULES: dict[str, RuleFunction] = {
    "I201": not_a_history,
    "I202": damaged_database,
    "I203": hot_journal,
    "I204": old_history_schema,
    "I205": stranded_history,
    "I206": damaged_meta,
    "I207": unreadable_point,
    "I208": unsafe_pickle,
    "I209": duplicate_rows,
    "I210": wrong_vector,
    "I211": dimension_mismatch,
    "I212": old_storage_format,
    "I213": no_keyword_slot,
    "I214": slow_embedded_store,
    "I215": journal_mode,
}
