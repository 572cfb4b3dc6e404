"""Predictions about systemd-tmpfiles, each compared with what the real program does to a made root."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.install.host import Host
from mem0audit.install.tmpfiles import cleaned, read_rules, seconds_of

PROGRAM = shutil.which("systemd-tmpfiles")
STORE = "/tmp/qdrant"
HISTORY = "/tmp/history.db"
FILES = (f"{STORE}/collection/mem0/storage.sqlite", HISTORY, "/tmp/other/x")


def rules(host: Host, text: str, file: str = "/etc/tmpfiles.d/a.conf") -> None:
    path = Path(host.root + file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def systemd(made_host: Host) -> Host:
    """A made machine on which systemd runs and mem0's stores lie in /tmp."""
    (Path(made_host.root) / "run/systemd/system").mkdir(parents=True)
    for file in FILES:
        path = Path(made_host.root + file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return made_host


def when(path: str, host: Host) -> str | None:
    found = cleaned(path, host)
    return found and found.when


def really(host: Host) -> tuple[set[str], set[str]]:
    """Which of FILES the real program removes from copies of the root: at boot, and when cleaning."""
    assert PROGRAM is not None
    gone = []
    for number, actions in enumerate((("--create", "--remove", "--boot"), ("--clean",))):
        copy = f"{host.root}-{number}"
        shutil.copytree(host.root, copy, symlinks=True)
        subprocess.run(
            [PROGRAM, f"--root={copy}", *actions],
            check=False, capture_output=True, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        gone.append({file for file in FILES if not os.path.isfile(copy + file)})
        shutil.rmtree(copy)
    return gone[0], gone[1]


CASES = [
    # rules, the store's fate, the history's fate; ages of 0, so that the real program acts at once
    ("", None, None),
    ("# D /tmp - - - -\n; x\n", None, None),
    ("D /tmp 1777 root root -\n", "at boot", "at boot"),
    ("D! /tmp 1777 root root -\n", "at boot", "at boot"),
    ("D /tmp/qdrant - - - -\n", "at boot", None),
    ("D /tmp/other - - - -\n", None, None),
    ("D /tmp - - - -\nx /tmp/qdrant\nx /tmp/history.db\n", "at boot", "at boot"),
    ("D /tmp - - - -\nd /tmp/qdrant - - - -\n", "at boot", "at boot"),
    ("D /tm* - - - -\n", None, None),
    ("q /tmp 1777 root root 0\n", "0", "0"),
    ("Q /tmp 1777 root root 0\n", "0", "0"),
    ("v /tmp 1777 root root 0\n", "0", "0"),
    ("d /tmp 1777 root root 0\n", "0", "0"),
    ("d /tmp 1777 root root -\n", None, None),
    ("d /tmp\n", None, None),
    ("d! /tmp 1777 root root 0\n", None, None),
    ("d /tmp - - - abcmABCM:0\n", "0", "0"),
    ("d /tmp - - - ~0\n", "0", None),
    ("d /tmp - - - bogus\n", None, None),
    ("d /tmp - - - 0 and what follows\n", "0", "0"),
    ("d /tmp/ - - - 0\n", "0", "0"),
    ("d '/tmp' - - - \"0\"\n", "0", "0"),
    ("d %T - - - 0\n", "0", "0"),
    ("d /t%%mp - - - 0\n", None, None),
    ("d %j/tmp - - - 0\n", None, None),
    ("d tmp - - - 0\n", None, None),
    ("dX /tmp - - - 0\n", None, None),
    ("k /tmp - - - 0\n", None, None),
    ("e /tmp - - - 0\n", "0", "0"),
    ("e /tmp/q* - - - 0\n", "0", None),
    ("e /tmp/* - - - 0\n", "0", None),
    ("e! /tmp - - - 0\n", None, None),
    ("d /tmp - - - 0\nx /tmp/qdrant\n", None, "0"),
    ("d /tmp - - - 0\nx /tmp/q[a-e]*\n", None, "0"),
    ("d /tmp - - - 0\nx /tmp/*\n", None, None),
    ("d /tmp - - - 0\nX /tmp/qdrant\n", "0", "0"),
    ("X /tmp/qdrant - - - 0\n", "0", None),
    ("x /tmp/qdrant - - - 0\n", "0", None),
    ("d /tmp - - - 0\nd /tmp/qdrant - - - -\n", None, "0"),
    ("d /tmp - - - 0\nf /tmp/history.db - - - -\n", "0", None),
    ("d /tmp - - - 0\nz /tmp/qdrant 0755 - - -\n", None, "0"),
    ("d /tmp - - - -\nd /tmp - - - 0\n", None, None),
    ("d /tmp - - - 0\nd /tmp - - - -\n", "0", "0"),
    ("D! /tmp - - - -\nd /tmp - - - 0\n", "at boot", "at boot"),
    ("d /tmp/qdrant - - - -\ne /tmp/qdrant - - - 0\n", "0", None),
    ("R! /tmp/qdrant\n", "at boot", None),
    ("R /tmp/qdr*\n", "at boot", None),
    ("R /tmp/*\n", "at boot", "at boot"),
    ("R /tmp\n", "at boot", "at boot"),
    ("R /tmp/qdrant\nx /tmp/qdrant\n", "at boot", None),
    ("r /tmp/history.db\n", None, "at boot"),
    ("r! /tmp/hist*\n", None, "at boot"),
    ("r /tmp/qdrant\n", None, None),
    ("C /tmp - - - 0 /nowhere\n", None, None),
]


@pytest.mark.parametrize(("text", "store", "history"), CASES)
def test_a_rule_and_what_it_does(systemd: Host, text: str, store: str | None, history: str | None) -> None:
    rules(systemd, text)
    assert when(STORE, systemd) == store
    assert when(HISTORY, systemd) == history


@pytest.mark.skipif(PROGRAM is None, reason="no systemd-tmpfiles to compare with")
def test_the_real_program_does_what_the_table_says(systemd: Host) -> None:
    wrong = []
    for text, store, history in CASES:
        rules(systemd, text)
        boot, clean = really(systemd)
        for file, expected in ((FILES[0], store), (HISTORY, history)):
            fate = "at boot" if file in boot else "0" if file in clean else None
            if fate != expected:
                wrong.append((text, file, fate, expected))
    assert not wrong


@pytest.mark.skipif(PROGRAM is None, reason="no systemd-tmpfiles to compare with")
@pytest.mark.parametrize("seed", range(3))
def test_random_rules_agree_with_the_real_program(systemd: Host, seed: int) -> None:
    """Lines at random in two files: what we foretell is what happens, 20 times a seed."""
    chance = random.Random(seed)
    paths = [
        "/tmp",
        "/tmp/qdrant",
        "/tmp/qdrant/collection",
        "/tmp/*",
        "/tmp/q*",
        "/tmp/history.db",
        "/t*",
        "/tmp/o*",
    ]
    for _ in range(20):
        files = []
        for _file in range(2):
            lines = [
                f"{chance.choice(['D', 'd', 'q', 'e', 'x', 'X', 'R', 'r', 'd!', 'D!', 'z', 'R!'])} "
                f"{chance.choice(paths)} - - - {chance.choice(['-', '0', '0', '~0'])}"
                for _line in range(chance.randint(1, 3))
            ]
            files.append("\n".join(lines) + "\n")
        rules(systemd, files[0], "/usr/lib/tmpfiles.d/b.conf")
        rules(systemd, files[1], f"/etc/tmpfiles.d/{chance.choice('abc')}.conf")
        boot, clean = really(systemd)
        for path, file in ((STORE, FILES[0]), (HISTORY, HISTORY)):
            foretold = when(path, systemd)
            happened = "at boot" if file in boot else "0" if file in clean else None
            shown = [str(rule.line) for rule in read_rules(systemd)]
            assert foretold == happened, (path, shown)
        shutil.rmtree(f"{systemd.root}/etc/tmpfiles.d")


def test_without_systemd_rules_empty_nothing(systemd: Host) -> None:
    """A container image has the files and nobody who runs them."""
    rules(systemd, "D /tmp 1777 root root -\n")
    assert when(STORE, systemd) == "at boot"
    shutil.rmtree(f"{systemd.root}/run/systemd")
    assert cleaned(STORE, systemd) is None


def test_the_source_and_the_line_are_told(systemd: Host) -> None:
    rules(systemd, "# first\n\nq /tmp 1777 root root 10d\n", "/usr/lib/tmpfiles.d/tmp.conf")
    found = cleaned(STORE, systemd)
    assert found is not None
    assert (found.source, found.line, found.when) == (
        "/usr/lib/tmpfiles.d/tmp.conf:3", "q /tmp 1777 root root 10d", "10d",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("strong", "weak"),
    [
        ("/etc/tmpfiles.d", "/run/tmpfiles.d"),
        ("/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d"),
        ("/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d"),
    ],
)
def test_a_file_replaces_one_of_its_name(systemd: Host, strong: str, weak: str) -> None:
    rules(systemd, "D /tmp - - - -\n", f"{weak}/tmp.conf")
    assert when(STORE, systemd) == "at boot"
    rules(systemd, "d /tmp - - - -\n", f"{strong}/tmp.conf")
    assert when(STORE, systemd) is None


def test_a_link_to_dev_null_masks_a_file(systemd: Host) -> None:
    rules(systemd, "D /tmp - - - -\n", "/usr/lib/tmpfiles.d/tmp.conf")
    mask = Path(systemd.root) / "etc/tmpfiles.d/tmp.conf"
    mask.parent.mkdir(parents=True)
    mask.symlink_to("/dev/null")
    assert when(STORE, systemd) is None


def test_a_masked_timer_and_a_masked_service(systemd: Host) -> None:
    rules(systemd, "D /tmp - - - 0\n")
    units = Path(systemd.root) / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "systemd-tmpfiles-setup.service").symlink_to("/dev/null")
    assert when(STORE, systemd) == "0"
    (units / "systemd-tmpfiles-clean.timer").symlink_to("/dev/null")
    assert when(STORE, systemd) is None


def test_files_count_by_name_and_the_first_line_for_a_path_counts(systemd: Host) -> None:
    rules(systemd, "d /tmp - - - -\n", "/usr/lib/tmpfiles.d/a.conf")
    rules(systemd, "d /tmp - - - 0\n", "/etc/tmpfiles.d/b.conf")
    rules(systemd, "D /tmp - - - -\n", "/etc/tmpfiles.d/not-a-rule.txt")
    assert when(STORE, systemd) is None


def test_a_link_out_of_tmp_and_a_link_into_it(systemd: Host) -> None:
    """What a link in /tmp leads to survives; the agent that follows the link finds nothing all the same."""
    rules(systemd, "D /tmp - - - -\n")
    root = Path(systemd.root)
    (root / "srv/real").mkdir(parents=True)
    (root / "tmp/link").symlink_to("/srv/real")
    (root / "srv/into").symlink_to("/tmp/qdrant")
    assert when("/srv/real", systemd) is None
    assert when("/tmp/link", systemd) == "at boot"
    assert when("/srv/into", systemd) == "at boot"


def test_specifiers(systemd: Host) -> None:
    (Path(systemd.proc) / "sys/kernel/random").mkdir(parents=True)
    (Path(systemd.proc) / "sys/kernel/random/boot_id").write_text("aa-bb\n")
    for specifier, path in (
        ("%S", "/var/lib"), ("%C", "/var/cache"), ("%L", "/var/log"), ("%t", "/run"), ("%V", "/var/tmp"),
        ("%h", "/root"), ("/x/%b", "/x/aabb"),
    ):  # fmt: skip
        rules(systemd, f"d {specifier}/mem0 - - - 3w\n")
        assert when(f"{path}/mem0/qdrant", systemd) == "3w", specifier


def test_the_private_tmp_of_a_unit_goes_at_boot(systemd: Host) -> None:
    rules(systemd, "x /tmp/systemd-private-%b-*\nR! /tmp/systemd-private-*\nq /tmp 1777 - - 10d\n")
    path = "/tmp/systemd-private-12-agent.service-x/tmp/qdrant"
    (Path(systemd.root + path)).mkdir(parents=True)
    assert when(path, systemd) == "at boot"


@pytest.mark.root
def test_cleaning_does_not_cross_a_mount(systemd: Host, tmp_path: Path, mount: Callable[..., Path]) -> None:
    """A volume under /tmp/qdrant is safe from `D /tmp`, the rest of /tmp is not."""
    rules(systemd, "D /tmp - - - -\n")
    table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
    info = Path(systemd.proc) / "self/mountinfo"
    info.write_text(table)
    assert when(STORE, systemd) == "at boot"
    info.write_text(table + "2 1 8:2 / /tmp/qdrant rw - ext4 /dev/sdb1 rw\n")
    assert when(STORE, systemd) is None
    assert when(HISTORY, systemd) == "at boot"
    # The real program, with a real mount.
    memory = mount("tmpfs", Path(systemd.root + STORE))
    (memory / "x").write_text("x")
    if PROGRAM is not None:
        subprocess.run(
            [PROGRAM, f"--root={systemd.root}", "--remove", "--boot"], check=False, capture_output=True
        )
        assert (memory / "x").exists()
        assert not Path(systemd.root + HISTORY).exists()


@pytest.mark.skipif(not os.path.isdir("/usr/lib/tmpfiles.d"), reason="no rules on this machine")
def test_the_real_rules_of_this_machine(host: Host, tmp_path: Path) -> None:
    """Read as they are: each line that names a path is understood, and /var/tmp/systemd-private-* goes at boot."""
    found = read_rules(host)
    assert len(found) > 20
    assert {rule.source.rpartition("/")[0] for rule in found} <= {
        "/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d", "/lib/tmpfiles.d",
    }  # fmt: skip
    # With the rules of this machine and a machine on which systemd runs.
    root = tmp_path / "machine"
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "usr/lib").mkdir(parents=True)
    shutil.copytree("/usr/lib/tmpfiles.d", root / "usr/lib/tmpfiles.d", symlinks=True)
    here = replace(host, root=str(root), proc=str(root / "proc"))
    assert when("/var/tmp/systemd-private-1-x.service-y/tmp/qdrant", here) == "at boot"
    assert when("/srv/qdrant", here) is None
    assert when("/root/.mem0/history.db", here) is None


@pytest.mark.parametrize(
    ("age", "seconds"),
    [
        ("10d", 864000), ("0", 0), ("1w2d", 777600), ("30min", 1800), ("2h 30min", 9000), ("~10d", 864000),
        ("mbC:1w", 604800), ("90", 90), ("1.5h", 5400), ("500ms", 0.5), ("1month", 2629800), ("~aA:2weeks", 1209600),
        ("-", None), ("10x", None), ("z:10d", None), ("", None), ("d10", None), ("10d-", None),
    ],
)  # fmt: skip
def test_ages(age: str, seconds: float | None) -> None:
    assert seconds_of(age) == seconds
