"""Streams: data to standard output or `-o FILE`, everything else to standard error."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from mem0audit.core.errors import Failed, Mem0auditError, Refused, UsageProblem
from mem0audit.core.model import Install
from mem0audit.report.escape import escape, shell_word
from mem0audit.report.screen import Screen

_PLAIN = str.maketrans({"…": "...", "·": "-", "–": "-", "’": "'", "│": "|"})
_WIDEST = 100
_FOLDERS_OF_SUDO = frozenset(
    Path(folder) for folder in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
)
"""`secure_path` of sudo as distributions set it."""


def prepare_streams() -> None:
    """Lets no encoding stop a report: what a stream cannot hold is written as a backslash escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def wants_colour(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """NO_COLOR wins, then FORCE_COLOR, then TERM=dumb, then whether it is a terminal."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return environ.get("TERM") != "dumb" and is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at it."""
    return stream is not None and not stream.closed and stream.isatty()


def called_as() -> str:
    """How this program was called, so that what we print runs as printed.

    A launcher that is not named `mem0audit` on the PATH says its own name in MEM0AUDIT_PROGRAM.
    """
    given = os.environ.get("MEM0AUDIT_PROGRAM")
    if given:
        return given
    program = sys.argv[0] if sys.argv else ""
    if Path(program).name == "__main__.py":
        return f"{sys.executable} -m mem0audit"
    found = shutil.which("mem0audit")
    if Path(program).name == "mem0audit" and not (found and Path(found).samefile(program)):
        return program if Path(program).exists() else "mem0audit"
    return "mem0audit"


def _for_root(program: str) -> str:
    """`mem0audit` by its whole path where `sudo` would not find it: it looks in the system's folders only."""
    found = shutil.which(program) if program == "mem0audit" else None
    if found is None or Path(found).parent in _FOLDERS_OF_SUDO:
        return program
    return shell_word(str(Path(found).absolute()))


def screen(
    flags: tuple[str, ...] = (), *, verbose: bool = False, quiet: bool = False, to_file: bool = False
) -> Screen:
    """Where text goes: at most 100 columns, narrower on a narrower terminal."""
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    return Screen(
        width=max(width, 40),
        colour=not to_file and wants_colour(sys.stdout, os.environ),
        verbose=verbose,
        quiet=quiet,
        program=called_as(),
        program_for_root=_for_root(called_as()),
        flags=flags,
        sqlite3_shell=shutil.which("sqlite3") is not None,
    )


def write(text: str, output: str | None = None) -> None:
    """The data of a command. A reader that went away (`| head`) is no error; a full disk is `Failed`."""
    if output is not None:
        from mem0audit.stores.files import write_file

        try:
            write_file(Path(output), text.encode("utf-8", "backslashreplace"))
        except OSError as problem:
            raise Failed(f"{output} could not be written: {problem.strerror}; nothing else changed") from None
        return
    if sys.stdout is None:
        return
    try:
        "…·".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = text.translate(_PLAIN)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence()
    except OSError as problem:
        silence()
        raise Failed(f"standard output could not be written: {problem.strerror}") from None


def silence(stream: TextIO | None = None) -> None:
    """Points standard output (or another stream) at nothing, so that the interpreter's own flush at exit stays
    quiet too."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
    except (OSError, ValueError, AttributeError):
        return


def complain(problem: Mem0auditError) -> None:
    """An expected failure: one line of what and where, one of what to do."""
    say(f"mem0audit: {problem.message}")
    if problem.hint:
        for line in problem.hint.splitlines():
            say(f"  {line}")


def say(line: str) -> None:
    """A line to standard error, escaped, our commands in it as the user called us; a closed one is no error."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(
            escape(Screen(program=called_as(), program_for_root=_for_root(called_as())).ours(line)) + "\n"
        )
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)  # else its flush at exit would fail again, and make the exit code 120


def confirm(question: str) -> None:
    """Asks at the terminal before a change. Raises Refused where nobody can answer, or the answer is not yes."""
    if not is_terminal(sys.stdin) or not is_terminal(sys.stderr):
        raise Refused("not confirmed: there is no terminal to ask at; nothing changed", "to do it: --yes")
    sys.stderr.write(f"{escape(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("not confirmed; nothing changed")


def check_output(output: str | None, install: Install | None = None, flag: str = "-o") -> None:
    """Refuses, before any work, a file (of `flag`) that cannot be written or that lies in the install it looks at.

    Looking changes nothing: a report written over history.db, or into the Qdrant folder, would.
    """
    if output is None:
        return
    path = Path(output)
    if path.is_dir():
        raise UsageProblem(f"{flag} {output}: is a folder", "name a file in it")
    if path.exists() and not path.is_file():
        raise UsageProblem(
            f"{flag} {output}: not an ordinary file",
            "leave -o out to write to standard output" if flag == "-o" else "name another file",
        )
    folder = Path.cwd() / path.parent
    if not folder.is_dir():
        raise UsageProblem(f"{flag} {output}: no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageProblem(f"{flag} {output}: {folder} is not writable by you")
    real = Path(os.path.realpath(path)).parent
    _check_not_kept(f"{flag} {output}", path, real)
    if install is None:
        return
    kept = [install.mem0_dir.value, *([install.vectors.value] if install.vectors else [])]
    inside = any(real.is_relative_to(os.path.realpath(place)) for place in kept)
    history = os.path.realpath(install.history.value)
    target = os.path.realpath(path)
    if inside or target in {history, *(history + end for end in ("-journal", "-wal", "-shm"))}:
        raise Refused(f"{flag} {output}: inside the install", "name a file elsewhere")


def _check_not_kept(named: str, path: Path, real: Path) -> None:
    """Refuses a file among snapshots, in a Qdrant folder, or over any database: a report would destroy what only
    lies there once."""
    from mem0audit.core.snapshot import CHECKSUM, MANIFEST
    from mem0audit.stores.files import LOCK

    for folder in (real, *real.parents):
        if (folder / LOCK).exists() or ((folder / CHECKSUM).exists() and (folder / MANIFEST).exists()):
            raise Refused(f"{named}: lies among the snapshots in {folder}", "name a file elsewhere")
        if (folder / "meta.json").exists() and (folder / "collection").is_dir():
            raise Refused(f"{named}: lies inside the vector store {folder}", "name a file elsewhere")
    try:
        with path.open("rb") as there:
            database = there.read(16) == b"SQLite format 3\0"
    except OSError:
        return
    if database:
        raise Refused(f"{named}: is a database, and would be written over", "name another file")
