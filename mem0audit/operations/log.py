"""mem0's change log: what people open the sqlite3 shell for, without its lock on the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.model import FileProblem, HistoryFile, HistoryRow, Install
from mem0audit.install.host import Host
from mem0audit.install.processes import holders
from mem0audit.operations.otherroots import as_the_agent_sees_it, where_it_lies
from mem0audit.stores.history import event_counts, newest, read_history_file


@dataclass(frozen=True)
class Log:
    """The file (tables, schema, journal mode), its newest changes first, and counts by event.

    `newest` and `events` are empty where the file has no history table: then it is the wrong file.
    `problem` says why the rows could not be read although the table is there.
    """

    install: Install
    file: HistoryFile
    newest: tuple[HistoryRow, ...]
    events: Mapping[str, int]
    problem: str | None = None


def log(install: Install, host: Host, count: int) -> Log:
    """The log of an install with its `count` newest changes.

    Raises CouldNotRead where the file is missing or cannot be read at all.
    """
    install = as_the_agent_sees_it(install, holders([install.history.value], host).holders, host)
    path = install.history.value

    def failed(problem: FileProblem) -> Log:
        raise CouldNotRead(f"{path}: {problem.detail}")

    return where_it_lies(path, host, lambda inner: _log(install, inner, count), failed)


def _log(install: Install, path: str, count: int) -> Log:
    file = read_history_file(path)
    problem = file.file.problem
    if problem is not None and problem.kind != "no-table" and not file.tables:
        hint = "other logs on this machine: mem0audit status" if problem.kind == "missing" else None
        raise CouldNotRead(f"{path}: {problem.detail}", hint)
    if file.schema is None:
        return Log(install, file, (), {})
    try:
        return Log(install, file, newest(path, count), event_counts(path))
    except CouldNotRead as unreadable:
        return Log(install, file, (), {}, unreadable.message)
