"""What a path stands on: the mount table of a process, read as the kernel walks it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mem0audit.install.host import Host, read_text, resolved, seen_through

VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs", "hugetlbfs"})
"""Filesystems in memory: gone at the next boot."""

NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "ncpfs",
        "9p",
        "afs",
        "coda",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
        "orangefs",
        "davfs",
        "vboxsf",
        "vmhgfs",
        "prl_fs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.davfs",
        "fuse.davfs2",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.gcsfuse",
        "fuse.goofys",
        "fuse.mountpoint-s3",
        "fuse.juicefs",
        "fuse.blobfuse",
        "fuse.blobfuse2",
        "fuse.smbnetfs",
        "fuse.curlftpfs",
        "fuse.gvfsd-fuse",
        "fuse.vmhgfs-fuse",
        "fuse.grpcfuse",
    ]
)
"""Filesystems on another machine, or on this one's host: SQLite's locks and flock are not safe there."""

OVERLAYS = frozenset({"overlay", "aufs", "unionfs", "fuse-overlayfs", "fuse.fuse-overlayfs"})

_LIVE = re.compile(r"(^|\s)(boot=(live|casper|overlay)|rd\.live\.\S+|overlayroot=tmpfs\S*)(\s|$)")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo. `root` is the part of the filesystem that is mounted at `point`."""

    id: int
    parent: int
    device: str
    root: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]
    """Of the superblock: for an overlay they name its `upperdir`."""


def _plain(field: str) -> str:
    # The kernel writes space, tab, newline, backslash (and # in a source) as three octal digits.
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


@lru_cache(maxsize=8)  # an audit asks dozens of times of one table
def parse(mountinfo_text: str) -> tuple[Mount, ...]:
    """The mounts of a mountinfo text, in its order. Lines that are not mountinfo are left out."""
    mounts = []
    for line in mountinfo_text.splitlines():
        left, separator, right = line.partition(" - ")
        head, tail = left.split(" "), right.split(" ")
        if not separator or len(head) < 6 or len(tail) < 2 or not (head[0] + head[1]).isdigit():
            continue
        mounts.append(
            Mount(
                id=int(head[0]),
                parent=int(head[1]),
                device=head[2],
                root=_plain(head[3]),
                point=_plain(head[4]),
                filesystem=_plain(tail[0]),
                source=_plain(tail[1]),
                options=tuple(map(_plain, tail[2].split(","))) if len(tail) > 2 else (),
            )
        )
    return tuple(mounts)


def covers(folder: str, path: str) -> bool:
    """Whether `path` is `folder` or lies below it; both absolute, without `..`."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def what_is_under(path: str, mountinfo_text: str) -> Mount | None:
    """The mount that `path` (absolute, symlinks resolved, it need not exist) is on, None if unknown.

    Walks as the kernel does: from the root mount to the first mount on it that the path meets, and
    on from there. So a mount hidden below a later one does not count, although its path is longer.
    """
    return _walk(path, parse(mountinfo_text))


def _walk(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    ids = {mount.id for mount in mounts}
    tops = [m for m in mounts if (m.parent not in ids or m.parent == m.id) and covers(m.point, path)]
    if not tops:
        return None
    # Several tops (a table seen from a chroot): the deepest, and of equals the last one mounted.
    here = tops[0]
    for top in tops[1:]:
        if len(top.point) >= len(here.point):
            here = top
    seen = {here.id}
    while True:
        below: Mount | None = None
        for mount in mounts:
            if mount.parent != here.id or mount.id in seen or not covers(mount.point, path):
                continue
            if not covers(here.point, mount.point):
                continue
            if below is None or len(mount.point) <= len(below.point):
                below = mount
        if below is None:
            return here
        seen.add(below.id)
        here = below


def mountinfo_of(pid: int | str, host: Host) -> str:
    """The mount table of a process (a pid or "self"), `""` where it cannot be read."""
    return read_text(f"{host.proc}/{pid}/mountinfo")


def mount_under(path: str, host: Host) -> Mount | None:
    """The mount under a path of this host; a `/proc/PID/root/…` path is looked up in that process's table."""
    try:
        real = resolved(path, host)
    except OSError:
        return None
    pid, inner = seen_through(real, host)
    return what_is_under(inner, mountinfo_of("self" if pid is None else pid, host))


def is_volatile(mount: Mount, mountinfo_text: str, cmdline: str = "") -> bool:
    """Whether what is written to this mount is gone after a reboot.

    True in memory filesystems, on zram and ram disks, and for an overlay whose upper folder is on such.
    The upper folder of a live system's root is often hidden: there the kernel's `cmdline` tells.
    """
    if mount.filesystem in VOLATILE or re.match(r"/dev/(zram|ram)\d", mount.source):
        return True
    if mount.filesystem not in OVERLAYS:
        return False
    upper = next((o.partition("=")[2] for o in mount.options if o.startswith("upperdir=")), None)
    if upper is None:
        return False
    under = what_is_under(upper, mountinfo_text) if upper.startswith("/") else None
    if under is not None and under.filesystem not in OVERLAYS:
        if under.filesystem in VOLATILE or re.match(r"/dev/(zram|ram)\d", under.source):
            return True
        if mount.point != "/":
            return False
    return mount.point == "/" and bool(_LIVE.search(cmdline)) and "persistent" not in cmdline.split()


def is_network(mount: Mount) -> bool:
    """Whether the filesystem is on another machine (or on the host of this virtual one)."""
    return mount.filesystem in NETWORK
