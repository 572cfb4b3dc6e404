"""Whose mem0 it is: the agent's Python and the versions of mem0ai and qdrant-client it imports."""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH110, PTH112, PTH116, PTH121

from __future__ import annotations

import os
from collections.abc import Sequence

from mem0audit.core.model import Agent, Holder, Install
from mem0audit.install.host import Host, resolved
from mem0audit.install.interpreters import (
    Package,
    arguments_of,
    base_of,
    cwd_of,
    environ_of,
    import_path,
    mapped_packages,
    package_in,
    split_base,
)

MEM0, CLIENT = "mem0ai", "qdrant-client"


def whose_mem0(install: Install, holders: Sequence[Holder], host: Host) -> Agent:
    """The agent's interpreter and versions, from `--agent-python` or else the process that has a store open.

    A version is None where it is unknown; `source` then says why. Nothing is imported or run.
    """
    if install.agent_python is not None:
        return _named(install.agent_python, host)
    if not holders:
        return Agent(
            None, None, None, "no process seen with the store open; name the agent's Python: --agent-python"
        )
    looks = [
        _held(holder, host)
        for holder in sorted(holders, key=lambda one: (one.how != "lock", one.private_mounts, one.pid))
    ]
    for agent in looks:
        if agent.mem0_version is not None:
            return agent
    return looks[0]


def runs_here(agent: Agent, holders: Sequence[Holder], host: Host) -> bool:
    """Whether the agent's interpreter is the same file by the same path to us as to the process that runs it."""
    python = agent.interpreter
    if python is None or not os.path.exists(host.at(python)):
        return False
    for holder in holders:
        if holder.interpreter != python:
            continue
        base = base_of(holder.pid, host)
        try:
            return not base or os.path.samefile(
                resolved(base + python, host), resolved(host.at(python), host)
            )
        except OSError:
            return False
    return True


def packages_of(python: str, host: Host, home: str | None) -> tuple[str, ...]:
    """Where a Python of this machine looks for packages, run by a user with this home, as far as its files tell."""
    return import_path(python, host, "", {"HOME": home} if home else {})


def _named(python: str, host: Host) -> Agent:
    if os.path.isdir(python):  # a virtual environment: its Python is meant
        python = f"{python.rstrip('/')}/bin/python"
    if not os.path.exists(host.at(python)):
        return Agent(python, None, None, f"--agent-python {python}: no such file")
    base, inner = split_base(python, host)
    folders = import_path(inner, host, base, {"HOME": host.home})
    return _agent(python, folders, base, "--agent-python", host)


def _held(holder: Holder, host: Host) -> Agent:
    pid = holder.pid
    base = base_of(pid, host)
    environ = environ_of(pid, host)
    seen = f"pid {pid}"
    mapped = mapped_packages(pid, host)
    folders: tuple[str, ...] = ()
    if holder.interpreter is not None:
        folders = import_path(
            holder.interpreter, host, base, environ, arguments_of(pid, host), cwd_of(pid, host)
        )
    if not mapped and not folders:
        why = f"the files of {seen} are not visible (run with sudo)"
        if os.access(f"{host.proc}/{pid}/fd", os.R_OK):
            why = f"{seen} ({holder.command.split(' ')[0]}) is not a Python"
        return Agent(holder.interpreter, None, None, why)
    # What it has loaded comes before what it would find.
    agent = _agent(holder.interpreter, (*mapped, *folders), base, seen, host)
    if holder.started_at is not None and agent.mem0_version is not None:
        package = package_in((*mapped, *folders), MEM0, base)
        # The start is known to a second or so.
        if package is not None and _made(base + package.metadata) > holder.started_at + 2:
            return Agent(
                agent.interpreter,
                agent.mem0_version,
                agent.client_version,
                f"{agent.source}, installed after it was started: it still runs the version before",
            )
    return agent


def _agent(interpreter: str | None, folders: Sequence[str], base: str, source: str, host: Host) -> Agent:
    found: dict[str, Package | None] = {name: package_in(folders, name, base) for name in (MEM0, CLIENT)}
    missing = [name for name, package in found.items() if package is None]
    mem0, client = found[MEM0], found[CLIENT]
    if missing:
        source += f": no {' or '.join(missing)} in the packages of {interpreter or 'it'}"
    return Agent(
        interpreter,
        mem0.version if mem0 else None,
        client.version if client else None,
        source,
    )


def _made(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
