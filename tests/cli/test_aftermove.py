"""What `relocate` says and does about the agent's configuration, as a user runs it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from mem0audit.install.config import load_mem0_config
from tests.builders import StoreCopy, copy_store
from tests.cli.program import Ran, call
from tests.operations.test_restore import agent
from tests.qdrant_server import QdrantServer
from tests.report.test_json import check


@pytest.fixture
def store(durable: Path) -> StoreCopy:
    return copy_store("2.2.1-nlp", durable, pre_delete_all=True)


@pytest.fixture
def config(durable: Path, store: StoreCopy) -> Path:
    path = durable / "mem0.yaml"
    path.write_text(
        "# the agent\nvector_store:\n  config:\n"
        f"    path: {store.vectors}  # here\nllm:\n  config: {{api_key: sk-SECRETKEY}}\n"
        f"history_db_path: {store.history}\n"
    )
    return path


def relocate(home: Path, *words: str, **env: str) -> Ran:
    ran = call(home, "relocate", *words, env={"XDG_STATE_HOME": str(home / "state"), **env})
    assert "SECRETKEY" not in ran.out + ran.err and "Traceback" not in ran.err
    return ran


def status(home: Path, *words: str) -> str:
    return call(home, "status", *words, env={"XDG_STATE_HOME": str(home / "state")}).out


def test_the_file_is_updated_and_status_says_whether_the_agent_followed(
    durable: Path, store: StoreCopy, config: Path
) -> None:
    new = durable / "srv" / "qdrant"
    words = (
        "--to",
        "srv/qdrant",
        "--with-history",
        "--config",
        str(config),
        "--update-config",
        "--leave-link",
    )
    text = config.read_text()
    refused = relocate(durable, *words, "--dry-run")
    assert refused.code == 4 and "the agent's mem0 is not known" in refused.err
    words = words[:-1]
    dry = relocate(durable, *words, "--dry-run")
    assert dry.code == 0 and f"+    path: {new}  # here" in dry.out and "***" in dry.out
    assert dry.out.splitlines()[-1].endswith("--with-history --update-config")
    assert config.read_text() == text

    ran = relocate(durable, *words, "--yes")
    assert ran.code == 0, ran.err
    assert f"Changed {config}" in ran.out and "Before the agent starts" not in ran.out
    now = load_mem0_config(str(config))
    assert (now.path, now.history, now.on_disk) == (str(new), f"{durable}/srv/history.db", True)
    (backup,) = durable.glob("mem0.yaml.before-*")
    assert backup.read_text() == text

    said = status(durable, "--config", str(config))
    assert "was not started since" in said and f"{store.vectors} -> {new}" in said
    moved = SimpleNamespace(vectors=new, history=durable / "srv" / "history.db")
    with agent(moved):
        assert "the agent has moved." in status(durable, "--config", str(config))
    with agent(
        SimpleNamespace(vectors=store.vectors, history=moved.history)
    ):  # with a copy of its old configuration
        said = status(durable, "--config", str(config))
        assert "THE AGENT STARTED AGAIN AT THE OLD PLACE" in said and "help relocate" in said


def test_without_it_the_lines_are_printed_and_hold_as_printed(
    durable: Path, store: StoreCopy, config: Path
) -> None:
    plan = relocate(durable, "--to", "srv/qdrant", "--config", str(config), "--dry-run", "--format", "json")
    document = check(plan.out, "relocate-plan")["configuration"]
    assert document["form"] == "yaml" and document["files"][0]["keys"][0] == "vector_store.config.path"
    ran = relocate(durable, "--to", "srv/qdrant", "--config", str(config), "--yes")
    assert ran.code == 0 and "Before the agent starts, this must be said in" in ran.out
    lines = [line[4:] for line in ran.out.splitlines() if line.startswith("    ")]
    assert lines == ["vector_store:", "  config:", f"    path: {durable}/srv/qdrant", "    on_disk: true"]


def test_a_link_is_left_where_the_agent_starts_with_it(durable: Path, store: StoreCopy, config: Path) -> None:
    python = durable / "venv" / "bin" / "python"
    packages = durable / "venv" / "lib" / "python3.11" / "site-packages"
    for name, version in (("mem0ai", "2.2.1"), ("qdrant_client", "1.20.0")):
        folder = packages / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name.replace('_', '-')}\nVersion: {version}\n")
    python.parent.mkdir(parents=True)
    shutil.copy("/bin/true", python)
    (durable / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    words = ("--config", str(config), "--agent-python", str(python))
    ran = relocate(durable, "--to", "srv/qdrant", *words, "--leave-link", "--yes", "--format", "json")
    assert ran.code == 0, ran.err
    document = check(ran.out, "relocate")
    assert document["links"] == [
        {"path": str(store.vectors), "target": f"{durable}/srv/qdrant", "tmpfiles": None}
    ]
    assert document["problems"] == [] and store.vectors.readlink() == durable / "srv" / "qdrant"
    assert "on_disk" not in "".join(document["configuration"]["lines"])
    with agent(store):
        assert "through the link at the old place" in status(durable, *words)


def test_what_fails_afterwards_is_said_and_the_move_stands(
    durable: Path, store: StoreCopy, config: Path
) -> None:
    config.chmod(0o600)
    plan = relocate(durable, "--to", "a/qdrant", "--config", str(config), "--update-config", "--dry-run")
    assert plan.code == 0
    config.write_text(config.read_text() + "# &x\nmore: &x 1\nand: *x\n")  # anchors elsewhere are no matter
    ran = relocate(durable, "--to", "a/qdrant", "--config", str(config), "--update-config", "--yes")
    assert ran.code == 0 and re.search(r"as it was:  .*mem0.yaml.before-", ran.out)
    config.write_text("vector_store:\n  config: &q\n    path: " + f"{durable}/a/qdrant\n" + "other: *q\n")
    ran = relocate(durable, "--to", "b/qdrant", "--config", str(config), "--history", str(store.history),
                   "--update-config", "--yes")  # fmt: skip
    assert ran.code == 4 and "an anchor (&)" in ran.err and (durable / "a" / "qdrant").is_dir()
    assert json.loads(relocate(durable, "--to", "b/qdrant", "--config", str(config), "--history", str(store.history),
                               "--yes", "--format", "json").out)["configuration"]["left"]  # fmt: skip


def test_what_the_agent_must_be_told_is_said_although_our_own_file_is_changed(
    durable: Path, store: StoreCopy
) -> None:
    """mem0audit.toml names both stores: no agent reads it."""
    settings = durable / ".config/mem0audit/mem0audit.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"history = '{store.history}'\nqdrant_path = '{store.vectors}'\n")
    words = ("relocate", "--to", "srv/qdrant", "--with-history")
    needed = f'"path": "{durable}/srv/qdrant"'
    planned = call(durable, *words, "--update-config", "--dry-run")
    assert planned.code == 0 and needed in planned.out
    plain = call(durable, *words, "--yes")
    assert plain.code == 0 and needed in plain.out
    said = " ".join(plain.out.split())
    assert f"{settings} names the old places too: change qdrant_path and history in it." in said
    ran = call(durable, *words, "--update-config", "--yes")
    assert ran.code == 0 and f"{durable}/srv/qdrant" in settings.read_text()
    assert f"Changed {settings}" in ran.out and needed in ran.out
    assert "names the old places too" not in ran.out


def test_what_lies_at_the_new_place_is_named(durable: Path, store: StoreCopy) -> None:
    """The agent started again at the old place: another move there is no answer."""
    paths = ("--history", str(store.history), "--qdrant-path", str(store.vectors))
    words = ("relocate", "--to", "srv/qdrant", *paths, "--yes")
    assert call(durable, *words).code == 0
    shutil.copytree(durable / "srv/qdrant", store.vectors)
    ran = call(durable, *words)
    assert ran.code == 4 and "holds a store already" in ran.err and "mem0audit status" in ran.err


def test_to_a_server_by_command(
    durable: Path, store: StoreCopy, config: Path, qdrant_with_keys: QdrantServer
) -> None:
    key = qdrant_with_keys.api_key or ""
    words = ("--to-url", qdrant_with_keys.url, "--to-api-key-env", "THE_KEY", "--config", str(config))
    assert relocate(durable, *words, "--dry-run").code == 2
    for flag in ("--wait", "--leave-link", "--update-config", "--with-history"):
        assert relocate(durable, *words, flag).code == 2
    plan = relocate(durable, *words, "--dry-run", "--format", "json", THE_KEY=key)
    assert [one["points"] for one in check(plan.out, "relocate-carry-plan")["collections"]] == [27, 13]
    assert relocate(durable, *words, THE_KEY=key).code == 4  # not confirmed
    ran = relocate(durable, *words, "--yes", THE_KEY=key)
    assert ran.code == 0, ran.err
    assert (
        "api_key: THE-API-KEY" in ran.out.replace('"', "") and "Take out: vector_store.config.path" in ran.out
    )
    again = relocate(durable, *words, "--yes", "--format", "json", THE_KEY=key)
    assert again.code == 4
    assert key not in plan.out + ran.out + ran.err + again.err
    # and back, from the server that mem0 is told of
    served = (
        "--qdrant-url",
        qdrant_with_keys.url,
        "--api-key-env",
        "THE_KEY",
        "--history",
        str(store.history),
    )
    env = {"XDG_STATE_HOME": str(durable / "state"), "THE_KEY": key}
    said = call(durable, "status", *served, env=env).out
    assert "who uses a server cannot be seen" in " ".join(said.split()) and key not in said
    assert relocate(durable, *served, "--to", "srv/qdrant", "--with-history", THE_KEY=key).code == 2
    assert relocate(durable, *served, "--to", "qdrant", THE_KEY=key).code == 4  # not empty
    back = relocate(durable, *served, "--to", "srv/qdrant", "--yes", "--format", "json", THE_KEY=key)
    assert back.code == 0, back.err
    document = check(back.out, "relocate-carry")
    assert document["to"] == str(durable / "srv/qdrant") and document["written"] == {
        "mem0": 27,
        "mem0_entities": 13,
    }
    assert key not in back.out + back.err
