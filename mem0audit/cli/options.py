"""Options that several commands share, and the install they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mem0audit.core.errors import UsageProblem

if TYPE_CHECKING:
    from mem0audit.core.model import Install
    from mem0audit.install.host import Host


class Format(str, Enum):
    """How data is written."""

    TEXT = "text"
    JSON = "json"


def complete_code(incomplete: str) -> Iterator[tuple[str, str]]:
    """Rule codes for shell completion, with their names; after a comma the next one."""
    from mem0audit.core.catalogue import CATALOGUE

    before, comma, last = incomplete.rpartition(",")
    for code, rule in CATALOGUE.items():
        if code.startswith(last.upper()):
            yield f"{before}{comma}{code}", rule.name


HistoryOption = Annotated[
    str | None, typer.Option("--history", metavar="FILE", help="The history.db of the install.")
]
QdrantPathOption = Annotated[
    str | None,
    typer.Option("--qdrant-path", metavar="FOLDER", help="Its embedded Qdrant folder (has meta.json)."),
]
QdrantUrlOption = Annotated[
    str | None, typer.Option("--qdrant-url", metavar="URL", help="Or its Qdrant server.")
]
ApiKeyEnvOption = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="The variable that holds the server's API key."),
]
NodeOption = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="URL", help="Another node of its cluster. May be repeated."),
]
CollectionOption = Annotated[
    str | None, typer.Option("--collection", metavar="NAME", help="The collection of the memories.")
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The dict given to Memory.from_config, as YAML, JSON or TOML; or module:NAME.",
    ),
]
AgentPythonOption = Annotated[
    str | None,
    typer.Option("--agent-python", metavar="PATH", help="The agent's Python, to know its mem0 version."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for machines.")]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write there (0600), not to standard output."),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Everything, not the first few.")]
NoLedgerOption = Annotated[
    bool, typer.Option("--no-ledger", help="Neither read nor write the ledger (seals, owners, erasures).")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing when nothing is wrong.")]
QuietIfNoneOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Nothing when there is nothing to tell.")
]


@dataclass(frozen=True)
class Named:
    """The flags with which a user named an install."""

    history: str | None = None
    qdrant_path: str | None = None
    qdrant_url: str | None = None
    collection: str | None = None
    config: str | None = None
    agent_python: str | None = None
    api_key_env: str | None = None
    nodes: Sequence[str] | None = None

    def words(self) -> tuple[str, ...]:
        """The same flags as words of a command line."""
        pairs = (
            ("--history", self.history),
            ("--qdrant-path", self.qdrant_path),
            ("--qdrant-url", self.qdrant_url),
            ("--collection", self.collection),
            ("--config", self.config),
            ("--agent-python", self.agent_python),
            ("--api-key-env", self.api_key_env),
            *(("--node", node) for node in self.nodes or ()),
        )
        return tuple(word for flag, value in pairs if value is not None for word in (flag, value))

    def find(self) -> tuple[Install, Host]:
        """The install these flags, the configuration and mem0's defaults name, and this machine.

        Raises UsageProblem where they cannot be right.
        """
        for flag, value in (("--history", self.history), ("--qdrant-path", self.qdrant_path)):
            if value is not None and (not value or "\0" in value):
                raise UsageProblem(f"{flag}: not a path")
        from mem0audit.install.host import this_host
        from mem0audit.install.locate import Flags, locate

        host = this_host()
        flags = Flags(
            history=self.history,
            qdrant_path=self.qdrant_path,
            qdrant_url=self.qdrant_url,
            collection=self.collection,
            config=self.config,
            agent_python=self.agent_python,
            api_key_env=self.api_key_env,
            nodes=tuple(self.nodes or ()),
        )
        return locate(flags, host), host


def selectors(given: list[str] | None, flag: str) -> tuple[str, ...]:
    """`["D,I20", "L101"]` -> `("D", "I20", "L101")`.

    Raises UsageProblem for one that means no rule.
    """
    wanted = tuple(w.strip() for word in given or () for w in word.split(",") if w.strip())
    if not wanted:
        if given:
            raise UsageProblem(f"{flag}: names no rule", "every code: mem0audit explain")
        return ()
    from mem0audit.core.catalogue import unknown_selectors

    for unknown in unknown_selectors(wanted):
        raise UsageProblem(f"{flag} {unknown}: no rule has that code or name", did_you_mean(unknown))
    return wanted


def did_you_mean(word: str) -> str:
    """A hint with the nearest known codes, or where all of them are."""
    from mem0audit.core.catalogue import closest, find

    near = [rule for name in closest(word) for rule in find(name)]
    if not near:
        return "every code: mem0audit explain"
    names = dict.fromkeys(f"{rule.code} ({rule.name})" for rule in near)
    return "did you mean " + " or ".join(names) + "?"
