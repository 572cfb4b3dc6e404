"""What is wrong with a plain SQLite store of facts: text and JSON."""

from __future__ import annotations

from typing import Any

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.factfile import FactReport
from mem0audit.core.model import Finding, Severity
from mem0audit.core.times import shown
from mem0audit.report.escape import escape
from mem0audit.report.json import dump, finding, not_checked
from mem0audit.report.screen import Screen
from mem0audit.report.words import evidence_value, number, plural, size

SHOWN = 5
"""Findings of one rule that are shown without --verbose."""


def fact_file_text(report: FactReport, screen: Screen) -> str:
    """The screen of `audit --memory-db`; empty with `quiet` where nothing is wrong."""
    if screen.quiet and not report.findings and not any(n.gap for n in report.not_checked):
        return ""
    lines = [] if screen.quiet else _head(report, screen)
    for code, found in _by_code(report).items():
        lines += _group(code, found, screen)
    for gap in report.not_checked:
        if gap.gap or screen.verbose:
            lines += screen.wrap(f"not checked: {gap.what}: {gap.why}", hanging=2)
    if not report.findings and not any(n.gap for n in report.not_checked):
        lines.append("Nothing is wrong with it.")
    return "\n".join(lines) + "\n"


def _head(report: FactReport, screen: Screen) -> list[str]:
    mode = {"wal": "write-ahead log", "rollback": "rollback journal"}.get(report.file.journal_mode or "", "")
    table = "" if report.file.problem is not None else f"table {report.table}"
    facts = [table, size(report.file.size_bytes), mode]
    lines = [screen.bold(escape(report.path)), *screen.fill([escape(f) for f in facts if f], 2)]
    counts = [
        plural(count, "fact") if name == "all" else f"{number(count)} {name}"
        for name, count in report.counts.items()
        if count is not None and (count or name in ("all", "live"))
    ]
    if counts:
        lines += screen.fill(counts, 2)
    for note in report.notes:
        lines += screen.wrap(note, 2, 4)
    return [*lines, ""]


def _by_code(report: FactReport) -> dict[str, list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    for one in report.findings:
        groups.setdefault(one.code, []).append(one)
    return groups


def _group(code: str, found: list[Finding], screen: Screen) -> list[str]:
    severity = max(one.severity for one in found)
    head = f" {severity.label:<8}  {code} {CATALOGUE[code].name}"
    lines = [screen.severity(severity, head)]
    for one in found if screen.verbose else found[:SHOWN]:
        facts = [
            f"{escape(k)} {escape(evidence_value(k, v))}" for k, v in one.evidence.items() if v is not None
        ]
        named = "" if one.memory_id is None else escape(one.memory_id) + "  "
        line = " " * 11 + named + ", ".join(facts)
        lines += (
            [line] if len(line) <= screen.width else screen.fill([named.strip()] * bool(named) + facts, 11)
        )
    if len(found) > SHOWN and not screen.verbose:
        lines.append(" " * 11 + f"…  {number(len(found) - SHOWN)} more: --verbose")
    if severity > Severity.INFO or screen.verbose:
        lines += [" " * 11 + text for text in dict.fromkeys(one.help for one in found if one.help)]
    return lines


def fact_file_json(report: FactReport, exit_code: int) -> str:
    """The same for machines: ids, never what a fact says."""
    body: dict[str, Any] = {
        "path": report.path,
        "table": report.table,
        "file": {
            "size_bytes": report.file.size_bytes,
            "journal_mode": report.file.journal_mode,
            "problem": None if report.file.problem is None else report.file.problem.detail,
        },
        "counts": dict(report.counts),
        "checked": list(report.checked),
        "not_checked": [not_checked(n) for n in report.not_checked],
        "findings": [finding(f) for f in report.findings],
        "notes": list(report.notes),
        "at": shown(report.now),
        "exit_code": exit_code,
    }
    return dump("fact-file", body)
