from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.install.containers import container_in, inside_container, on_own_layer
from mem0audit.install.host import Host
from mem0audit.install.mounts import mount_under

ID = "0123456789abcdef" * 4
OVERLAY = (
    "1 0 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A,upperdir=/var/lib/docker/u\n"
    "2 1 0:51 / /dev/shm rw - tmpfs shm rw\n"
    "3 1 8:1 /var/lib/docker/volumes/mem0/_data /data rw - ext4 /dev/sda1 rw\n"
    "4 1 8:1 /srv/history.db /root/.mem0/history.db rw - ext4 /dev/sda1 rw\n"
)


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", ID),
        (f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", ID),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", ID),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n", ID),
        (f"11:cpu:/kubepods/burstable/pod1b2c3d-11aa/{ID}\n", ID),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", ID),
        (f"0::/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope\n", ID),
        (f"0::/system.slice/nerdctl-{ID}.scope\n", ID),
        ("0::/lxc.payload.web/init.scope\n", "web"),
        ("5:cpu:/lxc/web\n", "web"),
        ("0::/machine.slice/systemd-nspawn@deb.service/payload\n", "deb"),
        ("0::/system.slice/agent.service\n", None),
        ("0::/system.slice/docker.service\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_container_of_a_control_group(cgroup: str, name: str | None) -> None:
    assert container_in(cgroup) == name


@pytest.fixture
def container(made_host: Host) -> Host:
    (Path(made_host.root) / ".dockerenv").write_text("")
    (Path(made_host.proc) / "self/mountinfo").write_text(OVERLAY)
    return made_host


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/tmp/qdrant", True),
        ("/root/.mem0", True),
        ("/root/.mem0/history.db", False),
        ("/data/qdrant", False),
        ("/dev/shm/qdrant", False),
    ],
)
def test_only_what_no_volume_covers_is_on_the_layer(container: Host, path: str, own: bool) -> None:
    assert on_own_layer(path, container) is own


def test_an_overlay_root_without_a_container_is_no_layer(container: Host) -> None:
    (Path(container.root) / ".dockerenv").unlink()
    assert on_own_layer("/tmp/qdrant", container) is False


def test_a_disk_as_root_is_no_layer_whatever_the_image_says(container: Host) -> None:
    """A virtual machine made from a container image keeps its /.dockerenv."""
    (Path(container.proc) / "self/mountinfo").write_text("1 0 254:0 / / rw - ext4 /dev/vda rw\n")
    assert inside_container(container) is not None
    assert on_own_layer("/tmp/qdrant", container) is False


@pytest.mark.parametrize(
    "line",
    [
        f"1 0 0:31 /var/lib/docker/btrfs/subvolumes/{ID} / rw - btrfs /dev/sda2 rw",
        f"1 0 8:1 /var/lib/containers/storage/vfs/dir/{ID} / rw - ext4 /dev/sda2 rw",
        f"1 0 0:40 / / rw - zfs tank/docker/{ID} rw",
        "1 0 0:40 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw",
        "1 0 0:40 / / rw - aufs none rw",
    ],
)
def test_layers_of_other_drivers(container: Host, line: str) -> None:
    (Path(container.proc) / "self/mountinfo").write_text(line + "\n")
    assert on_own_layer("/tmp/qdrant", container) is True


def test_an_unreadable_mount_table_is_unknown(made_host: Host) -> None:
    assert on_own_layer("/tmp/qdrant", made_host) is None


@pytest.mark.root
def test_a_real_overlay_root_seen_from_inside(durable: Path, host: Host, mount: Callable[..., Path]) -> None:
    """A process whose root is an overlay, as a container's: the layer, a tmpfs and a bind mount in it."""
    for name in ("upper", "work", "volume"):
        (durable / name).mkdir()
    merged = mount(
        "overlay", durable / "merged", f"lowerdir=/,upperdir={durable}/upper,workdir={durable}/work"
    )  # fmt: skip
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
sys.path[1:1] = {[p for p in sys.path if p]!r}
from mem0audit.install.host import this_host
from mem0audit.install.places import look_at
for path in ("/tmp/qdrant", "/srv/volume/qdrant", "/run/memory/x"):
    place = look_at(path, this_host())
    print(path, place.filesystem, place.container_layer, place.volatile)
"""
    inside = (
        f"cd {merged} && mkdir -p srv/volume run/memory old && touch .dockerenv"
        f" && mount --bind {durable}/volume srv/volume && mount -t tmpfs tmpfs run/memory"
        f" && mount --rbind /proc proc && mount --bind {Path(__file__).parents[2]} .{Path(__file__).parents[2]}"
        f' && pivot_root . old && cd / && umount -l /old && exec {sys.executable} -c "$SCRIPT"'
    )
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", inside],
        check=False, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "SCRIPT": script},
    )  # fmt: skip
    under = mount_under(str(durable), host)
    kind = under and under.filesystem  # of the machine that runs the tests
    assert done.stdout.splitlines() == [
        "/tmp/qdrant overlay True False",
        f"/srv/volume/qdrant {kind} False False",
        "/run/memory/x tmpfs False True",
    ], done.stderr


@pytest.mark.root
def test_a_container_seen_from_outside(
    durable: Path, host: Host, mount: Callable[..., Path], running: Callable[..., subprocess.Popen[str]]
) -> None:
    for name in ("upper", "work", "volume"):
        (durable / name).mkdir()
    merged = mount(
        "overlay", durable / "merged", f"lowerdir=/,upperdir={durable}/upper,workdir={durable}/work"
    )  # fmt: skip
    inside = (
        f"cd {merged} && mkdir -p srv/volume old tmp/qdrant && touch .dockerenv"
        f" && mount --bind {durable}/volume srv/volume"
        ' && mount --rbind /proc proc && pivot_root . old && cd / && exec "$@"'
    )
    prefix = ("unshare", "-m", "--propagation", "private", "sh", "-c", inside, "sh")
    code = "print('ready', flush=True)\nimport sys; sys.stdin.read()"
    child = running(code, prefix=prefix, python=os.path.realpath(sys.executable))
    base = f"/proc/{child.pid}/root"
    assert inside_container(host, child.pid) == "/.dockerenv exists"
    assert on_own_layer(f"{base}/tmp/qdrant", host) is True
    assert on_own_layer(f"{base}/srv/volume/qdrant", host) is False
    assert on_own_layer("/tmp/qdrant", host) is False or inside_container(host) is not None


def test_this_test_does_not_depend_on_where_it_runs(host: Host) -> None:
    assert inside_container(replace(host, root="/nowhere", proc="/nowhere")) is None
