from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mem0audit.install.host import Host, resolved
from mem0audit.install.mounts import (
    is_network,
    is_volatile,
    mount_under,
    mountinfo_of,
    parse,
    what_is_under,
)

ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"


def line(
    number: int,
    parent: int,
    point: str,
    kind: str,
    source: str = "none",
    options: str = "rw",
    root: str = "/",
) -> str:
    return f"{number} {parent} 0:{number} {root} {point} rw shared:1 master:2 - {kind} {source} {options}\n"


def under(path: str, table: str) -> str | None:
    mount = what_is_under(path, table)
    return mount and f"{mount.filesystem} {mount.point}"


def test_the_deepest_mount_on_the_way_is_what_a_path_stands_on() -> None:
    table = ROOT + line(28, 27, "/srv", "xfs") + line(29, 28, "/srv/data", "btrfs", root="/@data")
    assert under("/srv/data/x", table) == "btrfs /srv/data"
    assert under("/srv/database", table) == "xfs /srv"
    assert under("/srvx", table) == "ext4 /"
    assert under("/", table) == "ext4 /"


def test_a_mount_over_another_at_the_same_place_wins() -> None:
    table = ROOT + line(28, 27, "/srv", "xfs") + line(40, 28, "/srv", "tmpfs")
    assert under("/srv/x", table) == "tmpfs /srv"


def test_a_mount_hidden_below_a_later_one_does_not_count() -> None:
    """/srv/data was mounted first, then a tmpfs over /srv: the longer path is not reachable."""
    table = ROOT + line(28, 27, "/srv/data", "ext4", "/dev/vdb") + line(29, 27, "/srv", "tmpfs")
    assert under("/srv/data/x", table) == "tmpfs /srv"


def test_octal_escapes_in_paths() -> None:
    table = ROOT + line(28, 27, r"/srv/a\040b\134c\011d\012e", "tmpfs")
    assert under("/srv/a b\\c\td\ne/store", table) == "tmpfs /srv/a b\\c\td\ne"


def test_a_chroot_whose_root_is_no_mount_is_unknown() -> None:
    assert under("/srv/x", line(30, 12, "/proc", "proc")) is None
    assert under("/srv/x", "") is None
    assert parse("garbage\n1 2 3\n- - -\nx y 0:1 / / rw - ext4 a b\n") == ()


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs", "devtmpfs"])
def test_memory_filesystems_are_volatile(kind: str) -> None:
    table = ROOT + line(28, 27, "/tmp", kind)
    mount = what_is_under("/tmp/qdrant", table)
    assert mount is not None and is_volatile(mount, table)


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("ext4", "/dev/vda1", False),
        ("ext4", "/dev/zram1", True),
        ("btrfs", "/dev/sda2", False),
        ("ext2", "/dev/ram0", True),
        ("zfs", "tank/data", False),
        ("fuse.mergerfs", "a:b", False),
    ],
)
def test_other_filesystems_by_their_device(kind: str, source: str, expected: bool) -> None:
    table = line(27, 1, "/", kind, source)
    mount = what_is_under("/x", table)
    assert mount is not None and is_volatile(mount, table) is expected


def test_an_overlay_is_as_durable_as_its_upper_folder() -> None:
    table = (
        ROOT
        + line(28, 27, "/cow", "tmpfs")
        + line(29, 27, "/live", "overlay", "overlay", "rw,lowerdir=/a,upperdir=/cow/up,workdir=/cow/w")
        + line(30, 27, "/kept", "overlay", "overlay", "rw,lowerdir=/a,upperdir=/var/up,workdir=/var/w")
        + line(31, 27, "/readonly", "overlay", "overlay", "ro,lowerdir=/a:/b")
    )
    answers = {
        point: is_volatile(mount, table)
        for point in ("/live", "/kept", "/readonly")
        if (mount := what_is_under(point, table)) is not None
    }
    assert answers == {"/live": True, "/kept": False, "/readonly": False}


def test_the_root_of_a_live_system_is_volatile_by_its_command_line() -> None:
    """Its upper folder is hidden by the root itself; a container's root looks alike and must stay silent."""
    table = line(
        27, 1, "/", "overlay", "/cow", "rw,lowerdir=/filesystem.squashfs,upperdir=/cow/upper,workdir=/cow/w"
    )
    mount = what_is_under("/home/x", table)
    assert mount is not None
    assert is_volatile(mount, table, "boot=casper quiet splash")
    assert is_volatile(mount, table, "initrd=x rd.live.image quiet")
    assert not is_volatile(mount, table, "boot=live persistent quiet")
    assert not is_volatile(mount, table, "root=/dev/sda1 quiet")


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "ceph",
        "glusterfs",
        "davfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
    ],
)
def test_network_filesystems(kind: str) -> None:
    (mount,) = parse(line(27, 1, "/", kind))
    assert is_network(mount) and not is_volatile(mount, "")


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuse.mergerfs", "virtiofs"]
)
def test_local_filesystems(kind: str) -> None:
    assert not is_network(parse(line(27, 1, "/", kind))[0])


# --- real mounts ----------------------------------------------------------------------------------


@pytest.mark.root
def test_a_real_tmpfs_with_a_space_and_a_bind_mount_of_it(
    tmp_path: Path, host: Host, mount: Callable[..., Path]
) -> None:
    memory = mount("tmpfs", tmp_path / "a b")
    (memory / "store").mkdir()
    bound = mount("bind", tmp_path / "bound", source=str(memory / "store"))
    for path in (memory / "store" / "x", bound / "not" / "there"):
        found = mount_under(str(path), host)
        assert found is not None and found.filesystem == "tmpfs"
        assert is_volatile(found, mountinfo_of("self", host))
    found = mount_under(str(bound), host)
    assert found is not None and (found.root, found.point) == ("/store", str(bound))
    outside = mount_under(str(tmp_path / "other"), host)
    assert outside is not None and outside.point != str(memory)


@pytest.mark.root
def test_real_overmounts(tmp_path: Path, host: Host, mount: Callable[..., Path]) -> None:
    inner = mount("tmpfs", tmp_path / "srv" / "data", source="first")
    mount("tmpfs", tmp_path / "srv", source="over")
    found = mount_under(str(inner / "x"), host)
    assert found is not None and found.source == "over"
    again = mount("tmpfs", tmp_path / "srv", source="again")
    found = mount_under(str(again / "x"), host)
    assert found is not None and found.source == "again"


@pytest.mark.root
@pytest.mark.parametrize("upper_in_memory", [True, False])
def test_a_real_overlay(
    durable: Path, tmp_path: Path, host: Host, mount: Callable[..., Path], upper_in_memory: bool
) -> None:
    base = mount("tmpfs", tmp_path / "memory") if upper_in_memory else durable
    for name in ("lower", "upper", "work"):
        (base / name).mkdir()
    merged = mount(
        "overlay", tmp_path / "merged",
        f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work",
    )  # fmt: skip
    found = mount_under(str(merged / "qdrant"), host)
    assert found is not None and found.filesystem == "overlay"
    assert is_volatile(found, mountinfo_of("self", host)) is upper_in_memory


@pytest.mark.root
def test_a_symlink_leads_to_what_is_really_under_a_path(
    tmp_path: Path, host: Host, mount: Callable[..., Path]
) -> None:
    memory = mount("tmpfs", tmp_path / "memory")
    link = tmp_path / "store"
    link.symlink_to(memory)
    found = mount_under(str(link / "x"), host)
    assert found is not None and found.point == str(memory)


@pytest.mark.root
def test_every_path_agrees_with_findmnt(tmp_path: Path, host: Host, mount: Callable[..., Path]) -> None:
    mount("tmpfs", tmp_path / "one")
    mount("bind", tmp_path / "one" / "two", source=str(tmp_path))
    for path in ("/", "/proc", "/dev/shm", "/usr/lib", str(tmp_path / "one"), str(tmp_path / "one" / "two")):
        expected = subprocess.run(
            ["findmnt", "-n", "-o", "TARGET,FSTYPE", "-T", path], check=True, capture_output=True, text=True
        ).stdout.split()[-2:]  # of mounts over each other it lists all, the upper last
        found = mount_under(path, host)
        assert found is not None and [found.point, found.filesystem] == expected, path


def test_links_are_followed_inside_a_root(made_host: Host) -> None:
    root = Path(made_host.root)
    (root / "srv").mkdir()
    (root / "var").symlink_to("/srv")
    (root / "loop").symlink_to("loop")
    assert resolved("/var/x/../y", made_host) == "/srv/y"
    with pytest.raises(OSError, match="symbolic links"):
        resolved("/loop/x", made_host)


@pytest.mark.root
def test_a_path_through_a_process_stays_in_its_namespace(tmp_path: Path, host: Host) -> None:
    pid = os.getpid()
    assert resolved(f"/proc/{pid}/root/{tmp_path}", host) == f"/proc/{pid}/root{tmp_path}"
    found = mount_under(f"/proc/{pid}/root/proc", host)
    assert found is not None and found.filesystem == "proc"
