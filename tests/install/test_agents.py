from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.model import Agent, Holder, Install, Origin
from mem0audit.install.agents import whose_mem0
from mem0audit.install.host import Host
from mem0audit.install.interpreters import import_path, interpreter_of, package_in
from mem0audit.install.processes import holders
from tests.install.conftest import private_tmp

Running = Callable[..., "subprocess.Popen[str]"]
HOLD = "import sys\nf = open(sys.argv[1], 'a')\nprint('ready', flush=True)\nsys.stdin.read()"


def install(python: str | None = None) -> Install:
    return Install(
        Origin("/h", "x"), Origin("/q", "x"), Origin("mem0", "x"), Origin("/m", "x"), agent_python=python
    )


def package(site: Path, name: str, version: str, form: str = "dist-info") -> Path:
    folder = site / f"{name}-{version}.{form}"
    folder.mkdir(parents=True)
    file = "METADATA" if form == "dist-info" else "PKG-INFO"
    (folder / file).write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: 9.9.9\n")
    return folder


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A real virtual environment with the metadata of a mem0ai and a qdrant-client."""
    where = tmp_path / "agent venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(where)], check=True)
    (site,) = where.glob("lib/python3*/site-packages")
    package(site, "mem0ai", "1.0.7")
    package(site, "qdrant_client", "1.15.1")
    return where


def held(child: subprocess.Popen[str], file: Path, host: Host) -> list[Holder]:
    found = list(holders([str(file)], host).holders)
    assert [holder.pid for holder in found] == [child.pid]
    return found


def versions(agent: Agent) -> tuple[str | None, str | None]:
    return agent.mem0_version, agent.client_version


# --- from a process -----------------------------------------------------------------------------------


def test_the_venv_of_the_process_that_holds_the_store(
    venv: Path, tmp_path: Path, host: Host, running: Running
) -> None:
    file = tmp_path / "history.db"
    child = running(HOLD, str(file), python=str(venv / "bin" / "python"))
    agent = whose_mem0(install(), held(child, file, host), host)
    assert versions(agent) == ("1.0.7", "1.15.1")
    assert agent.interpreter == str(venv / "bin" / "python")
    assert agent.source == f"pid {child.pid}"


@pytest.mark.parametrize("way", ["relative", "path", "renamed", "link"])
def test_however_it_was_started(way: str, venv: Path, tmp_path: Path, host: Host, running: Running) -> None:
    file = tmp_path / "history.db"
    python = venv / "bin" / "python"
    environ = {**os.environ, "PATH": f"/nowhere:{python.parent}:/usr/bin:/bin"}
    if way == "relative":
        child = running(HOLD, str(file), python="bin/python", cwd=venv)
    elif way == "path":
        child = running(HOLD, str(file), python="python", env=environ, prefix=("env",))
    elif way == "link":
        (tmp_path / "python3").symlink_to(python)
        child = running(
            HOLD, str(file), python=str(tmp_path / "python3"), env={**environ, "VIRTUAL_ENV": str(venv)}
        )
        # A link beside no pyvenv.cfg: Python itself does not see the environment, nor do we.
        assert held(child, file, host)[0].interpreter == str(tmp_path / "python3")
        return
    else:
        # gunicorn and celery write their own words over their command line
        rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'worker')\n"
        child = running(rename + HOLD, str(file), prefix=("bash", "-c", 'exec -a "worker: agent" "$@"', "bash"),
                        python=str(python), env={**environ, "VIRTUAL_ENV": str(venv)})  # fmt: skip
    agent = whose_mem0(install(), held(child, file, host), host)
    assert (versions(agent), agent.interpreter) == (("1.0.7", "1.15.1"), str(python))


def test_a_venv_that_is_switched_on_but_not_used(
    venv: Path, tmp_path: Path, host: Host, running: Running
) -> None:
    """VIRTUAL_ENV is set in the shell; the unit starts another Python by its full path."""
    file = tmp_path / "history.db"
    child = running(HOLD, str(file), env={**os.environ, "VIRTUAL_ENV": str(venv)})
    agent = whose_mem0(install(), held(child, file, host), host)
    assert agent.interpreter == sys.executable
    assert agent.mem0_version != "1.0.7"


def test_what_it_has_loaded_comes_before_what_it_would_find(
    tmp_path: Path, host: Host, running: Running
) -> None:
    """A process that really imports qdrant_client from a folder of its own (PYTHONPATH, pip --target)."""
    file = tmp_path / "history.db"
    child = running("import qdrant_client\n" + HOLD, str(file))
    agent = whose_mem0(install(), held(child, file, host), host)
    import importlib.metadata

    expected = tuple(importlib.metadata.version(name) for name in ("mem0ai", "qdrant-client"))
    assert versions(agent) == expected


def test_pythonpath_and_the_users_own_packages(
    venv: Path, tmp_path: Path, host: Host, running: Running
) -> None:
    file = tmp_path / "history.db"
    package(tmp_path / "target", "mem0ai", "0.1.40")
    child = running(
        HOLD,
        str(file),
        python=str(venv / "bin/python"),
        env={**os.environ, "PYTHONPATH": "target"},
        cwd=tmp_path,
    )
    agent = whose_mem0(install(), held(child, file, host), host)
    assert versions(agent) == ("0.1.40", "1.15.1")


def test_an_upgrade_under_a_running_agent_is_told(
    venv: Path, tmp_path: Path, host: Host, running: Running
) -> None:
    file = tmp_path / "history.db"
    child = running(HOLD, str(file), python=str(venv / "bin/python"))
    (site,) = venv.glob("lib/python3*/site-packages")
    shutil.rmtree(site / "mem0ai-1.0.7.dist-info")
    new = package(site, "mem0ai", "2.2.1")
    os.utime(new, (time.time() + 60, time.time() + 60))
    agent = whose_mem0(install(), held(child, file, host), host)
    assert agent.mem0_version == "2.2.1"
    assert "installed after it was started" in agent.source


@pytest.mark.root
def test_a_venv_in_another_mount_namespace(
    tmp_path: Path, host: Host, running: Running, own_home: Path
) -> None:
    """The packages that the process sees, not those of the same path here."""
    code = (
        "import os, sys\nsite = '/tmp/v/lib/python%d.%d/site-packages' % sys.version_info[:2]\n"
        "os.makedirs(site + '/mem0ai-2.0.3.dist-info'); os.makedirs('/tmp/v/bin')\n"
        "open(site + '/mem0ai-2.0.3.dist-info/METADATA', 'w').write('Name: mem0ai\\nVersion: 2.0.3\\n')\n"
        "open('/tmp/v/pyvenv.cfg', 'w').write('home = /usr/bin\\n')\n"
        "os.symlink(sys.executable, '/tmp/v/bin/python')\n"
        "f = open('/tmp/history.db', 'w')\n"
        "os.execv('/tmp/v/bin/python', ['/tmp/v/bin/python', '-S', '-c',"
        ' \'import sys; f = open("/tmp/history.db"); print("ready", flush=True); sys.stdin.read()\'])'
    )
    prefix = private_tmp(tmp_path / "stage")
    child = running(code, prefix=prefix, env={**os.environ, "HOME": "/"})
    found = [one for one in holders(["/tmp/history.db"], host).holders if one.pid == child.pid]
    assert found and found[0].private_tmp
    agent = whose_mem0(install(), found, host)
    assert (agent.mem0_version, agent.interpreter) == ("2.0.3", "/tmp/v/bin/python")


def test_a_holder_that_is_no_python(tmp_path: Path, host: Host, running: Running) -> None:
    file = tmp_path / "history.db"
    file.write_text("x")
    child = subprocess.Popen(["tail", "-f", str(file)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.read(1)
        agent = whose_mem0(install(), held(child, file, host), host)  # type: ignore[arg-type]
        assert versions(agent) == (None, None) and "is not a Python" in agent.source
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_the_python_of_several_holders(venv: Path, tmp_path: Path, host: Host, running: Running) -> None:
    """A shell with sqlite3 open beside the agent: the one with mem0 is the agent."""
    file = tmp_path / "history.db"
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(other)], check=True)
    running(HOLD, str(file), python=str(other / "bin/python"))
    child = running(HOLD, str(file), python=str(venv / "bin/python"))
    agent = whose_mem0(install(), holders([str(file)], host).holders, host)
    assert (agent.source, agent.mem0_version) == (f"pid {child.pid}", "1.0.7")


def test_nobody(host: Host) -> None:
    agent = whose_mem0(install(), (), host)
    assert versions(agent) == (None, None) and "--agent-python" in agent.source


# --- named --------------------------------------------------------------------------------------------


def test_agent_python(venv: Path, host: Host) -> None:
    for named in (venv / "bin" / "python", venv):
        agent = whose_mem0(install(str(named)), (), host)
        assert (versions(agent), agent.source) == (("1.0.7", "1.15.1"), "--agent-python")
    gone = whose_mem0(install("/nowhere/python"), (), host)
    assert versions(gone) == (None, None) and "no such file" in gone.source


def test_our_own_environment_by_name(host: Host) -> None:
    import importlib.metadata

    agent = whose_mem0(install(sys.executable), (), host)
    assert agent.mem0_version == importlib.metadata.version("mem0ai")
    assert agent.client_version == importlib.metadata.version("qdrant-client")


def test_without_mem0_the_reason_is_told(tmp_path: Path, host: Host) -> None:
    where = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(where)], check=True)
    agent = whose_mem0(install(str(where / "bin/python")), (), host)
    assert versions(agent) == (None, None)
    assert "no mem0ai or qdrant-client in the packages of" in agent.source


def test_nothing_of_theirs_is_run_or_imported(venv: Path, tmp_path: Path, host: Host) -> None:
    """Not the interpreter, not a .pth line, not sitecustomize."""
    (site,) = venv.glob("lib/python3*/site-packages")
    mark = tmp_path / "ran"
    (site / "evil.pth").write_text(f"import os; open({str(mark)!r}, 'w')\n")
    (site / "sitecustomize.py").write_text(f"open({str(mark)!r}, 'w')\n")
    fake = venv / "bin" / "python"
    fake.unlink()
    fake.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    fake.chmod(0o755)
    assert versions(whose_mem0(install(str(fake)), (), host)) == ("1.0.7", "1.15.1")
    assert not mark.exists()


# --- where packages lie -------------------------------------------------------------------------------


def test_the_import_path_is_what_the_interpreter_itself_says(venv: Path, host: Host, own_home: Path) -> None:
    """Every package folder on the real sys.path is found, in its order, for each Python of this machine."""
    pythons = {
        sys.executable,
        str(venv / "bin/python"),
        *filter(None, [shutil.which("python3", path="/usr/bin")]),
    }
    shared = venv.parent / "shared"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(shared)], check=True
    )
    user = own_home / ".local/lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    user.mkdir(parents=True)
    for python in (*sorted(pythons), str(shared / "bin/python")):
        real = subprocess.run(
            [python, "-c", "import sys; print('\\n'.join(sys.path))"], check=True, capture_output=True, text=True,
            env={"HOME": str(own_home), "PATH": "/usr/bin:/bin"},
        ).stdout.split("\n")  # fmt: skip
        wanted = [path for path in real if path.endswith("-packages")]
        ours = import_path(python, host, environ={"HOME": str(own_home)})
        assert [path for path in ours if path in wanted] == wanted, python


@pytest.mark.parametrize(
    ("interpreter", "files", "site"),
    [
        ("/usr/bin/python3.11", ["usr/bin/python3.11"], "usr/lib/python3/dist-packages"),
        ("/usr/bin/python3.11", ["usr/bin/python3.11"], "usr/local/lib/python3.11/dist-packages"),
        ("/usr/bin/python3.9", ["usr/bin/python3.9"], "usr/lib64/python3.9/site-packages"),
        (
            "/opt/conda/envs/a/bin/python",
            ["opt/conda/envs/a/bin/python3.12"],
            "opt/conda/envs/a/lib/python3.12/site-packages",
        ),
        ("/usr/bin/python3.11", ["usr/bin/python3.11"], "home/ann/.local/lib/python3.11/site-packages"),
    ],
)  # fmt: skip
def test_layouts_of_distributions(made_host: Host, interpreter: str, files: list[str], site: str) -> None:
    root = Path(made_host.root)
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("")
    if not (root / interpreter[1:]).exists():
        (root / interpreter[1:]).symlink_to(os.path.basename(files[0]))
    package(root / site, "mem0ai", "2.1.0")
    folders = import_path(interpreter, made_host, base=made_host.root, environ={"HOME": "/home/ann"})
    found = package_in(folders, "mem0ai", made_host.root)
    assert found is not None and found.version == "2.1.0"


def test_forms_of_metadata(tmp_path: Path, host: Host) -> None:
    site = tmp_path / "site"
    package(site, "Mem0AI", "1.2.3")
    package(site, "qdrant.client", "1.1.7", "egg-info")
    package(site, "mem0ai_tools", "9.9")
    (site / "flat-1.0.egg-info").write_text("Name: flat\nVersion: 1.0\n")
    (site / "empty-3.0.dist-info").mkdir()
    told = {
        name: package_in([str(site)], name) for name in ("mem0ai", "qdrant-client", "flat", "empty", "none")
    }
    assert {name: found and found.version for name, found in told.items()} == {
        "mem0ai": "1.2.3", "qdrant-client": "1.1.7", "flat": "1.0", "empty": None, "none": None,
    }  # fmt: skip


def test_an_editable_install_and_other_pth_lines(venv: Path, tmp_path: Path, host: Host) -> None:
    (site,) = venv.glob("lib/python3*/site-packages")
    shutil.rmtree(site / "mem0ai-1.0.7.dist-info")
    package(tmp_path / "src", "mem0ai", "3.0.0", "egg-info")
    (site / "easy-install.pth").write_text(f"# a comment\n{tmp_path / 'src'}\n/nowhere\n")
    assert whose_mem0(install(str(venv / "bin/python")), (), host).mem0_version == "3.0.0"


def test_what_a_broken_upgrade_left_behind(venv: Path, host: Host) -> None:
    (site,) = venv.glob("lib/python3*/site-packages")
    os.utime(site / "mem0ai-1.0.7.dist-info", (1000, 1000))
    package(site, "mem0ai", "2.2.1")
    assert whose_mem0(install(str(venv)), (), host).mem0_version == "2.2.1"


def test_a_process_that_is_gone(host: Host) -> None:
    holder = Holder(pid=2**22 + 1, command="x", how="lock")
    agent = whose_mem0(install(), [holder], host)
    assert versions(agent) == (None, None) and "not visible" in agent.source
    assert interpreter_of(2**22 + 1, host) is None
    assert whose_mem0(replace(install(), agent_python="/nowhere"), [holder], host).mem0_version is None
