"""Where output goes: encodings, pipes, terminals, a full disk, an interrupt."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders import RawPoints, StoreCopy, copy_store
from tests.cli.program import clean_environment, run

HOSTILE_ID = "7d2b4a3c-0000-4000-8000-000000000003"


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    copy = copy_store("1.0.0", tmp_path / "store")
    RawPoints(copy.vectors).put(HOSTILE_ID, {"data": "naïve 漢字 😀 \x1b[2J", "user_id": "zoë"})
    return copy


def flags(store: StoreCopy) -> tuple[str, ...]:
    return "--history", str(store.history), "--qdrant-path", str(store.vectors)


@pytest.mark.parametrize(
    "env",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "cp1252"},
    ],
)
def test_no_encoding_stops_a_report(tmp_path: Path, store: StoreCopy, env: dict[str, str]) -> None:
    for words in (("audit", "--verbose"), ("show", HOSTILE_ID)):
        ran = run(tmp_path, *words, *flags(store), env=env)
        assert ran.code in (0, 1)
        assert ran.err == ""
        assert ran.out


def test_an_ascii_terminal_gets_plain_marks_and_escaped_text(tmp_path: Path, store: StoreCopy) -> None:
    ran = run(tmp_path, "show", HOSTILE_ID, *flags(store), env={"PYTHONIOENCODING": "ascii"})
    assert "na\\xefve \\u6f22\\u5b57 \\U0001f600 \\x1b[2J" in ran.out
    full = run(tmp_path, "audit", *flags(store), env={"PYTHONIOENCODING": "ascii"})
    assert "\\u2026" not in full.out
    assert "\\xb7" not in full.out


def piped(tmp_path: Path, store: StoreCopy, shell: str) -> subprocess.CompletedProcess[bytes]:
    command = f"{sys.executable} -m mem0audit audit --verbose {' '.join(flags(store))}"
    return subprocess.run(
        ["bash", "-c", shell.replace("AUDIT", command)],
        env=clean_environment(tmp_path),
        capture_output=True,
        timeout=300,
        check=False,
    )


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, store: StoreCopy) -> None:
    done = piped(tmp_path, store, "(AUDIT; echo code $? >&2) | head -c 1 >/dev/null; exit 0")
    assert done.stderr.decode().split() == ["code", "1"]


def test_a_reader_that_is_gone_already_is_no_error(tmp_path: Path, store: StoreCopy) -> None:
    done = piped(tmp_path, store, "(sleep 0.3; AUDIT; echo code $? >&2) | true; exit 0")
    assert done.stderr.decode().split() == ["code", "1"]


def test_help_into_a_reader_that_is_gone_is_quiet(tmp_path: Path, store: StoreCopy) -> None:
    done = piped(tmp_path, store, f"(sleep 0.3; {sys.executable} -m mem0audit --help) | true; exit 0")
    assert done.stderr == b""


def test_a_full_disk_is_said(tmp_path: Path, store: StoreCopy) -> None:
    done = piped(tmp_path, store, "AUDIT > /dev/full")
    assert done.returncode == 5
    assert done.stderr.decode().splitlines() == [
        "mem0audit: standard output could not be written: No space left on device"
    ]


def test_closed_streams_are_no_bug(tmp_path: Path, store: StoreCopy) -> None:
    assert piped(tmp_path, store, "AUDIT >&-").returncode == 1
    assert piped(tmp_path, store, "AUDIT 2>&- >/dev/null").returncode == 1
    assert piped(tmp_path, store, f"{sys.executable} -m mem0audit audit --nope 2>&-").returncode == 2


# --- terminals ----------------------------------------------------------------------------------


def on_terminal(tmp_path: Path, code: list[str], **env: str) -> str:
    """What a person sees: both streams on one terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *code],
        env={**clean_environment(tmp_path), "TERM": "xterm", **env},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says EIO when the other end closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    process.wait(timeout=300)
    return seen.decode("utf-8", "replace")


def test_colour_is_for_terminals_that_want_it(tmp_path: Path, store: StoreCopy) -> None:
    code = ["-c", PATIENT, "audit", *flags(store)]
    assert "\x1b[1;31m" in on_terminal(tmp_path, code)
    assert "\x1b" not in on_terminal(tmp_path, code, NO_COLOR="1")
    assert "\x1b" not in on_terminal(tmp_path, code, TERM="dumb")
    assert "\x1b" not in run(tmp_path, "audit", *flags(store)).out
    assert "\x1b[1;31m" in run(tmp_path, "audit", *flags(store), env={"FORCE_COLOR": "1"}).out
    both = {"FORCE_COLOR": "1", "NO_COLOR": "1"}
    assert "\x1b" not in run(tmp_path, "audit", *flags(store), env=both).out


PATIENT = """
import sys
import mem0audit.cli.progress as module
module._PATIENCE_S *= 600
from mem0audit.cli.main import main
sys.argv[0] = "mem0audit"
sys.exit(main())
"""
"""The program where no machine is so slow that an audit takes longer than the bar waits."""


SLOW = """
import sys, time
import mem0audit.operations.audit as module
real = module.audit
def slow(install, host, *, progress=None, **named):
    for done in range(2):
        if progress: progress("reading mem0 [bold]", done, 2)
        while progress and progress._live is None: time.sleep(0.05)
        time.sleep(0.2)
    return real(install, host, **named)
module.audit = slow
from mem0audit.cli.main import main
sys.argv[0] = "mem0audit"
sys.exit(main())
"""


def test_progress_is_shown_while_one_phase_alone_takes_long(tmp_path: Path, store: StoreCopy) -> None:
    once = SLOW.replace('progress("reading mem0 [bold]", done, 2)', "progress('reading mem0', None, None)")
    once = once.replace("range(2)", "range(1)")
    assert "reading mem0" in on_terminal(tmp_path, ["-c", once, "audit", *flags(store)])


def test_progress_is_shown_only_on_a_terminal_and_only_after_a_second(
    tmp_path: Path, store: StoreCopy
) -> None:
    seen = on_terminal(tmp_path, ["-c", SLOW, "audit", *flags(store)])
    assert "reading mem0 [bold]" in seen
    assert "reading mem0" not in on_terminal(tmp_path, ["-c", SLOW, "audit", *flags(store), "--quiet"])
    assert "reading mem0" not in on_terminal(tmp_path, ["-c", PATIENT, "audit", *flags(store)])
    piped_ = subprocess.run(
        [sys.executable, "-c", SLOW, "audit", *flags(store)],
        env=clean_environment(tmp_path),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert piped_.stderr == b""


# --- ends ---------------------------------------------------------------------------------------

PATCHED = """
import sys
import mem0audit.operations.audit as module
def audit(*words, **named):
    {body}
module.audit = audit
from mem0audit.cli.main import main
sys.argv[0] = "mem0audit"
sys.exit(main())
"""


def patched(tmp_path: Path, body: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PATCHED.format(body=body), "audit", *words],
        env={**clean_environment(tmp_path), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_bug_is_one_line_without_the_text_that_it_may_hold(tmp_path: Path) -> None:
    body = "raise KeyError('SECRETTEXT')"
    done = patched(tmp_path, body)
    assert done.returncode == 70
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "a bug: KeyError in" in done.stderr
    assert "--verbose" in done.stderr
    assert "SECRETTEXT" not in done.stderr


@pytest.mark.parametrize("how", [{"words": ("--verbose",)}, {"env": {"MEM0AUDIT_DEBUG": "1"}}])
def test_a_traceback_is_shown_when_asked_for_and_holds_no_text(
    tmp_path: Path, how: dict[str, object]
) -> None:
    body = "\n".join(
        [
            "text = 'SECRET' + 'TEXT'",
            "    try: {}[text]",
            "    except KeyError as first: raise ValueError(text) from first",
        ]
    )
    done = patched(tmp_path, body, *how.get("words", ()), **how.get("env", {}))  # type: ignore[arg-type]
    assert done.returncode == 70
    assert "cli/audit.py" in done.stderr
    assert "ValueError" in done.stderr
    assert "KeyError" in done.stderr
    assert "SECRETTEXT" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [("UsageProblem", 2), ("CouldNotRead", 3), ("Refused", 4), ("Failed", 5)],
)
def test_expected_failures_are_a_line_and_a_hint(tmp_path: Path, error: str, code: int) -> None:
    body = f"from mem0audit.core import errors; raise errors.{error}('it \\x1b[2J is so', 'do this')"
    done = patched(tmp_path, body, "--verbose")
    assert done.returncode == code
    assert done.stderr == "mem0audit: it \\x1b[2J is so\n  do this\n"


def test_an_interrupt_is_quiet_and_130(tmp_path: Path) -> None:
    body = "print('ready', flush=True); import time; time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", PATCHED.format(body=body), "audit"],
        env=clean_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err == b""
