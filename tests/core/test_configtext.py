"""Configuration files are edited in the wanted values alone; every other character stays, or they are left alone."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mem0audit.core import agentconfig
from mem0audit.core.configtext import CannotEdit, edited, same
from mem0audit.install.config import parsed

NEW = "/srv/agent/qdrant"
LOG = "/srv/agent/history.db"


def edit(text: str, kind: str) -> tuple[str, list[str], list[str]]:
    """The new text, which says exactly what it must; the lines that went, and those that came."""
    raw = parsed(text, kind)
    wanted = agentconfig.changes("1.0.7", vectors=NEW, history=LOG, raw=raw)
    new = edited(text, kind, raw, agentconfig.differing(wanted, raw))
    assert same(parsed(new, kind), agentconfig.with_changes(raw, wanted))
    delta = list(difflib.ndiff(text.splitlines(keepends=True), new.splitlines(keepends=True)))
    return new, [d[2:] for d in delta if d[0] == "-"], [d[2:] for d in delta if d[0] == "+"]


YAML = """\
# our agent
vector_store:
    provider: qdrant   # embedded
    config:
        collection_name: mem0
        path: "/tmp/qdrant"   # TODO: move this

        embedding_model_dims: 8
llm:
    config: {api_key: "${KEY}", prompt: >-
        no}
history_db_path: '/tmp/h.db'

# the end
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_yaml_keeps_comments_order_quotes_and_line_ends(ends: str) -> None:
    text = YAML.replace("prompt: >-\n        no}", "prompt: no}").replace("\n", ends)
    _, went, came = edit(text, "yaml")
    assert went == [
        f'        path: "/tmp/qdrant"   # TODO: move this{ends}',
        f"history_db_path: '/tmp/h.db'{ends}",
    ]
    assert came == [
        f'        path: "/srv/agent/qdrant"   # TODO: move this{ends}',
        f"        on_disk: true{ends}",
        f"history_db_path: '/srv/agent/history.db'{ends}",
    ]


@pytest.mark.parametrize(
    ("text", "came"),
    [
        (
            "llm: {a: b}\n# tail",
            ["vector_store:\n", "  provider: qdrant\n", "  config:\n", f"    path: {NEW}\n", "    on_disk: true\n",
             f"history_db_path: {LOG}\n"],
        ),
        (
            "vector_store:\n    provider: qdrant\n    config:\n        collection_name: m # c\nllm:\n  a: |\n    x\n\n",
            [f"        path: {NEW}\n", "        on_disk: true\n", f"history_db_path: {LOG}\n"],
        ),
        (  # both at the end of one line
            "vector_store:\n  config:\n    path: /tmp/q",
            [f"    path: {NEW}\n", "    on_disk: true\n", f"history_db_path: {LOG}"],
        ),
        (
            "vector_store: {config: {path: /tmp/q}}",
            [f"vector_store: {{config: {{path: {NEW}, on_disk: true}}}}\n", f"history_db_path: {LOG}"],
        ),
        (
            "{}",
            [f"{{vector_store: {{provider: qdrant, config: {{path: {NEW}, on_disk: true}}}}, history_db_path: {LOG}}}"],
        ),
        (
            '{"vector_store": {"config": {"path": "/t"}}}',
            [f'{{"vector_store": {{"config": {{"path": "{NEW}", "on_disk": true}}}}, "history_db_path": "{LOG}"}}'],
        ),
    ],
)  # fmt: skip
def test_yaml_puts_new_keys_beside_their_siblings(text: str, came: list[str]) -> None:
    assert edit(text, "yaml")[2] == came


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x\n  path: /tmp/q\nvector_store:\n  config:\n    <<: *x\n", "from an anchor"),
        ("a: &x {path: /tmp/q}\nvector_store:\n  config: *x\n", "from an anchor"),
        ("vector_store:\n  config: &x\n    path: /tmp/q\nb: *x\n", "an anchor .* or a tag"),
        ("vector_store:\n  config:\n    path: &x /tmp/q\nb: *x\n", "an anchor .* or a tag"),
        ("vector_store: !!map\n  config:\n    path: /tmp/q\n", "an anchor .* or a tag"),
        ("vector_store:\n  config:\n    path: ${Q}\n", r"from elsewhere \(\$\{Q\}\)"),
        ('vector_store:\n  config:\n    path: "{{ q }}/x"\n', "from elsewhere"),
        ("vector_store:\n  config:\n    path: $HOME/q\n", "from elsewhere"),
        ("vector_store: ${STORE}\n", "from elsewhere"),
        ("vector_store:\n  config:\n    path: >-\n      /tmp/q\n", "several lines"),
        ("vector_store:\n  config:\n    path: /a\n    path: /b\n", "twice"),
        ("vector_store:\n  config:\n", "a form that mem0 does not take"),
        ("vector_store: 3\n", "a form that mem0 does not take"),
        ("? vector_store\n: config:\n    path: /tmp/q\n", None),
    ],
)
def test_yaml_that_is_not_plain_is_left_to_its_owner(text: str, why: str | None) -> None:
    if why is None:  # either way is right
        try:
            edit(text, "yaml")
        except CannotEdit:
            return
        return
    with pytest.raises(CannotEdit, match=why):
        edit(text, "yaml")


@pytest.mark.parametrize("indent", [None, 2, 4, "\t"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_json_keeps_its_layout(indent: Any, ends: str) -> None:
    inner = {"config": {"path": "/tmp/q", "collection_name": "\u00e9"}}
    for value in ({"vector_store": inner, "llm": {"x": 1.50}}, {"llm": {"x": 1.50}}, {"llm": {}}, {}):
        text = json.dumps(value, indent=indent).replace("1.5", "1.50").replace("\n", ends) + ends
        new, went, _ = edit(text, "json")
        assert text.count("\\u00e9") == new.count("\\u00e9") and new.count(ends) == new.count("\n")
        assert ("1.50" in new) == ("1.50" in text)
        if indent is not None and value:
            # what is there keeps its line: only the path goes, and a comma comes after a last brace
            assert all("path" in line or line.strip() in ("}", "{}", '"llm": {}', "1.50") for line in went), (
                went
            )
            assert (
                new
                == json.dumps(json.loads(new), indent=indent).replace("1.5", "1.50").replace("\n", ends)
                + ends
            )


def test_json_with_a_key_twice_is_left_alone() -> None:
    with pytest.raises(CannotEdit, match="twice"):
        edit('{"vector_store": {"config": {"path": "/a", "path": "/b"}}}', "json")
    with pytest.raises(CannotEdit, match="a form that mem0 does not take"):
        edit('{"vector_store": null, "llm": {}}', "json")


TOML = """\
# top
version = "v1.1"

[vector_store]
provider = "qdrant" # embedded

[vector_store.config]
path = '/tmp/qdrant'   # why
collection_name = "mem0"

[llm.config]
temperature = 0.10
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_toml_keeps_comments_and_order(ends: str) -> None:
    _, went, came = edit(TOML.replace("\n", ends), "toml")
    assert went == [f"path = '/tmp/qdrant'   # why{ends}"]
    assert came == [
        f'history_db_path = "{LOG}"{ends}',
        f'path = "{NEW}"   # why{ends}',
        f"on_disk = true{ends}",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[llm]\nprovider="x"\n',
        'vector_store = {config = {path = "/tmp/q"}} # c\n[llm]\na=1\n',
        'vector_store.config.path="/tmp/q"\n',
        '[a]\n[vector_store.config]\npath="/t"\n[b]\n[vector_store]\nprovider="qdrant"\n',
    ],
)
def test_toml_in_every_way_to_write_tables(text: str) -> None:
    _, went, _ = edit(text, "toml")
    assert all("path" in line for line in went)


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
KEYS = st.sampled_from(["path", "on_disk", "collection_name", "llm", "x y", "é", "history_db_path"])
LEAVES = st.one_of(TEXTS, st.integers(-9, 99), st.booleans())
TREES = st.dictionaries(
    KEYS, st.one_of(LEAVES, st.lists(LEAVES, max_size=2), st.dictionaries(KEYS, LEAVES, max_size=3))
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_any_file_is_changed_rightly_or_not_at_all(data: st.DataObject) -> None:
    raw: dict[str, Any] = data.draw(TREES)
    if data.draw(st.booleans()):
        raw = {
            **raw,
            "vector_store": {
                "provider": "qdrant",
                "config": data.draw(st.dictionaries(KEYS, LEAVES, max_size=4)),
            },
        }
    kind = data.draw(st.sampled_from(["json", "yaml"]))
    if kind == "json":
        text = json.dumps(
            raw, indent=data.draw(st.sampled_from([None, 2, 4])), ensure_ascii=data.draw(st.booleans())
        )
    else:
        text = yaml.safe_dump(
            raw, default_flow_style=data.draw(st.sampled_from([None, True, False])), sort_keys=False,
            allow_unicode=True, indent=data.draw(st.sampled_from([2, 4])),
        )  # fmt: skip
    try:
        new, _, _ = edit(text, kind)
    except CannotEdit:
        return
    if text.startswith("{") and kind == "yaml":
        return
    # nothing but the values themselves went: what is left of the old text is in the new one, in its order
    position = 0
    for line in text.splitlines():
        if line.strip() and not any(part in line for part in ("path", "on_disk", "{", "}")):
            position = new.index(line.rstrip(), position)
