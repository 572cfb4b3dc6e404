from __future__ import annotations

import itertools
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.install.host import Host
from mem0audit.install.permissions import readable_by_others, replaceable_parent

PASSWD = """root:x:0:0::/root:/bin/sh
ann:x:1000:1000::/home/ann:/bin/sh
bob:x:1001:1001::/home/bob:/bin/sh
eve:x:1002:1002::/home/eve:/bin/sh
"""
GROUP = "root:x:0:\nann:x:1000:\nbob:x:1001:\neve:x:1002:\nstaff:x:50:ann,bob\n"


@pytest.fixture
def people(made_host: Host) -> Iterator[Host]:
    """A machine with ann, bob and eve; ann's store as mem0 makes it, folders 0755 and files 0644."""
    root = Path(made_host.root)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(GROUP)
    store = root / "home/ann/store/collection/mem0"
    store.mkdir(parents=True)
    (store / "storage.sqlite").write_text("x")
    for folder, folders, names in os.walk(root):
        for name in folders:
            os.chmod(f"{folder}/{name}", 0o755)
        for name in names:
            os.chmod(f"{folder}/{name}", 0o644)
    os.chmod(root, 0o755)
    for folder, folders, names in os.walk(root / "home/ann"):
        for path in [folder, *(f"{folder}/{name}" for name in folders + names)]:
            if os.geteuid() == 0:
                os.chown(path, 1000, 1000)
    yield made_host
    subprocess.run(["chmod", "-R", "u+rwx", str(root)], check=False)


STORE = "/home/ann/store"
FILE = f"{STORE}/collection/mem0/storage.sqlite"


def mode(host: Host, path: str, bits: int, gid: int | None = None) -> None:
    os.chmod(host.root + path, bits)
    if gid is not None:
        os.chown(host.root + path, -1, gid)


pytestmark = pytest.mark.root  # owners are given to files


@pytest.mark.parametrize("path", [STORE, FILE])
def test_what_mem0_makes_is_readable_where_the_home_lets_others_in(people: Host, path: str) -> None:
    assert readable_by_others(path, people) == "mode 0644, every parent searchable"


@pytest.mark.parametrize(
    "closed", ["/home/ann", "/home", STORE, f"{STORE}/collection", f"{STORE}/collection/mem0"]
)
def test_a_closed_folder_on_the_way_is_enough(people: Host, closed: str) -> None:
    mode(people, closed, 0o700)
    assert readable_by_others(STORE, people) is None


def test_a_folder_that_can_be_searched_but_not_listed_does_not_protect(people: Host) -> None:
    mode(people, STORE, 0o711)
    assert readable_by_others(STORE, people) is not None


def test_a_closed_file_is_enough(people: Host) -> None:
    mode(people, FILE, 0o600)
    assert readable_by_others(STORE, people) is None
    assert readable_by_others(FILE, people) is None


def test_a_private_group_is_nobody_and_a_shared_one_is_somebody(people: Host) -> None:
    mode(people, "/home/ann", 0o750)
    assert readable_by_others(STORE, people) is None
    mode(people, "/home/ann", 0o750, gid=50)
    # bob gets into the home through staff, and reads the file as anybody would
    assert readable_by_others(STORE, people) == "others, through their groups (bob), mode 0644"
    mode(people, FILE, 0o640, gid=50)
    assert readable_by_others(STORE, people) == "group staff (bob), mode 0640"


def test_the_group_is_judged_before_the_others(people: Host) -> None:
    """0604 with group staff: bob is in staff, so he may not, though everybody else may."""
    mode(people, FILE, 0o604, gid=50)
    assert readable_by_others(FILE, people) == "mode 0604, every parent searchable"


def acl(host: Host, path: str, *entries: tuple[int, int, int]) -> None:
    os.setxattr(
        host.root + path, "system.posix_acl_access",
        struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, who & 0xFFFFFFFF) for tag, bits, who in entries),
    )  # fmt: skip


def test_an_access_list_that_names_a_user(people: Host, durable: Path) -> None:
    host = move(people, durable)
    mode(host, FILE, 0o600)
    base = [(0x01, 6, -1), (0x04, 0, -1), (0x20, 0, -1)]
    try:
        acl(host, FILE, base[0], (0x02, 4, 1002), base[1], (0x10, 4, -1), base[2])
    except OSError:
        pytest.fail("the checkout is on a filesystem without access lists")
    assert readable_by_others(FILE, host) == "access list (eve), mode 0640"
    acl(host, FILE, base[0], (0x02, 4, 1002), base[1], (0x10, 0, -1), base[2])  # masked
    assert readable_by_others(FILE, host) is None
    acl(host, FILE, base[0], base[1], (0x08, 4, 50), (0x10, 4, -1), base[2])
    assert readable_by_others(FILE, host) == "access list (bob), mode 0640"


def move(host: Host, to: Path) -> Host:
    shutil.copytree(host.root, to / "root")
    subprocess.run(["cp", "-a", f"{host.root}/.", str(to / "root")], check=True)
    return replace(host, root=str(to / "root"))


def test_a_sticky_folder_for_all_is_no_replaceable_parent(people: Host) -> None:
    assert replaceable_parent(STORE, people) is None
    mode(people, "/home", 0o1777)
    assert replaceable_parent(STORE, people) is None
    mode(people, "/home", 0o777)
    assert replaceable_parent(STORE, people) == "/home"
    mode(people, "/home", 0o777)
    mode(people, STORE, 0o777)
    assert replaceable_parent(STORE, people) == STORE


def test_a_writable_folder_that_nobody_reaches_is_none(people: Host) -> None:
    mode(people, STORE, 0o777)
    mode(people, "/home/ann", 0o700)
    assert replaceable_parent(STORE, people) is None


def test_group_writable_counts_when_somebody_else_is_in_the_group(people: Host) -> None:
    mode(people, "/home/ann", 0o775)
    assert replaceable_parent(STORE, people) is None
    mode(people, "/home/ann", 0o775, gid=50)
    assert replaceable_parent(STORE, people) == "/home/ann"


def test_what_is_told_is_what_the_kernel_does(people: Host) -> None:
    """Each of 60 sets of modes: the answer, and whether a child that becomes bob or eve can open the file."""
    try_it = (
        "import os,sys\nos.chroot(sys.argv[2]); os.chdir('/')\n"
        "os.setgroups([50] if sys.argv[1]=='1001' else [])\nos.setgid(int(sys.argv[1]))\n"
        "os.setuid(int(sys.argv[1]))\n"
        "for path in sys.stdin.read().split('\\n'):\n"
        "    try:\n        open(path).close(); print('yes')\n"
        "    except OSError: print('no')\n"
    )
    host = people
    sets = []
    modes = itertools.product(
        (0o755, 0o750, 0o711, 0o700), (0o755, 0o750, 0o701), (0o644, 0o640, 0o604, 0o600, 0o660)
    )
    for number, (home, folder, file) in enumerate(modes):
        base = f"/home/ann/{number}"
        os.makedirs(host.root + base + "/sub")
        Path(host.root + base + "/sub/file").write_text("x")
        for path, bits in ((base, home), (base + "/sub", folder), (base + "/sub/file", file)):
            mode(host, path, bits, gid=50)
            os.chown(host.root + path, 1000, 50)
        sets.append(base + "/sub/file")
    can: dict[str, list[str]] = {}
    for uid in ("1001", "1002"):
        out = subprocess.run(
            [sys.executable, "-c", try_it, uid, host.root], check=True, capture_output=True, text=True,
            input="\n".join(sets),
        )  # fmt: skip
        can[uid] = out.stdout.split()
    for number, path in enumerate(sets):
        somebody = "yes" in (can["1001"][number], can["1002"][number])
        assert (readable_by_others(path, host) is not None) is somebody, (path, number)
    assert any("yes" in answers for answers in can.values()) and any(
        "no" in answers for answers in can.values()
    )
