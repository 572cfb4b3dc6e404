from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from mem0audit.core.errors import UsageProblem
from mem0audit.install.config import (
    EXAMPLE,
    PROVIDERS,
    load_mem0_config,
    load_settings,
    mem0_config_from,
    settings_files,
    shown,
    validate,
)
from mem0audit.install.host import Host

CONFIG = {
    "vector_store": {
        "provider": "qdrant",
        "config": {"path": "/srv/q", "collection_name": "facts", "on_disk": True},
    },
    "embedder": {"provider": "openai", "config": {"embedding_dims": 768, "api_key": "sk-SECRET1"}},
    "history_db_path": "/srv/history.db",
}
YAML = """
vector_store:
  provider: qdrant
  config: {path: /srv/q, collection_name: facts, on_disk: true}
embedder: {provider: openai, config: {embedding_dims: 768, api_key: sk-SECRET1}}
history_db_path: /srv/history.db
"""
TOML = """
history_db_path = "/srv/history.db"
[vector_store]
provider = "qdrant"
[vector_store.config]
path = "/srv/q"
collection_name = "facts"
on_disk = true
[embedder.config]
embedding_dims = 768
api_key = "sk-SECRET1"
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mem0.yaml", YAML), ("mem0.yml", YAML), ("mem0.json", json.dumps(CONFIG)), ("mem0.toml", TOML),
        ("mem0.conf", YAML), ("mem0", json.dumps(CONFIG)), ("settings.cfg", TOML),
        ("bom.json", "\ufeff" + json.dumps(CONFIG)),
    ],
)  # fmt: skip
def test_the_dict_in_every_format(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    got = load_mem0_config(str(tmp_path / name))
    assert (got.path, got.collection, got.on_disk, got.dims) == ("/srv/q", "facts", True, 768)
    assert (got.history, got.provider, got.url) == ("/srv/history.db", "qdrant", None)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.yaml", b"vector_store: [1, 2", "at line 1"),
        ("a.yaml", b"- 1\n- 2\n", "no keys and values"),
        ("a.json", b'{"api_key": "sk-SECRET1"', "at line 1"),
        ("a.json", b"", "at line 1"),
        ("a.toml", b"x = \n", "TOML"),
        ("a.yaml", b"\xff\xfe\x00", "not UTF-8"),
        ("a.yaml", b"!!python/object/apply:os.system ['touch /tmp/mem0audit-ran-code']", "at line 1"),
        ("a.yaml", b"vector_store: 3\n", "vector_store is not a mapping"),
        ("a.yaml", b"history_db_path: 3\n", "history_db_path = 3 is not a text"),
        ("a.yaml", b"vector_store: {config: {path: ''}}\n", "mem0 refuses that"),
        ("a.yaml", b"history_db_path: ':memory:'\n", "in memory only"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.yaml", b"embedder: {config: {embedding_dims: many}}", "not a whole number"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageProblem) as problem:
        load_mem0_config(str(tmp_path / name))
    assert says in problem.value.message
    assert problem.value.message.startswith(str(tmp_path / name))
    assert "\n" not in problem.value.message and "SECRET" not in problem.value.message
    assert not os.path.exists("/tmp/mem0audit-ran-code")


def test_a_missing_file_a_folder_and_a_huge_one(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "no.yaml", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(UsageProblem, match=says):
            load_mem0_config(str(path))
    (tmp_path / "big").write_bytes(b"a" * 4_000_002)
    with pytest.raises(UsageProblem, match="larger than 512 kB"):
        load_mem0_config(str(tmp_path / "big"))


# --- as mem0 itself ---------------------------------------------------------------------------------

VECTOR_STORES: list[dict[str, Any]] = [
    {},
    {"path": "/srv/q"},
    {"path": "~/q"},
    {"path": "$HOME/q"},
    {"collection_name": "c"},
    {"url": "http://localhost:6333", "api_key": "k"},
    {"url": "http://localhost:6333"},
    {"host": "localhost", "port": 6333},
    {"host": "localhost"},
    {"port": 6333},
    {"api_key": "k"},
    {"https": False},
    {"host": "localhost", "port": 6333, "api_key": "k"},
    {"path": "/srv/q", "host": "localhost", "port": 7000},
    {"url": "localhost:7000"},
    {"url": "localhost"},
    {"url": "q.example.org", "api_key": "k"},
    {"url": "q.example.org:80", "https": False, "api_key": "k"},
    {"url": "https://xyz.cloud.example.org", "api_key": "k"},
    {"url": "https://u:p@h:1/prefix/?api_key=k", "https": False},
]


@pytest.mark.parametrize("values", VECTOR_STORES, ids=str)
def test_folder_or_server_is_what_mem0_takes(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with the arguments that the installed mem0 gives to QdrantClient."""
    import mem0.vector_stores.qdrant as module
    from mem0.configs.vector_stores.qdrant import QdrantConfig
    from mem0.vector_stores.configs import VectorStoreConfig

    seen: dict[str, Any] = {}

    def client(**arguments: Any) -> object:
        seen.update(arguments)
        return object()

    monkeypatch.setattr(module, "QdrantClient", client)
    monkeypatch.setattr(module.Qdrant, "create_col", lambda *_: None)
    config = VectorStoreConfig(provider="qdrant", config=dict(values)).config
    assert isinstance(config, QdrantConfig)
    module.Qdrant(
        **{key: value for key, value in config.model_dump().items() if key != "embedding_model_dims"},
        embedding_model_dims=8,
    )
    ours = mem0_config_from({"vector_store": {"provider": "qdrant", "config": values}}, "x")
    if set(seen) == {"path"}:
        assert ours.url is None
        assert (ours.path or "/tmp/qdrant") == seen["path"]
    else:
        from qdrant_client import QdrantClient

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a key over plain http
            real = QdrantClient(**seen, check_compatibility=False)
        address = real._client.rest_uri.rstrip("/")
        real.close()
        assert ours.url is not None and ours.path is None
        assert ours.url.rstrip("/") == address


def test_the_providers_are_those_of_the_installed_mem0() -> None:
    from mem0.vector_stores.configs import VectorStoreConfig

    default = VectorStoreConfig.__private_attributes__["_provider_configs"].default
    assert frozenset(default) == PROVIDERS


def test_mem0s_own_defaults() -> None:
    from mem0.configs.base import MemoryConfig

    theirs = MemoryConfig().vector_store.config
    assert (theirs.path, theirs.collection_name, theirs.embedding_model_dims) == ("/tmp/qdrant", "mem0", 1536)
    ours = mem0_config_from({}, "x")
    assert (ours.path, ours.collection, ours.dims, ours.says_vectors) == (None, None, None, False)


def test_another_vector_store_keeps_its_name() -> None:
    got = mem0_config_from(
        {"vector_store": {"provider": "pgvector", "config": {"collection_name": "c"}}}, "x"
    )
    assert (got.provider, got.path, got.url, got.collection) == ("pgvector", None, None, "c")


def test_dims_of_the_embedder_come_first() -> None:
    store = {"provider": "qdrant", "config": {"embedding_model_dims": 1024}}
    assert mem0_config_from({"vector_store": store}, "x").dims == 1024
    embedder = {"provider": "openai", "config": {"embedding_dims": 512}}
    assert mem0_config_from({"vector_store": store, "embedder": embedder}, "x").dims == 512


# --- module:NAME --------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "agent_settings.py").write_text(
        "import os, sys\n"
        "print('noise on stdout'); print('noise', file=sys.stderr)\n"
        f"CONFIG = {CONFIG!r}\n"
        "class Kept:\n    nested = dict(CONFIG, history_db_path=os.path.abspath('h.db'))\n"
        "LIST = [1]\n"
        "CLIENT = {'vector_store': {'provider': 'qdrant', 'config': {'client': object()}}}\n"
        "class Model:\n    def model_dump(self, **_): return CONFIG\n"
        "MODEL = Model()\n"
    )
    (tmp_path / "breaks.py").write_text("raise ValueError('first line\\nsecond line')\n")
    (tmp_path / "exits.py").write_text("import os\nos._exit(3)\n")
    (tmp_path / "sysexits.py").write_text("import sys\nsys.exit('no')\n")
    return tmp_path


def test_a_dict_in_a_module(module: Path, capfd: pytest.CaptureFixture[str]) -> None:
    got = load_mem0_config("agent_settings:CONFIG", cwd=str(module))
    assert got.raw == CONFIG and got.source == "agent_settings:CONFIG"
    assert load_mem0_config("agent_settings:MODEL", cwd=str(module)).raw == CONFIG
    nested = load_mem0_config("agent_settings:Kept.nested", cwd=str(module))
    assert nested.history == str(module / "h.db")
    assert capfd.readouterr() == ("", "")
    assert "agent_settings" not in __import__("sys").modules


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("agent_settings:NONE", "AttributeError"),
        ("agent_settings:LIST", "is not a dict"),
        ("agent_settings:CLIENT", "client object"),
        ("breaks:X", "ValueError: first line"),
        ("exits:X", "ended the interpreter"),
        ("sysexits:X", "SystemExit"),
        ("not_there_at_all:X", "ModuleNotFoundError"),
    ],
)
def test_an_import_that_fails_is_one_line(module: Path, name: str, says: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        load_mem0_config(name, cwd=str(module))
    assert says in problem.value.message and "\n" not in problem.value.message


def test_an_interpreter_that_is_none(module: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot be run"):
        load_mem0_config("agent_settings:CONFIG", python="/nowhere/python", cwd=str(module))


def test_a_large_value_and_one_that_never_ends(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mem0audit.install.config as module_under_test

    (module / "large.py").write_text(
        "X = {'history_db_path': '/h', 'custom_instructions': 'x' * 1_000_000}\n"
    )
    assert len(load_mem0_config("large:X", cwd=str(module)).raw["custom_instructions"]) == 1_000_000
    (module / "slow.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(module_under_test, "_IMPORT_TIMEOUT", 0.5)
    with pytest.raises(UsageProblem, match="took longer"):
        load_mem0_config("slow:X", cwd=str(module))


# --- what is shown ------------------------------------------------------------------------------------


def test_secrets_are_masked() -> None:
    raw = {
        "vector_store": {
            "provider": "qdrant",
            "config": {
                "url": "https://user:SECRET@h:6333/x?api_key=SECRET&a=1",
                "api_key": "SECRET",
                "path": "/p",
            },
        },
        "llm": {
            "config": {
                "openai_api_key": "SECRET",
                "model": "m",
                "max_tokens": 2000,
                "azure_kwargs": {"api_key": "SECRET"},
            }
        },
        "embedder": {
            "config": {"aws_secret_access_key": "SECRET", "aws_session_token": "SECRET", "password": "SECRET"}
        },
        "list": [{"token": "SECRET"}],
        "reranker": {"auth": {"nested": "SECRET"}},
        "vertex_credentials_json": "SECRET",
        "connection_string": "postgres://u:SECRET@h/db",
        "headers": {"Authorization": "Bearer SECRET"},
    }
    text = json.dumps(shown(mem0_config_from(raw, "x")))
    assert "SECRET" not in text
    assert '"model": "m"' in text and '"path": "/p"' in text and "https://***@h:6333/x" in text
    assert '"max_tokens": 2000' in text


# --- mem0audit.toml -----------------------------------------------------------------------------------


def test_the_first_settings_file_counts(host: Host) -> None:
    places = settings_files(host)
    assert places[2] == "/etc/mem0audit/mem0audit.toml"
    assert load_settings(host).file is None
    for place, name in ((places[1], "second"), (places[0], "first")):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).write_text(f'collection = "{name}"\n')
        assert load_settings(host).collection == name
        assert load_settings(host).file == place


def test_etc_and_a_relative_xdg(made_host: Host) -> None:
    made_host.environ["XDG_CONFIG_HOME"] = "relative"  # type: ignore[index]
    assert settings_files(made_host)[1] == "/home/ann/.config/mem0audit/mem0audit.toml"
    path = Path(made_host.root + "/etc/mem0audit")
    path.mkdir(parents=True)
    (path / "mem0audit.toml").write_text('history = "~/h.db"\nqdrant_path = "q"\nselect = ["L", "D301"]\n')
    got = load_settings(made_host)
    assert got.history == "/home/ann/h.db"
    assert got.qdrant_path == "/etc/mem0audit/q"
    assert (got.select, got.ignore, got.fail_on) == (("L", "D301"), (), None)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('historie = "x"\n', "unknown key 'historie'", "did you mean 'history'?"),
        ('zzz = "x"\n', "unknown key 'zzz'", "known keys: history"),
        ("history = 3\n", "history = 3 is not a text", "for example"),
        ('history = " "\n', "history = ' ' is not a text", "for example"),
        ('fail_on = "worst"\n', "fail_on = 'worst'", "critical, high"),
        ('select = "L"\n', "select = 'L'", '["L", "D301"]'),
        ('ignore = ["l1"]\n', "ignore = ['l1']", '["L", "D301"]'),
        ('qdrant_path = "a"\nqdrant_url = "b"\n', "both set", "keep the one"),
        ("x = \n", "not TOML", None),
        ("[table]\n", "unknown key 'table'", None),
    ],
)
def test_a_wrong_settings_file_names_file_key_and_value(
    host: Host, text: str, says: str, hint: str | None
) -> None:
    Path(settings_files(host)[0]).write_text(text)
    with pytest.raises(UsageProblem) as problem:
        load_settings(host)
    assert says in problem.value.message and "mem0audit.toml" in problem.value.message
    if hint is not None:
        assert problem.value.hint is not None and hint in problem.value.hint
    assert validate(settings_files(host)[0], host).problems != ()


def test_the_example_is_valid_and_each_key_of_it_can_be_switched_on(host: Host) -> None:
    file = Path(settings_files(host)[0])
    file.write_text(EXAMPLE)
    assert load_settings(host).history is None
    keys = [line[1:] for line in EXAMPLE.splitlines() if line.startswith("#") and not line.startswith("# ")]
    assert len(keys) == 13
    for key in keys:
        file.write_text(key + "\n")
        name = key.partition(" ")[0]
        assert getattr(load_settings(host), name), name


def test_a_settings_file_that_is_a_folder(host: Host) -> None:
    Path(settings_files(host)[0]).mkdir()
    with pytest.raises(UsageProblem, match="is a folder"):
        load_settings(host)


# --- config validate ----------------------------------------------------------------------------------


def test_validate(tmp_path: Path, host: Host) -> None:
    path = tmp_path / "mem0.json"

    def told(config: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        path.write_text(json.dumps(config))
        got = validate(str(path), host)
        assert got.kind == "mem0 config"
        return got.problems, got.notes

    assert told(CONFIG) == ((), ())
    problems, notes = told({"vector_stor": {}, "history_db_path": "~/h.db"})
    assert "mem0 does not expand ~" in problems[0]
    assert notes == (
        "mem0 ignores the key 'vector_stor': did you mean 'vector_store'?",
        "no path in vector_store.config: mem0 uses /tmp/qdrant",
    )
    problems, _ = told({"vector_store": {"provider": "qdrant", "config": {"pth": "/x", "path": "$HOME/q"}}})
    assert problems == (
        "mem0 refuses vector_store.config.pth: did you mean 'path'?",
        "vector_store.config.path = '$HOME/q': mem0 does not expand variables",
    )
    problems, _ = told({"vector_store": {"provider": "qdrnt"}})
    assert "did you mean 'qdrant'?" in problems[0]
    _, notes = told({"vector_store": {"config": {"host": "h", "path": "q"}}, "history_db_path": "h.db"})
    assert any("host without port" in note for note in notes) and any("relative" in note for note in notes)
    path.write_text("{")
    assert validate(str(path), host).problems
