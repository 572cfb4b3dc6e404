"""Steps for a person to take by hand, as shell lines that run as printed.

They are for what this tool has no command for. Taking a pair out comes before stopping anything: where a
store lies in a private /tmp, a container's own layer or a container's tmpfs, stopping the agent is what
deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mem0audit.core.model import Holder, Place
from mem0audit.core.words import shell_word, shell_words

# One VACUUM INTO is one read transaction: a whole copy, without free pages, in rollback and in WAL mode.
# It waits while the agent commits, makes the agent wait while it runs, refuses a file that is there already.
_PYTHON_COPY = (
    "import os, pathlib, sqlite3, sys; source, target = sys.argv[1:]; "
    "os.makedirs(os.path.dirname(target), 0o700, exist_ok=True); "
    'sqlite3.connect(pathlib.Path(source).as_uri() + "?mode=ro", timeout=30, uri=True)'
    '.execute("VACUUM INTO ?", (target,))'
)


def _copy_line(source: str, target: str, sqlite3_shell: bool) -> str:
    """The line that copies one SQLite file while another process writes it."""
    if not sqlite3_shell:
        return shell_words(["python3", "-c", _PYTHON_COPY, source, target])
    into = target.replace("'", "''")
    return f"sqlite3 -readonly -cmd '.timeout 30000' {shell_word(source)} " + _double_quoted(
        f"VACUUM INTO '{into}'"
    )


def _double_quoted(text: str) -> str:
    """A shell word; in double quotes where that is safe, because it holds single ones."""
    return f'"{text}"' if text.isprintable() and not set(text) & set('"$`\\!') else shell_word(text)


def manual_snapshot_steps(
    history: str,
    vectors: str,
    collections: Sequence[str],
    to: str,
    *,
    holder: Holder | None = None,
    sqlite3_shell: bool = True,
) -> tuple[str, ...]:
    """Shell lines, in order, that copy both stores to a new folder while the agent runs.

    `history` is the file, `vectors` the embedded folder, `collections` the collections to take, `to`
    the folder to make (absolute; a file that is there already is refused, not overwritten). It ends up
    with `qdrant/` and `history.db`, which `mem0audit audit --history … --qdrant-path …` and mem0 read.

    Memories come first, the history after them and entities last: so the log of the copy knows
    everything that happened to its points. Nothing is locked across the files: the pair is safe to
    have and not settled, what the agent did meanwhile shows as a difference.

    With a `holder` that lives in another mount namespace (PrivateTmp, a container) the paths are those
    that it sees (or those with its `/proc/PID/root` before them), and the lines enter that namespace, with
    the agent's own Python: root must run them.
    SQLite itself must not be pointed at /proc/PID/root/…: it resolves that link to "/" and opens the
    file of the same name on this side (seen with 3.40). `sqlite3_shell=False` writes the lines with
    python3, for a machine without the sqlite3 program.
    """
    first = [name for name in collections if not _is_entities(name, collections)]
    last = [name for name in collections if _is_entities(name, collections)]
    to = to.rstrip("/") or "/"
    store = vectors.rstrip("/") or "/"
    pairs = [
        *((f"{store}/collection/{name}/storage.sqlite", f"qdrant/collection/{name}") for name in first),
        (history, ""),
        *((f"{store}/collection/{name}/storage.sqlite", f"qdrant/collection/{name}") for name in last),
    ]
    targets = [(source, f"{inner}/storage.sqlite" if inner else "history.db") for source, inner in pairs]
    if holder is not None and holder.private_mounts:
        inside = [(as_seen_inside(source), target) for source, target in targets]
        return _steps_inside(holder, as_seen_inside(store), inside, to)
    folders = [f"{to}/{inner}" for _, inner in pairs if inner]
    return (
        shell_words(["install", "-d", "-m", "700", to]),
        shell_words(["mkdir", "-p", *(folders or [f"{to}/qdrant"])]),
        shell_words(["cp", f"{store}/meta.json", f"{to}/qdrant/meta.json"]),
        *(_copy_line(source, f"{to}/{target}", sqlite3_shell) for source, target in targets),
    )


def keep_log_step(history: str, *, sqlite3_shell: bool = True) -> str:
    """The shell line that copies the log to `<history>.kept` while the agent runs; refused if that is there."""
    return _copy_line(history, f"{history}.kept", sqlite3_shell)


def _is_entities(name: str, collections: Sequence[str]) -> bool:
    return name.endswith("_entities") and name[: -len("_entities")] in collections


def _steps_inside(holder: Holder, store: str, targets: Sequence[tuple[str, str]], to: str) -> tuple[str, ...]:
    """The same for a store that only the holder's mount namespace shows, staged beside the store."""
    inside = f"/proc/{holder.pid}/root"
    staged = f"{store}.copy"
    enter = ["nsenter", "--target", str(holder.pid), "--mount", "--"]
    python = holder.interpreter or "python3"
    return (
        *(
            shell_words([*enter, python, "-c", _PYTHON_COPY, source, f"{staged}/{target}"])
            for source, target in targets
        ),
        shell_words(["install", "-d", "-m", "700", to]),
        shell_words(["cp", "-R", f"{inside}{staged}/.", to]),
        shell_words(["cp", f"{inside}{store}/meta.json", f"{to}/qdrant/meta.json"]),
        shell_words(["rm", "-r", f"{inside}{staged}"]),
    )


def stop_command(holder: Holder) -> str:
    """The command that stops a process which has a store open: its container, its unit, or itself.

    A container is taken for Docker's; a unit of the user's own manager is stopped through that.
    """
    if holder.container is not None:
        return shell_words(["docker", "stop", holder.container])
    if holder.unit is not None:
        return shell_words(["systemctl", *(["--user"] if holder.user_unit else []), "stop", holder.unit])
    return f"kill {holder.pid}"


def as_seen_inside(path: str) -> str:
    """A path that leads through a process's root (`/proc/812/root/tmp/qdrant`), as that process sees it."""
    return re.sub(r"^/proc/\d+/root(?=/)", "", path)


def in_private_tmp(path: str, holder: Holder) -> bool:
    """Whether the store at `path` (a file, or a folder) lies in a /tmp or /var/tmp that is the holder's own.

    A process with a private /tmp may well keep its stores elsewhere, where they outlive it: every unit with
    PrivateTmp=yes does that has its data in /var/lib.
    """
    if not holder.private_tmp or not _under(as_seen_inside(path), "/tmp", "/var/tmp"):  # noqa: S108
        return False
    held = [as_seen_inside(one) for one in holder.paths]
    return not held or any(_under(one, as_seen_inside(path)) for one in held)


def dies_with_agent(place: Place, holder: Holder | None) -> bool:
    """Whether stopping the agent can delete what is in this place, so that a copy must come first.

    True for a container's own layer (it goes with the container), a private /tmp or /var/tmp (systemd
    deletes it as the unit stops), a tmpfs that only the holder's namespace or container has, and /run of
    a unit (its RuntimeDirectory goes as it stops).
    """
    if place.container_layer:
        return True
    if holder is None:
        return False
    if in_private_tmp(place.path, holder):
        return True
    if place.volatile and (holder.container is not None or holder.private_mounts):
        return True
    return holder.unit is not None and _under(as_seen_inside(place.path), "/run", "/var/run")


def _under(path: str, *parents: str) -> bool:
    return any(path == parent or path.startswith(f"{parent}/") for parent in parents)
