"""The agent's configuration file is updated whole or not at all, and kept; it is left alone where that is not safe."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core import agentconfig as core
from mem0audit.core.errors import Failed, Refused
from mem0audit.core.model import Install
from mem0audit.install.config import load_mem0_config
from mem0audit.install.host import Host, this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.agentconfig import apply_update, plan_update, refuse_unless_editable
from mem0audit.stores import files

NEW = "/srv/agent/qdrant"
SECRET = "sk-very-secret"
YAML = f"""\
vector_store:
  config:
    path: /tmp/qdrant-of-the-test   # ours
llm:
  config: {{api_key: {SECRET}}}
"""


@pytest.fixture
def host(tmp_path: Path, own_home: Path) -> Host:
    return replace(this_host(), cwd=str(tmp_path), home=str(own_home))


def written(path: Path, text: str = YAML, mode: int = 0o640) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def found(config: Path | str, host: Host) -> Install:
    return locate(Flags(config=str(config)), host)


def plan(config: Path | str, host: Host, mem0: str | None = "1.0.7", **moved: str) -> core.Advice:
    return plan_update(found(config, host), host, mem0=mem0, **(moved or {"vectors": NEW}))


def fails_at(monkeypatch: pytest.MonkeyPatch, name: str, number: int = errno.ENOSPC) -> None:
    def step(at: str) -> None:
        if at == name:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "step", step)


def test_a_file_is_updated_and_the_old_one_kept(tmp_path: Path, host: Host) -> None:
    config = written(tmp_path / "mem0.yaml")
    link = tmp_path / "link.yaml"
    link.symlink_to(config)
    if os.geteuid() == 0:
        os.chown(config, 4321, 4322)
    os.setxattr(config, "user.origin", b"ours")
    before = config.stat()
    advice = plan(link, host, vectors=NEW, history="/srv/agent/history.db")
    assert config.read_text() == YAML and sorted(tmp_path.iterdir()) == [link, config]
    (update,) = advice.updates
    assert update.keys == ("vector_store.config.path", "vector_store.config.on_disk", "history_db_path")
    assert "+    on_disk: true" in update.diff and SECRET not in "\n".join(update.diff)
    assert [line for line in update.diff if line.startswith("-") and "path" in line]
    refuse_unless_editable(advice)

    (done,) = apply_update(advice, host, now=1_790_000_000)

    now = load_mem0_config(str(link))
    assert (now.path, now.on_disk, now.history) == (NEW, True, "/srv/agent/history.db")
    assert SECRET in config.read_text() and "# ours" in config.read_text() and link.is_symlink()
    backup = Path(done.backup)
    assert backup.name.startswith("mem0.yaml.before-2026-") and backup.read_text() == YAML
    for path in (config, backup):
        after = path.stat()
        assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (
            before.st_uid,
            before.st_gid,
            0o640,
        )
        assert os.getxattr(path, "user.origin") == b"ours"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([config.name, link.name, backup.name])

    again = plan_update(
        replace(found(link, host)), host, vectors=NEW, history="/srv/agent/history.db", mem0="1.0.7"
    )
    assert (again.updates, again.lines, again.cannot) == ((), (), ())
    refuse_unless_editable(again)


@pytest.mark.parametrize("name", ["config.backup", "config.write", "config.fsync", "config.rename"])
def test_a_failure_leaves_it_as_it_was(
    name: str, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path / "mem0.yaml")
    advice = plan(config, host)
    with monkeypatch.context() as faulty:
        fails_at(faulty, name)
        with pytest.raises(Failed, match="no space left on device: it is left as it was"):
            apply_update(advice, host)
    assert config.read_text() == YAML
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    apply_update(advice, host)
    assert load_mem0_config(str(config)).path == NEW


def test_what_a_kill_left_is_written_over(tmp_path: Path, host: Host) -> None:
    config = written(tmp_path / "mem0.yaml")
    (tmp_path / ".mem0.yaml.mem0audit").write_text("half")
    apply_update(plan(config, host), host)
    assert load_mem0_config(str(config)).path == NEW
    assert not (tmp_path / ".mem0.yaml.mem0audit").exists()


def test_one_that_changed_meanwhile_is_left_alone(tmp_path: Path, host: Host) -> None:
    config = written(tmp_path / "mem0.yaml")
    advice = plan(config, host)
    config.write_text(YAML + "# more\n")
    with pytest.raises(Refused, match="was changed since it was looked at"):
        apply_update(advice, host)
    assert config.read_text() == YAML + "# more\n" and len(list(tmp_path.iterdir())) == 1


def test_one_that_does_not_say_what_was_written_is_put_back(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path / "mem0.yaml")
    advice = plan(config, host)
    (update,) = advice.updates
    wrong = replace(advice, updates=(replace(update, after=update.after.replace(b"true", b"false")),))
    with pytest.raises(Failed, match="was put back"):
        apply_update(wrong, host)
    assert config.read_text() == YAML


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda p: p.write_text("vector_store:\n  config:\n    path: /srv/another\n"),
            "is not the store that moves",
        ),
        (
            lambda p: p.write_text("a: &q /tmp/qdrant-of-the-test\nvector_store:\n  config: {path: *q}\n"),
            "anchor",
        ),
        (lambda p: os.link(p, p.with_name("other")), "several names"),
    ],
)
def test_one_that_is_not_safe_to_change_is_left_alone(
    change: Callable[[Path], None], why: str, tmp_path: Path, host: Host
) -> None:
    config = written(tmp_path / "mem0.yaml")
    install = found(config, host)
    change(config)
    text = config.read_text()
    advice = plan_update(install, host, vectors=NEW, mem0="1.0.7")
    ((name, said),) = advice.cannot
    assert name == str(config) and why in said
    assert any(NEW in line for line in advice.lines) and advice.updates == ()
    with pytest.raises(Refused, match=why):
        refuse_unless_editable(advice)
    assert config.read_text() == text


@pytest.mark.root
def test_a_file_that_is_mounted_by_itself_is_left_alone(tmp_path: Path, host: Host) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    outside, config = written(tmp_path / "outside.yaml"), written(tmp_path / "mem0.yaml")
    subprocess.run(["mount", "--bind", str(outside), str(config)], check=True)
    try:
        assert "is mounted by itself" in plan(config, host).cannot[0][1]
    finally:
        subprocess.run(["umount", str(config)], check=True)


def test_python_code_is_left_to_its_owner(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "agentsown.py"
    code.write_text("CONFIG = {'vector_store': {'config': {'path': '/tmp/qdrant-of-the-test'}}}\n")
    advice = plan("agentsown:CONFIG", host)
    assert advice.form == "python" and "after CONFIG" in advice.where
    assert advice.lines == (
        'CONFIG["vector_store"]["config"]["path"] = "/srv/agent/qdrant"',
        'CONFIG["vector_store"]["config"]["on_disk"] = True',
    )
    with pytest.raises(Refused, match="is Python code"):
        refuse_unless_editable(advice)


def test_without_a_file_the_whole_dict_is_printed(host: Host) -> None:
    install = locate(Flags(), host)
    advice = plan_update(install, host, vectors=NEW, history="/srv/agent/history.db", mem0="2.2.1")
    assert advice.lines[-1] == "memory = Memory.from_config(config)"
    assert advice.environment[0] == "export MEM0_DIR=/srv/agent"
    with pytest.raises(Refused, match="is in no file that was named"):
        refuse_unless_editable(advice)
    with pytest.raises(Refused, match="at every start"):
        plan_update(install, host, vectors=NEW, mem0="0.0.12")


def test_our_own_settings_follow(tmp_path: Path, host: Host) -> None:
    ours = written(
        tmp_path / "mem0audit.toml",
        '# ours\nqdrant_path = "/tmp/q"  # here\nhistory = "h.db"\nfail_on = "low"\n',
    )
    install = locate(Flags(), host)
    advice = plan_update(install, host, vectors=NEW, mem0="2.2.1")
    assert [u.path for u in advice.updates] == [str(ours)]
    apply_update(advice, host)
    assert ours.read_text() == f'# ours\nqdrant_path = "{NEW}"  # here\nhistory = "h.db"\nfail_on = "low"\n'
    assert locate(Flags(), host).vectors.value == NEW  # type: ignore[union-attr]


def test_the_agents_file_that_our_settings_name_and_our_own_path(tmp_path: Path, host: Host) -> None:
    written(tmp_path / "mem0.yaml")
    written(tmp_path / "mem0audit.toml", 'config = "mem0.yaml"\nqdrant_path = "/tmp/qdrant-of-the-test"\n')
    advice = plan_update(locate(Flags(), host), host, vectors=NEW, mem0="1.0.7")
    assert [Path(u.path).name for u in advice.updates] == ["mem0.yaml", "mem0audit.toml"]
    assert len(apply_update(advice, host)) == 2
    install = locate(Flags(), host)
    assert install.vectors is not None and install.vectors.value == NEW
    assert load_mem0_config(str(tmp_path / "mem0.yaml")).path == NEW


def test_marks_and_line_ends_of_another_system_stay(tmp_path: Path, host: Host) -> None:
    config = tmp_path / "mem0.json"
    config.write_bytes(b'\xef\xbb\xbf{\r\n  "vector_store": {"config": {"path": "/tmp/q"}}\r\n}\r\n')
    apply_update(plan(config, host, mem0="2.2.1"), host)
    assert config.read_bytes() == (
        b'\xef\xbb\xbf{\r\n  "vector_store": {"config": {"path": "/srv/agent/qdrant"}}\r\n}\r\n'
    )
