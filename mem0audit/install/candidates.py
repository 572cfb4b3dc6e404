"""Other stores on this machine: what to offer when nothing is where the install says, and what else there is.

Looks in known places only, never through whole disks.
"""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH110, PTH112, PTH113, PTH116, PTH118, PTH202, PTH208

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from mem0audit.core.model import Candidate, Install
from mem0audit.core.words import shell_words
from mem0audit.install.config import DEFAULT_PATH
from mem0audit.install.host import Host, read_text, resolved, seen_through
from mem0audit.install.interpreters import base_of, cwd_of, environ_of
from mem0audit.install.processes import described, stores_held

_MOST_HOMES = 500


def find_candidates(install: Install, host: Host) -> tuple[Candidate, ...]:
    """Stores other than the install's own: held by processes, in homes, at mem0's defaults, in working folders.

    Each with the `mem0audit audit …` command for it, `sudo` before it where this user could not read it.
    Never raises; what cannot be seen is left out.
    """
    own = {
        _identity(origin.value, host) for origin in (install.history, install.vectors) if origin is not None
    }
    found: dict[tuple[str, str], Candidate] = {}
    for candidate in _all(host):
        identity = _identity(candidate.path, host)
        if identity not in own:
            found.setdefault((candidate.kind, identity), candidate)
    candidates = tuple(found.values())
    return tuple(
        replace(candidate, command=_command(candidate, candidates, install, host)) for candidate in candidates
    )


def _all(host: Host) -> Iterator[Candidate]:
    held = stores_held(host)
    yield from held
    holders = sorted(
        {int(found[1]) for one in held if (found := re.match(r"held by pid (\d+)", one.found_by))}
    )
    for pid in holders:
        yield from _around(pid, host)
    yield from _in_mem0_dir(f"{host.home.rstrip('/')}/.mem0", "mem0's default", host)
    if host.environ.get("MEM0_DIR"):
        yield from _in_mem0_dir(
            os.path.join(host.cwd, host.environ["MEM0_DIR"]), "environment MEM0_DIR", host
        )
    yield from _embedded(DEFAULT_PATH, "mem0's default", host)
    for user, home in _homes(host):
        yield from _in_mem0_dir(f"{home}/.mem0", f"home of {user}", host)
    yield from _stray(host.cwd, "working directory", host)


def _around(pid: int, host: Host) -> Iterator[Candidate]:
    """What the environment and the working directory of a process with an open store point to."""
    base = base_of(pid, host)
    environ = environ_of(pid, host)
    who = described(pid, host)
    cwd = cwd_of(pid, host)
    if environ.get("MEM0_DIR"):
        folder = os.path.join(cwd or "/", environ["MEM0_DIR"])
        yield from _in_mem0_dir(base + folder, f"MEM0_DIR of {who}", host)
    elif environ.get("HOME", "").startswith("/"):
        yield from _in_mem0_dir(f"{base}{environ['HOME'].rstrip('/')}/.mem0", f"home of {who}", host)
    if cwd is not None:
        yield from _stray(base + cwd, f"working directory of {who}", host)


def _homes(host: Host) -> Iterator[tuple[str, str]]:
    """The user behind sudo first, then root, then the accounts and folders under /home."""
    accounts = {}
    for line in read_text(host.at("/etc/passwd")).splitlines():
        fields = line.split(":")
        if len(fields) >= 7 and fields[5].startswith("/"):
            accounts[fields[0]] = fields[5].rstrip("/") or "/"
    sudo = host.environ.get("SUDO_USER")
    homes: dict[str, str] = {}
    if sudo:
        homes[accounts.get(sudo, f"/home/{sudo}")] = sudo
    homes.setdefault(accounts.get("root", "/root"), "root")
    for user, home in list(accounts.items())[:_MOST_HOMES]:
        if home not in ("/", "/nonexistent", "/dev", "/bin"):
            homes.setdefault(home, user)
    try:
        for name in sorted(os.listdir(host.at("/home")))[:_MOST_HOMES]:
            homes.setdefault(f"/home/{name}", name)
    except OSError:
        pass
    for home, user in homes.items():
        yield user, home


def _in_mem0_dir(folder: str, why: str, host: Host) -> Iterator[Candidate]:
    yield from _history(f"{folder}/history.db", why, host)
    yield from _embedded(f"{folder}/qdrant", why, host)


def _stray(folder: str, why: str, host: Host) -> Iterator[Candidate]:
    """What relative paths in a configuration leave behind."""
    folder = folder.rstrip("/")
    yield from _history(f"{folder}/history.db", why, host)
    for name in ("qdrant", "qdrant_data", "qdrant_db"):
        yield from _embedded(f"{folder}/{name}", why, host)
    # What mem0 makes of a `~` in its dict, which it does not expand.
    yield from _history(f"{folder}/~/.mem0/history.db", why, host)
    yield from _embedded(f"{folder}/~/qdrant", why, host)


def _history(path: str, why: str, host: Host) -> Iterator[Candidate]:
    try:
        if os.path.isfile(host.at(path)) and os.path.getsize(host.at(path)) > 0:
            yield Candidate("history", _tidy(path, host), why)
    except OSError:
        return


def _embedded(path: str, why: str, host: Host) -> Iterator[Candidate]:
    try:
        if any(os.path.exists(host.at(f"{path}/{name}")) for name in ("meta.json", "collection")):
            yield Candidate("vectors", _tidy(path, host), why)
    except OSError:
        return


def _tidy(path: str, host: Host) -> str:
    pid, inner = seen_through(path, host)
    return (
        path[: len(path) - len(inner)] + os.path.normpath(inner)
        if pid is not None
        else os.path.normpath(path)
    )


def _identity(path: str, host: Host) -> str:
    """The same for two names of one file or folder."""
    try:
        found = os.stat(host.at(path))
        return f"{found.st_dev}:{found.st_ino}"
    except (OSError, ValueError):
        pass
    try:
        return resolved(path, host)
    except OSError:
        return path


def _command(candidate: Candidate, others: tuple[Candidate, ...], install: Install, host: Host) -> str | None:
    """Audits the candidate with its other half: one found in the same way, else the install's own."""
    if re.match(rf"{re.escape(host.proc)}/\d+/fd/", candidate.path):
        return None  # deleted: what is left cannot be audited as a store, only copied out
    halves = [o.path for o in others if o.kind != candidate.kind and _way(o) == _way(candidate)]
    # A process may have several stores open: those that lie together belong together.
    other = max(halves, key=lambda path: len(os.path.commonpath([path, candidate.path])), default=None)
    own = install.vectors if candidate.kind == "history" else install.history
    other = other or (own.value if own is not None else None)
    pair = {candidate.kind: candidate.path}
    if other is not None:
        pair["vectors" if candidate.kind == "history" else "history"] = other
    words = ["mem0audit", "audit"]
    for kind, flag in (("history", "--history"), ("vectors", "--qdrant-path")):
        if kind in pair:
            words += [flag, pair[kind]]
    if "vectors" not in pair and install.server_url is not None:
        words += ["--qdrant-url", install.server_url.value]
        if install.server_key_from is not None and install.server_key_from.startswith("$"):
            words += ["--api-key-env", install.server_key_from[1:]]
    if not all(_readable(path, host) for path in pair.values()):
        words.insert(0, "sudo")
    return shell_words(words)


def _way(candidate: Candidate) -> str:
    """What two halves of one store have in common: the process they lead back to, else how they were found."""
    pid = re.search(r"\bpid (\d+)", candidate.found_by)
    return pid[0] if pid else candidate.found_by


def _readable(path: str, host: Host) -> bool:
    if host.uid == 0:
        # Already root: as printed to a root shell, "sudo" is neither needed nor always installed.
        return True
    location = host.at(path)
    try:
        os.lstat(location)
    except PermissionError:
        return False
    except OSError:
        return True
    return os.access(location, os.R_OK | (os.X_OK if os.path.isdir(location) else 0))
