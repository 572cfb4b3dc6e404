"""Audits of test installs, and the few words that rule tests share."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from mem0audit.core.model import Finding, Install, Report
from mem0audit.install.host import Host, this_host
from mem0audit.install.locate import Flags, locate
from mem0audit.operations.audit import audit

STORE_GROUPS = ("I", "D", "H", "E", "C", "T", "S")
"""Every group that judges the stores themselves; L judges where they lie."""

NOTES = frozenset({"I213", "I215", "S804", "H406", "T703"})
"""What an audit says of healthy stores, for information."""


def host(**changes: Any) -> Host:
    """This machine, with what a test wants changed (`now`, `boot_at`, `root`, …)."""
    return dataclasses.replace(this_host(), **changes)


def report_of(
    store: Any,
    *,
    select: tuple[str, ...] = STORE_GROUPS,
    ignore: tuple[str, ...] = (),
    on: Host | None = None,
    install: dict[str, Any] | None = None,
    **flags: Any,
) -> Report:
    """The report of a builder's or a store copy's install (anything with `.history` and `.vectors`).

    `install` changes fields of the located install; `flags` are `locate.Flags`.
    """
    machine = on or this_host()
    found = located(store, machine, **flags)
    if install:
        found = dataclasses.replace(found, **install)
    return audit(found, machine, select=select, ignore=ignore, pause=lambda seconds: None)


def located(store: Any, on: Host | None = None, **flags: Any) -> Install:
    """The install of a builder or a store copy; `flags` are `locate.Flags`."""
    given: dict[str, Any] = {f.name: None for f in dataclasses.fields(Flags)}
    given.update(history=str(store.history), qdrant_path=str(store.vectors), **flags)
    return locate(Flags(**given), on or this_host())


def codes(report: Report) -> Counter[str]:
    """How often each code was found, notes about healthy stores left out."""
    return Counter(f.code for f in report.findings if f.code not in NOTES)


def of(report: Report, code: str) -> list[Finding]:
    """The findings of one rule."""
    return [f for f in report.findings if f.code == code]


def gaps(report: Report) -> list[tuple[str, str]]:
    """What makes the audit incomplete."""
    return [(n.what, n.why) for n in report.not_checked if n.gap]


def kinds(report: Report) -> list[str]:
    """The incidents, by kind, in the order they are reported."""
    return [i.kind for i in report.incidents]


class Paths:
    """An install by its two paths."""

    def __init__(self, history: Path | str, vectors: Path | str) -> None:
        self.history = Path(history)
        self.vectors = Path(vectors)
