"""The audit of a plain SQLite store of facts that is not mem0's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mem0audit.core.errors import CouldNotRead
from mem0audit.core.factfile import FactReport, judge
from mem0audit.core.model import NotChecked
from mem0audit.install.host import Host
from mem0audit.stores.factfile import read_fact_file


def audit_fact_file(path: str, host: Host) -> FactReport:
    """What is wrong with the file, beside whoever writes it; it is not changed.

    Raises CouldNotRead where it is not there; any other problem is in the report, as not checked.
    """
    place = Path(path).absolute()
    if not place.exists():
        raise CouldNotRead(f"{path}: not there")
    report = judge(read_fact_file(str(place)), host.now)
    if report.file.hot_journal:
        note = NotChecked(
            "what was being written", "a writer was cut off: the file is as before it", gap=False
        )
        report = replace(report, not_checked=(*report.not_checked, note))
    return report
