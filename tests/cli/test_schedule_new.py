"""`schedule new`: what was added, every morning, into a file or a mail, and nothing of it into the journal."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.builders import StoreCopy, copy_store
from tests.cli.program import call
from tests.cli.test_schedule import PROGRAM, execute, flags, lines_of, needs
from tests.report.test_json import check

ADDRESS = "ann@example.org"


@pytest.fixture
def store(tmp_path: Path) -> StoreCopy:
    return copy_store("2.2.1", tmp_path / "it's 100%", pre_delete_all=True)


@pytest.fixture
def mailer(tmp_path: Path) -> Path:
    """A `mail` that keeps what it is given."""
    program = tmp_path / "bin" / "mail"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{tmp_path}/words"; cat >"{tmp_path}/letter"\n')
    program.chmod(0o755)
    return program


def planned(home: Path, *words: str, **env: str) -> dict[str, Any]:
    ran = call(home, "schedule", "new", *words, "--format", "json", env={"MEM0AUDIT_PROGRAM": PROGRAM, **env})
    assert ran.code == 0, ran.err
    return check(ran.out, "schedule")


def with_path(mailer: Path) -> dict[str, str]:
    return {"PATH": f"{mailer.parent}:/usr/bin:/bin"}


def test_into_a_file_for_its_owner_alone(tmp_path: Path, store: StoreCopy) -> None:
    target = tmp_path / "new $memories.txt"
    document = planned(tmp_path, "--to", str(target), *flags(store))
    service = document["units"][0]["text"]
    assert "StandardOutput=null" in service.splitlines()
    (words,) = lines_of(service)
    assert words[words.index("--since") + 1] == "25h"
    assert words == [word for line in document["commands"] for word in line]
    done = execute(tmp_path, words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "memories added since" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600


def test_by_mail(tmp_path: Path, store: StoreCopy, mailer: Path) -> None:
    runtime = tmp_path / "run"
    document = planned(tmp_path, "--mail", ADDRESS, *flags(store), **with_path(mailer))
    service = document["units"][0]["text"]
    assert "RuntimeDirectory=mem0audit-new" in service
    assert "RuntimeDirectoryMode=0700" in service
    # any of these keeps exim and postfix from taking the letter
    assert not [
        key for key in ("NoNewPrivileges=", "LockPersonality=", "RestrictRealtime=") if key in service
    ]
    assert "RandomizedDelaySec" not in document["units"][1]["text"]
    assert "Persistent=true" in document["units"][1]["text"]
    # run as a service would: from a folder and an environment of nobody's
    for words in lines_of(service.replace("%t/", f"{runtime}/"))[:1]:
        (runtime / "mem0audit-new").mkdir(parents=True)
        assert execute(tmp_path, words).returncode == 0
    letter = runtime / "mem0audit-new" / "new.txt"
    letter.write_text("1 memory added\n")
    send = lines_of(service.replace("%t/", f"{runtime}/"))[1]
    assert execute(tmp_path, send).returncode == 0
    assert (tmp_path / "words").read_text().splitlines() == ["-s", "New memories", ADDRESS]
    assert (tmp_path / "letter").read_text() == "1 memory added\n"
    # nothing new, no mail
    (tmp_path / "letter").unlink()
    letter.write_text("")
    assert execute(tmp_path, send).returncode == 0
    assert not (tmp_path / "letter").exists()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("way", ["--to", "--mail"])
def test_systemd_takes_it(tmp_path: Path, store: StoreCopy, mailer: Path, own: bool, way: str) -> None:
    needs("systemd-analyze")
    words = [way, str(tmp_path / "n%w.txt") if way == "--to" else ADDRESS, *(("--user",) if own else ())]
    document = planned(tmp_path, *words, *flags(store), **with_path(mailer))
    folder = tmp_path / "units"
    folder.mkdir()
    for unit in document["units"]:
        (folder / Path(unit["path"]).name).write_text(unit["text"])
    done = subprocess.run(
        ["systemd-analyze", *(("--user",) if own else ()), "verify", *map(str, sorted(folder.iterdir()))],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "where to?"),
        (("--to", "a", "--mail", "b"), 2, "where to?"),
        (("--mail", "-x"), 2, "no address"),
        (("--mail", "a b@c"), 2, "no address"),
        (("--to", "/no/such/folder/x"), 2, "no folder"),
        (("--mail", ADDRESS, "--at", "7"), 2, "no time of a day"),
        (("--mail", ADDRESS), 4, "no program `mail`"),
    ],
)
def test_what_cannot_be(
    tmp_path: Path, store: StoreCopy, mailer: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    path = {"PATH": str(tmp_path / "empty")} if code == 4 else with_path(mailer)
    ran = call(tmp_path, "schedule", "new", *words, *flags(store), env={"MEM0AUDIT_PROGRAM": PROGRAM, **path})
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_it_is_written_and_its_status_told(tmp_path: Path, store: StoreCopy) -> None:
    words = ("schedule", "new", "--user", "--to", str(tmp_path / "new.txt"), *flags(store))
    ran = call(tmp_path, *words, "--install", env={"MEM0AUDIT_PROGRAM": PROGRAM})
    assert ran.code == 0
    assert "mem0audit-new.timer" in ran.out
    unit = tmp_path / ".config" / "systemd" / "user" / "mem0audit-new.service"
    assert "new --since 25h" in unit.read_text()
    status = call(tmp_path, "schedule", "status")
    assert "new: systemd, user units" in status.out
