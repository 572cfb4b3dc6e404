"""Whether we are in a container, and whether a path is on the container's own layer."""

from __future__ import annotations

import os
import re

from mem0audit.install.host import Host, read_text, seen_through
from mem0audit.install.mounts import OVERLAYS, Mount, mountinfo_of, what_is_under

_HEX = r"[0-9a-f]{64}"
_IDS = (
    re.compile(rf"/(?:docker|kubepods|libpod|containerd)\S*/({_HEX})(?:/|$)"),
    re.compile(rf"(?:docker|libpod|cri-containerd|crio|nerdctl|containerd)-({_HEX})\.scope"),
    re.compile(rf"/({_HEX})(?:/|$)"),
)
_NAMES = (
    re.compile(r"/lxc(?:\.payload)?[./]([^/]+)"),
    re.compile(r"/machine\.slice/systemd-nspawn@([^/]+)\.service"),
    re.compile(r"/machine\.slice/machine-([^/]+)\.scope"),
)
_GRAPH = re.compile(r"/(docker|containers/storage|containerd|kubelet|buildkit)/")


def container_in(cgroup_text: str) -> str | None:
    """The container named by a /proc/PID/cgroup text: an id of 64 digits or a name, None if there is none.

    Knows Docker, Podman, containerd, CRI-O and Kubernetes under cgroup v1 and v2, LXC and nspawn.
    """
    for patterns in (_IDS, _NAMES):
        for line in cgroup_text.splitlines():
            path = line.split(":", 2)[-1]
            for pattern in patterns:
                found = pattern.search(path)
                if found:
                    return found[1]
    return None


def inside_container(host: Host, pid: int | None = None) -> str | None:
    """How it shows that this host (or that process) is a container, in a few words; None if it is none."""
    base = host.at("") if pid is None else f"{host.proc}/{pid}/root"
    for mark in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container"):
        if os.path.lexists(base + mark):
            return f"{mark} exists"
    name = container_in(read_text(f"{host.proc}/{1 if pid is None else pid}/cgroup"))
    if name is not None:
        return f"control group of container {name[:12]}"
    first = read_text(f"{host.proc}/1/environ") if pid is None else ""
    for entry in first.split("\0"):
        if entry.startswith("container=") and len(entry) > len("container="):
            return f"first process says {entry}"
    return None


def on_own_layer(path: str, host: Host) -> bool | None:
    """Whether `path` (symlinks resolved) is on a container's own layer, gone when it is removed.

    False outside of containers, and in one where a volume or bind mount is under the path. None where
    the mount table cannot be read. A root that no container engine mounted (a virtual machine made
    from an image) is no layer, whatever files say "container".
    """
    pid, inner = seen_through(path, host)
    table = mountinfo_of("self" if pid is None else pid, host)
    mount, root = what_is_under(inner, table), what_is_under("/", table)
    if mount is None or root is None:
        return None
    if mount.id != root.id:
        return False
    return _is_layer(root) and inside_container(host, pid) is not None


def _is_layer(root: Mount) -> bool:
    # btrfs and vfs drivers mount a folder of the engine's storage; zfs names its data set after it.
    return (
        root.filesystem in OVERLAYS
        or bool(_GRAPH.search(root.root))
        or (root.filesystem == "zfs" and bool(_GRAPH.search(f"/{root.source}/")))
    )
