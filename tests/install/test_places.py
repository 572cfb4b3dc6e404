from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.install.host import Host, machine_boot, started_at, this_host
from mem0audit.install.places import born_at, look_at
from tests.install.conftest import private_tmp

STORES = Path(__file__).parents[1] / "data" / "stores"


def test_a_durable_store(durable: Path, host: Host) -> None:
    shutil.copytree(STORES / "2.2.1" / "qdrant", durable / "qdrant")
    place = look_at(str(durable / "qdrant"), host)
    files = [path for path in (durable / "qdrant").rglob("*") if path.is_file()]
    assert place.size_bytes == sum(path.stat().st_size for path in files) > 0
    assert (place.exists, place.problem, place.link_target) == (True, None, None)
    assert (place.volatile, place.network, place.cleaned) == (False, False, None)
    assert (place.readable_by_others, place.replaceable_parent) == (None, None)  # the folder is 0700
    assert place.free_bytes is not None and place.free_bytes > 0
    assert place.modified_at == (durable / "qdrant").stat().st_mtime


def test_looking_changes_nothing(durable: Path, host: Host) -> None:
    shutil.copytree(STORES / "2.2.1" / "qdrant", durable / "qdrant")
    before = {str(p): os.stat(p) for p in durable.rglob("*")}
    look_at(str(durable / "qdrant"), host)
    after = {str(p): os.stat(p) for p in durable.rglob("*")}
    assert {k: (v.st_size, v.st_mtime_ns, v.st_ctime_ns) for k, v in before.items()} == {
        k: (v.st_size, v.st_mtime_ns, v.st_ctime_ns) for k, v in after.items()
    }


def test_the_birth_time_is_the_kernels(durable: Path) -> None:
    file = durable / "x"
    file.write_text("x")
    os.utime(file, (0, 0))
    told = subprocess.run(
        ["stat", "-c", "%W", str(file)], check=True, capture_output=True, text=True
    ).stdout.strip()
    born = born_at(str(file))
    if told in ("0", "-"):
        assert born is None
    else:
        assert born is not None and int(born) == int(told)
    assert born_at(str(durable / "none")) is None


def test_a_missing_path_stands_on_its_nearest_parent(durable: Path, host: Host) -> None:
    place = look_at(str(durable / "a" / "b" / "c"), host)
    parent = look_at(str(durable), host)
    assert (place.exists, place.size_bytes, place.born_at, place.problem) == (False, None, None, None)
    assert (place.filesystem, place.mount_point) == (parent.filesystem, parent.mount_point)
    assert place.free_bytes is not None


def test_links_loops_files_in_the_way_and_nul(durable: Path, host: Host) -> None:
    (durable / "loop").symlink_to("loop")
    (durable / "file").write_text("x")
    (durable / "link").symlink_to("file")
    (durable / "dead").symlink_to("nowhere")
    assert look_at(str(durable / "loop"), host).problem == "symbolic links that lead in a circle"
    assert look_at(str(durable / "loop" / "x"), host).problem == "symbolic links that lead in a circle"
    assert look_at(str(durable / "file" / "x"), host).problem == "a parent is a file, not a folder"
    link = look_at(str(durable / "link"), host)
    assert (link.link_target, link.size_bytes, link.exists) == ("file", 1, True)
    dead = look_at(str(durable / "dead"), host)
    assert (dead.link_target, dead.exists, dead.problem) == ("nowhere", False, None)
    assert look_at(str(durable / ("x" * 300)), host).problem == "path too long"
    assert look_at("/a\0b", host).problem is not None


@pytest.mark.root
def test_on_a_tmpfs(tmp_path: Path, host: Host, mount: Callable[..., Path]) -> None:
    where = mount("tmpfs", tmp_path / "memory", "size=10m,mode=0755")
    (where / "history.db").write_bytes(b"x" * 100_000)
    place = look_at(str(where / "history.db"), host)
    assert (place.filesystem, place.mount_point, place.volatile) == ("tmpfs", str(where), True)
    assert place.free_bytes is not None and 9_000_000 < place.free_bytes < 10_485_760
    assert place.size_bytes == 100_000


@pytest.mark.root
def test_seen_through_a_process_in_another_namespace(
    tmp_path: Path, host: Host, running: Callable[..., subprocess.Popen[str]]
) -> None:
    """The tmpfs that only the process has, with its own table; a link there leads to its files, not to ours."""
    code = (
        "import os\nos.makedirs('/tmp/store')\nopen('/tmp/store/f', 'w').write('abc')\n"
        "os.symlink('/tmp/store', '/tmp/link')\nprint('ready', flush=True)\nimport sys; sys.stdin.read()"
    )
    prefix = private_tmp(tmp_path / "stage")
    child = running(code, prefix=prefix)
    for name in ("store", "link"):
        place = look_at(f"/proc/{child.pid}/root/tmp/{name}", host)
        assert (place.filesystem, place.mount_point, place.volatile) == ("tmpfs", "/tmp", True)
        assert (place.exists, place.size_bytes) == (True, 3), name
    assert not os.path.exists("/tmp/store")


LOOK = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[2])
from mem0audit.install.host import this_host
from mem0audit.install.places import look_at
import pwd, ctypes
os.setgroups([]); os.setgid(65534); os.setuid(65534)
place = look_at(sys.argv[1], this_host())
print(json.dumps([place.exists, place.problem, place.size_bytes, place.readable_by_others, place.volatile]))
"""


@pytest.mark.root
def test_an_ordinary_user_before_a_closed_door() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        closed = Path(folder, "closed")
        (closed / "qdrant").mkdir(parents=True)
        closed.chmod(0o700)
        out = [
            json.loads(
                subprocess.run(
                    [sys.executable, "-c", LOOK, str(path), json.dumps([str(Path(__file__).parents[2]), *sys.path])],
                    check=True, capture_output=True, text=True,
                ).stdout
            )
            for path in (closed / "qdrant", closed)
        ]  # fmt: skip
    assert out[0][:4] == [True, "permission denied", None, None]
    assert out[0][4] is not None  # what it stands on is told all the same
    assert out[1][:3] == [True, None, None]  # its size is not known, and not 0


def test_a_tree_without_end_has_no_size(durable: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    import mem0audit.install.places as module

    for number in range(30):
        (durable / str(number)).write_text("x")
    assert look_at(str(durable), host).size_bytes == 30
    monkeypatch.setattr(module, "MOST_FILES", 29)
    assert look_at(str(durable), host).size_bytes is None


# --- the host -----------------------------------------------------------------------------------------


def test_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    host = this_host()
    assert (host.home, host.cwd, host.uid) == (str(tmp_path), str(tmp_path), os.geteuid())
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert (host.boot_at is not None and -5 < host.now - uptime - host.boot_at < 60) or Path(
        "/.dockerenv"
    ).exists()
    monkeypatch.delenv("HOME")
    import pwd

    assert this_host().home == pwd.getpwuid(os.geteuid()).pw_dir


def test_when_a_process_began(host: Host, running: Callable[..., subprocess.Popen[str]]) -> None:
    before = this_host().now
    child = running("print('ready', flush=True); import sys; sys.stdin.read()")
    began = started_at(child.pid, host)
    assert (
        began is not None and before - 2 < began < this_host().now + 2
    )  # the kernel counts from a whole second
    assert started_at(2**22 + 1, host) is None


def test_a_command_with_brackets(made_host: Host) -> None:
    proc = Path(made_host.proc)
    (proc / "stat").write_text("cpu 1\nbtime 1000\n")
    (proc / "9").mkdir()
    (proc / "9/stat").write_text("9 (a) b (c) S " + " ".join(["0"] * 18) + " 500 0 0\n")
    assert machine_boot(made_host) == 1000
    assert started_at(9, made_host) == 1000 + 500 / os.sysconf("SC_CLK_TCK")


def test_a_deleted_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert this_host().cwd == "/"
    assert replace(this_host(), root="/x/").at("/y") == "/x/y"
