"""The lines for a mem0 configuration say what they must in every form, and are refused where none helps."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from mem0audit.core import agentconfig as core
from mem0audit.core.errors import Refused
from mem0audit.core.server import parse_address
from mem0audit.core.versions import changes_given_config, one_memory_a_folder
from mem0audit.install.config import mem0_config_from, parsed

NEW = "/srv/agent/qdrant"
LOG = "/srv/agent/history.db"
ODD = "/srv/a \"b\" \\ %h ${x} # é: 'c'/qdrant"


def wanted(
    mem0: str | None, vectors: str = NEW, raw: dict[str, Any] | None = None
) -> tuple[core.Change, ...]:
    return core.changes(mem0, vectors=vectors, history=LOG, raw=raw)


@pytest.mark.parametrize("path", [NEW, ODD])
@pytest.mark.parametrize("mem0", ["0.1.114", "1.0.7", "2.2.1", None])
def test_every_form_says_the_same(mem0: str | None, path: str) -> None:
    values = wanted(mem0, path)
    tree = core.with_changes({}, values)
    for form in ("yaml", "json", "toml"):
        assert parsed("\n".join(core.lines(form, values, None)), form) == tree, form
    made: dict[str, Any] = {}

    class Memory:
        from_config = staticmethod(dict)

    exec("\n".join(core.lines("python", values, None)), {"Memory": Memory}, made)
    assert made["memory"] == made["config"] == tree
    config = mem0_config_from(tree, "it")
    assert (config.path, config.history) == (path, LOG)
    assert config.on_disk is (None if mem0 == "2.2.1" else True)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"vector_store": {"provider": "qdrant"}},
        {"vector_store": {"provider": "qdrant", "config": {"path": "/tmp/qdrant", "collection_name": "x"}}},
        {"vector_store": None, "history_db_path": "/tmp/h.db"},
        {"vector_store": {"config": {"path": NEW, "on_disk": True}}, "history_db_path": LOG},
    ],
)
def test_python_assignments_make_the_dict_of_the_user_right(raw: dict[str, Any]) -> None:
    values = wanted("1.0.7", raw=raw)
    missing = core.differing(values, raw)
    config = json.loads(json.dumps(raw))
    exec("\n".join(core.lines("python", missing, raw, "config")), {}, {"config": config})
    assert config == core.with_changes(raw, values)
    assert core.value_at(config, core.PATH) == NEW and core.value_at(config, core.ON_DISK) is True


def test_on_disk_comes_with_the_versions_that_delete_without_it() -> None:
    def said(mem0: str | None) -> bool:
        return any(change.key == core.ON_DISK for change in wanted(mem0))

    assert [said(v) for v in ("0.0.7", "0.0.16", "1.0.7", "1.0.8", "2.2.1", None)] == [
        False, True, True, False, False, True,
    ]  # fmt: skip
    for mem0 in ("0.0.8", "0.0.15"):
        with pytest.raises(Refused, match="deletes its vector store's folder at every start"):
            wanted(mem0)
    # a log alone is in no danger
    assert core.changes("0.0.15", history=LOG) == (core.Change(core.HISTORY, LOG),)


def test_notes_tell_of_the_traps_of_a_version() -> None:
    assert core.notes("2.2.1", wanted("2.2.1")) == ()
    (only,) = core.notes("1.0.7", wanted("1.0.7"))
    assert "on_disk: true must be there" in only and "1.0.7" in only
    said = " ".join(core.notes("0.1.114", wanted("0.1.114")))
    assert "MEM0_DIR of its own" in said and "never Memory(object) twice" in said
    assert "0.0.8 to 0.0.15 even with it" in core.notes(None, wanted(None))[0]
    assert [changes_given_config(v) for v in ("0.1.88", "0.1.89", "0.1.90", "0.1.92", "0.1.118", "1.0.0", None)] == [
        False, True, False, True, True, False, None,
    ]  # fmt: skip
    assert [one_memory_a_folder(v) for v in ("0.1.91", "0.1.92", "1.0.5", "1.0.6")] == [
        False,
        True,
        True,
        False,
    ]


def test_the_environment_names_the_folder_of_the_log() -> None:
    assert core.environment_lines(LOG) == ("export MEM0_DIR=/srv/agent", "Environment=MEM0_DIR=/srv/agent")
    assert core.environment_lines("/srv/a b%/history.db") == (
        "export MEM0_DIR='/srv/a b%'",
        'Environment="MEM0_DIR=/srv/a b%%"',
    )
    assert core.environment_lines("/srv/agent/log.db") == ()


def test_yaml_is_plain_only_where_that_means_a_text() -> None:
    for text in (
        "/a/b-c.d",
        "/a b",
        "/a: b",
        "/a #b",
        "no",
        "/é",
        "/a\tb",
        "",
        "~/x",
        "/x y'z\"",
        "/a\u2028b",
    ):
        assert yaml.safe_load(core.yaml_scalar(text)) == text


@pytest.mark.parametrize(
    ("url", "key", "from_folder", "gone"),
    [
        ("http://new:6333", False, True, {"on_disk", "path", "url", "api_key", "https"}),
        ("http://new:6333", True, True, {"on_disk", "path", "host", "port"}),
        ("https://new:6333", False, False, {"host", "port", "api_key"}),
        (None, False, False, {"host", "port", "url", "api_key", "https"}),
    ],
)
def test_nothing_of_the_old_place_stays_beside_the_new_one(
    url: str | None, key: bool, from_folder: bool, gone: set[str]
) -> None:
    """`url` beside `host` is refused by qdrant-client, either beside `path` wins over it in mem0."""
    address = None if url is None else parse_address(url)
    names = core.not_beside(address, key, from_folder=from_folder)
    assert set(names) == gone
    old = dict.fromkeys(("host", "port", "url", "api_key", "https", "path", "on_disk"), "x")
    raw = {"vector_store": {"provider": "qdrant", "config": old}}
    taken = core.with_changes(raw, core.taken_out(names, raw))["vector_store"]["config"]
    assert set(old) - set(taken) == gone
    assert core.taken_out(names, None) == ()
    said = " ".join(core.server_notes((), "python", names))
    assert said == f"None of these may stay beside them: {', '.join(names)}."
