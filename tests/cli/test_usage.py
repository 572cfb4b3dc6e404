"""Command lines that cannot be right: one line, what to do, exit 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import call as run


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (("audit", "--select", "D30"), None, None),
        (("audit", "--select", "D3o1"), "--select D3o1: no rule has that code or name", "did you mean"),
        (("audit", "--ignore", "L101,Z9"), "--ignore Z9: no rule", "every code: mem0audit explain"),
        (("audit", "--select", ","), "--select: names no rule", "mem0audit explain"),
        (("audit", "--fail-on", "bad"), "--fail-on", "mem0audit audit --help"),
        (("audit", "--format", "xml"), "--format", "mem0audit audit --help"),
        (("audit", "--nope"), "no such option", "mem0audit audit --help"),
        (("audit", "stray"), "unexpected extra argument", "mem0audit audit --help"),
        (("adit",), "no such command", "mem0audit --help"),
        (("audit", "--qdrant-url", "ftp://x"), "--qdrant-url: a Qdrant server is reached by http", ":6333"),
        (("audit", "--api-key-env", "NO_SUCH_KEY"), "--api-key-env: there is no server", "--qdrant-url"),
        (("audit", "--history", ""), "--history: not a path", ""),
        (("explain", "resurected-memory"), "no rule has that code or name", "D301"),
        (("show",), "missing argument", "mem0audit show --help"),
        (("show", " "), "ID: is empty", "mem0audit log"),
        (("log", "-n", "-1"), "-n", "mem0audit log --help"),
        (("audit", "-o", "no/such/folder/x"), "no folder", ""),
        (("audit", "-o", "."), "is a folder", "name a file"),
        (("audit", "-o", "/dev/full"), "not an ordinary file", "leave -o out"),
        (("audit", "--config", "nope.yaml"), "nope.yaml", ""),
    ],
)
def test_usage(tmp_path: Path, words: tuple[str, ...], said: str | None, hint: str | None) -> None:
    ran = run(tmp_path, *words)
    if said is None:
        assert ran.code != 2
        return
    assert ran.code == 2, ran
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert lines[0].startswith("mem0audit: ")
    assert said.lower() in lines[0].lower()
    assert len(lines) <= 2
    assert (hint or "") in ran.err


def test_escapes_in_the_command_line_are_not_obeyed(tmp_path: Path) -> None:
    ran = run(tmp_path, "explain", "\x1b]0;x\x07\u202e")
    assert ran.code == 2
    assert "\x1b" not in ran.err
    assert "\\x1b]0;x\\x07\\u202e" in ran.err


def test_bare_call_shows_the_help(tmp_path: Path) -> None:
    ran = run(tmp_path)
    assert ran.code == 2
    assert ran.out == ""
    assert "Commands:" in ran.err


def test_explain_takes_codes_beginnings_names_and_lists(tmp_path: Path) -> None:
    for words in (("D301",), ("d301",), ("resurrected-memory",), ("D301,D302",), ("D301", "D30")):
        ran = run(tmp_path, "explain", *words)
        assert ran.code == 0
        assert ran.out.startswith("D301 resurrected-memory (high)")
    assert run(tmp_path, "explain", "D301,D301").out.count("D301 resurrected-memory") == 1
    every = run(tmp_path, "explain").out
    assert "L101  volatile-filesystem" in every


def test_completion_completes_codes(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        env={
            "_MEM0AUDIT_COMPLETE": "complete_bash",
            "COMP_WORDS": "mem0audit explain D30",
            "COMP_CWORD": "2",
        },
    )
    assert done.code == 0
    assert done.out.split()[:2] == ["D301", "D302"]
    last = run(
        tmp_path,
        env={
            "_MEM0AUDIT_COMPLETE": "complete_bash",
            "COMP_WORDS": "mem0audit audit --select D301,L10",
            "COMP_CWORD": "3",
        },
    )
    assert last.out.split()[0] == "D301,L101"
