from __future__ import annotations

import dataclasses
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.errors import UsageProblem
from mem0audit.core.model import Origin
from mem0audit.install.host import Host
from mem0audit.install.locate import Flags, locate


@pytest.fixture
def ann(host: Host) -> Host:
    """No MEM0_DIR, no settings."""
    return replace(host, environ={})


def config(host: Host, **values: object) -> str:
    path = Path(host.cwd, "mem0.json")
    path.write_text(json.dumps(values))
    return str(path)


def store(**values: object) -> dict[str, object]:
    return {"provider": "qdrant", "config": values}


def settings(host: Host, text: str) -> str:
    path = Path(host.cwd, "mem0audit.toml")
    path.write_text(text)
    return str(path)


def test_mem0s_defaults(ann: Host) -> None:
    install = locate(Flags(), ann)
    assert install.history == Origin(f"{ann.home}/.mem0/history.db", "mem0's default")
    assert install.vectors == Origin("/tmp/qdrant", "mem0's default")
    assert install.collection == Origin("mem0", "mem0's default")
    assert (install.provider, install.server_url, install.embedder_dims, install.on_disk) == (
        "qdrant",
        None,
        None,
        None,
    )


def test_mem0_dir(ann: Host) -> None:
    here = replace(ann, environ={"MEM0_DIR": "/srv/m"})
    install = locate(Flags(), here)
    assert install.history == Origin("/srv/m/history.db", "environment MEM0_DIR")
    assert install.mem0_dir == Origin("/srv/m", "environment MEM0_DIR")
    assert install.vectors == Origin("/tmp/qdrant", "mem0's default")
    # As mem0 takes it: relative to the working directory, without expansion; empty is not set.
    assert (
        locate(Flags(), replace(ann, environ={"MEM0_DIR": "~/m"})).history.value
        == f"{ann.cwd}/~/m/history.db"
    )
    assert locate(Flags(), replace(ann, environ={"MEM0_DIR": ""})).history.decided_by == "mem0's default"


def test_each_value_comes_from_the_first_that_says_it(ann: Host) -> None:
    here = replace(ann, environ={"MEM0_DIR": "/srv/m"})
    file = settings(here, 'history = "/s/h.db"\nqdrant_path = "/s/q"\ncollection = "s"\n')
    install = locate(Flags(), here)
    assert (install.history, install.vectors, install.collection) == (
        Origin("/s/h.db", file), Origin("/s/q", file), Origin("s", file),
    )  # fmt: skip
    path = config(here, vector_store=store(path="/c/q"), history_db_path="/c/h.db")
    install = locate(Flags(config=path), here)
    assert (install.history, install.vectors, install.collection) == (
        Origin("/c/h.db", path), Origin("/c/q", path), Origin("s", file),
    )  # fmt: skip
    assert install.config_file == path
    install = locate(Flags(config=path, history="/f/h.db", collection="f", qdrant_path="/f/q"), here)
    assert (install.history, install.vectors, install.collection) == (
        Origin("/f/h.db", "--history"), Origin("/f/q", "--qdrant-path"), Origin("f", "--collection"),
    )  # fmt: skip


def test_a_config_named_in_the_settings(ann: Host) -> None:
    path = config(ann, vector_store=store(path="/c/q", collection_name="c", on_disk=True))
    file = settings(ann, 'config = "mem0.json"\nhistory = "/s/h.db"\n')
    install = locate(Flags(), ann)
    assert (install.history, install.vectors, install.collection) == (
        Origin("/s/h.db", file), Origin("/c/q", path), Origin("c", path),
    )  # fmt: skip
    assert (install.on_disk, install.config_file) == (True, path)


def test_tilde_is_the_home_where_a_person_typed_it_and_literal_in_mem0s_dict(ann: Host) -> None:
    install = locate(Flags(history="~/h.db", qdrant_path="q"), ann)
    assert (install.history.value, install.vectors and install.vectors.value) == (
        f"{ann.home}/h.db",
        f"{ann.cwd}/q",
    )
    path = config(ann, history_db_path="~/h.db", vector_store=store(path="~/q"))
    install = locate(Flags(config=path), ann)
    assert (install.history.value, install.vectors and install.vectors.value) == (
        f"{ann.cwd}/~/h.db", f"{ann.cwd}/~/q",
    )  # fmt: skip


def test_what_mem0_does_with_a_tilde_is_what_we_say(ann: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """mem0's own log, opened with the same dict from the same folder, is the file that we name."""
    from mem0.memory.storage import SQLiteManager

    monkeypatch.chdir(ann.cwd)
    Path(ann.cwd, "~").mkdir()
    SQLiteManager("~/h.db").close()
    install = locate(Flags(config=config(ann, history_db_path="~/h.db")), ann)
    assert Path(install.history.value).is_file()


def test_servers_and_other_products(ann: Host) -> None:
    install = locate(Flags(qdrant_url="http://h:6333"), ann)
    assert (install.vectors, install.server_url) == (None, Origin("http://h:6333", "--qdrant-url"))
    path = config(ann, vector_store=store(host="h", port=6333))
    install = locate(Flags(config=path), ann)
    assert (install.vectors, install.server_url) == (None, Origin("http://h:6333", path))
    settings(ann, 'qdrant_path = "/s/q"\n')
    path = config(ann, vector_store={"provider": "pgvector", "config": {"collection_name": "c"}})
    install = locate(Flags(config=path), ann)
    assert (install.provider, install.vectors, install.server_url) == ("pgvector", None, None)
    assert install.collection.value == "c"
    # A folder named on the command line is a Qdrant folder, whatever the dict says.
    install = locate(Flags(config=path, qdrant_path="/f"), ann)
    assert (install.provider, install.vectors) == ("qdrant", Origin("/f", "--qdrant-path"))


def test_the_key_of_a_server(ann: Host) -> None:
    ann = dataclasses.replace(ann, environ={**ann.environ, "FLAG_KEY": "key-a", "SETTINGS_KEY": "key-b"})
    install = locate(Flags(qdrant_url="h", api_key_env="FLAG_KEY"), ann)
    assert install.server_key is not None and install.server_key.reveal() == "key-a"
    assert (install.server_url, install.server_key_from) == (
        Origin("https://h:6333", "--qdrant-url"),
        "$FLAG_KEY",
    )
    assert "key-a" not in repr(install) + str(dataclasses.asdict(install))
    with pytest.raises(TypeError):
        pickle.dumps(install)
    with pytest.raises(UsageProblem, match="the variable NONE is not set"):
        locate(Flags(qdrant_url="h", api_key_env="NONE"), ann)
    with pytest.raises(UsageProblem, match="there is no server"):
        locate(Flags(qdrant_path="/f", api_key_env="FLAG_KEY"), ann)

    path = config(ann, vector_store=store(url="http://h:6333", api_key="key-c"))
    Path(path).chmod(0o640)
    with pytest.raises(UsageProblem, match=r"others can read it \(mode 0640\)") as problem:
        locate(Flags(config=path), ann)
    assert problem.value.hint is not None and f"chmod 600 {path}" in problem.value.hint
    assert locate(Flags(config=path, api_key_env="FLAG_KEY"), ann).server_key_from == "$FLAG_KEY"
    Path(path).chmod(0o600)
    settings(ann, 'qdrant_url = "http://other:6333"\napi_key_env = "SETTINGS_KEY"\n')
    install = locate(Flags(config=path), ann)
    assert install.server_key is not None and install.server_key.reveal() == "key-c"
    assert install.server_key_from == path
    # a server named otherwise does not get the key of another
    assert locate(Flags(config=path, qdrant_url="http://third:6333"), ann).server_key is None
    install = locate(Flags(), ann)
    assert (install.server_url and install.server_url.value, install.server_key_from) == (
        "http://other:6333",
        "$SETTINGS_KEY",
    )


def test_the_other_nodes_of_a_cluster(ann: Host) -> None:
    install = locate(Flags(qdrant_url="a", nodes=("http://b", "a:6333", "http://b:6333")), ann)
    assert install.nodes == ("http://b:6333",)
    with pytest.raises(UsageProblem, match="--node: there is no server"):
        locate(Flags(qdrant_path="/f", nodes=("b",)), ann)
    with pytest.raises(UsageProblem, match=r"--node: .*http or https"):
        locate(Flags(qdrant_url="a", nodes=("ftp://b",)), ann)
    with pytest.raises(UsageProblem, match="--node is empty"):
        locate(Flags(qdrant_url="a", nodes=("",)), ann)
    settings(ann, 'qdrant_url = "http://a:6333"\nqdrant_nodes = ["http://b:6333", "http://c:6333"]\n')
    both = ("http://b:6333", "http://c:6333")
    assert locate(Flags(), ann).nodes == locate(Flags(qdrant_url="http://a:6333"), ann).nodes == both
    assert locate(Flags(qdrant_url="http://b:6333"), ann).nodes == ("http://c:6333",)
    assert locate(Flags(nodes=("http://d:6333",)), ann).nodes == ("http://d:6333",)
    # the key of another server is not sent to them
    assert locate(Flags(qdrant_url="http://z:6333"), ann).nodes == ()
    assert locate(Flags(qdrant_path="/f"), ann).nodes == ()
    for wrong in ('"http://b"', "[1]", '["ftp://b"]', '["\\u0000"]'):
        settings(ann, f"qdrant_nodes = {wrong}\n")
        with pytest.raises(UsageProblem, match="qdrant_nodes is not a list of addresses"):
            locate(Flags(), ann)


def test_agent_python(ann: Host) -> None:
    settings(ann, 'agent_python = "venv/bin/python"\n')
    assert locate(Flags(), ann).agent_python == f"{ann.cwd}/venv/bin/python"
    assert locate(Flags(agent_python="~/v/bin/python"), ann).agent_python == f"{ann.home}/v/bin/python"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (Flags(qdrant_path="/a", qdrant_url="http://b"), "both given"),
        (Flags(history=""), "--history is empty"),
        (Flags(qdrant_path="/a\0b"), "--qdrant-path"),
        (Flags(config="/nowhere/mem0.yaml"), "/nowhere/mem0.yaml: no such file"),
        (Flags(config="nowhere:CONFIG"), "ModuleNotFoundError"),
    ],
)
def test_flags_that_cannot_be_right(ann: Host, flags: Flags, says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        locate(flags, ann)


def test_a_module_in_the_working_directory(ann: Host) -> None:
    Path(ann.cwd, "agentconf.py").write_text(
        "import os\nC = {'history_db_path': os.path.join(os.getcwd(), 'x.db')}\n"
    )
    install = locate(Flags(config="agentconf:C"), ann)
    assert install.history == Origin(f"{ann.cwd}/x.db", "agentconf:C")
