"""Pages of group B: snapshots."""

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import TAKE_PAIR, Rule, commands

EVERY_NIGHT = "\n".join(
    (
        "And every night from then on (it prints a systemd service and timer, and how to set them up):",
        commands("mem0audit schedule snapshot --to /srv/backup/mem0"),
    )
)

RULES = (
    Rule(
        code="B901",
        name="no-snapshot",
        severity=Severity.LOW,
        summary="There is no snapshot of this install.",
        comes_about="mem0 and embedded Qdrant make none.",
        looks_like="No folder for snapshots is known (`snapshot_dir` in mem0audit.toml), or none of this install lies "
        "in it.",
        to_do="\n".join((TAKE_PAIR, EVERY_NIGHT)),
    ),
    Rule(
        code="B902",
        name="old-snapshot",
        severity=Severity.MEDIUM,
        summary="The newest snapshot is older than it should be.",
        comes_about="The job that takes them stopped or fails.",
        looks_like="The newest good snapshot's time is before the configured age.",
        to_do="\n".join(
            (
                "When a scheduled one last ran, how it ended, and when it runs next:",
                commands("mem0audit schedule status"),
                TAKE_PAIR,
                EVERY_NIGHT,
            )
        ),
    ),
    Rule(
        code="B903",
        name="damaged-snapshot",
        severity=Severity.HIGH,
        summary="A snapshot does not verify: it cannot be relied on.",
        comes_about="A disk fault, a partial copy, or a file that was changed afterwards.",
        looks_like="A manifest that does not read, or files that are missing, more, or of another size than it says.",
        to_do="\n".join(
            (
                "An audit looks at manifests, names and sizes. This reads every byte, and names each file that is "
                "wrong:",
                commands("mem0audit snapshot verify --to /srv/backup/mem0"),
                "Keep the damaged one until a good one exists, then take a new pair:",
                commands("mem0audit snapshot create --to /srv/backup/mem0"),
            )
        ),
    ),
    Rule(
        code="B904",
        name="unsettled-snapshot",
        severity=Severity.LOW,
        summary="The snapshot was taken while the agent never held still: single differences may be its own.",
        comes_about="mem0 writes the two stores one after the other, and the agent wrote without a pause.",
        looks_like="The manifest says that the pair is not settled.",
        to_do="\n".join(
            (
                "It is safe to have. Take another at a quieter minute, and see which are settled:",
                commands(
                    "mem0audit snapshot create --to /srv/backup/mem0",
                    "mem0audit snapshot list --to /srv/backup/mem0",
                ),
                "A pair taken by hand is always of this kind.",
            )
        ),
    ),
    Rule(
        code="B905",
        name="snapshot-with-erased",
        severity=Severity.HIGH,
        summary="A snapshot still holds memories of somebody who was erased.",
        comes_about="It was taken before the erasure; by `delete --snapshot-for` on purpose, and then the first "
        "command after its time removes it.",
        looks_like="A scope recorded as erased has memories in the snapshot.",
        to_do="\n".join(
            (
                "A restore of it erases them in the copy first, or is refused where no mem0 may do that. Until the "
                "snapshot is gone it can be read, though. Take and verify a pair from after the erasure, then remove "
                "the one that has them, with what else was copied from it:",
                commands(
                    "mem0audit snapshot create --to /srv/backup/mem0",
                    "mem0audit snapshot verify --to /srv/backup/mem0",
                    "rm -r /srv/backup/mem0/NAME",
                ),
            )
        ),
    ),
    Rule(
        code="B906",
        name="interrupted-operation",
        severity=Severity.HIGH,
        summary="A restore or a move was cut off before it was finished.",
        comes_about="A kill, a crash or a power cut while the stores were exchanged.",
        looks_like="A hidden folder .history.db.mem0audit-restoring or .qdrant.mem0audit-restoring beside the "
        "stores (in the folder, where that is a mount point), with intent.json in it. One store may be the "
        "restored one and the other still the old one. Of a move: .NAME.mem0audit-relocating beside the new "
        "folder; a store may have its new name, and the old one its dated name already. Of a move to a server: "
        ".history.db.mem0audit-to-server beside the log; some of the points are on that server, and the old store is "
        "as it was.",
        to_do="\n".join(
            (
                "Keep the agent stopped. This says how far it came, and then finishes it or takes it back:",
                commands(
                    "mem0audit snapshot restore --in-place --dry-run", "mem0audit snapshot restore --in-place"
                ),
                "Of a move, the same relocate as before does it; the report and status print it:",
                commands("mem0audit relocate --to DIR", "mem0audit relocate --to-url URL"),
                "Nothing that was there is lost: it is in that folder, or beside the stores under a dated name.",
            )
        ),
    ),
    Rule(
        code="B907",
        name="unpaired-backup",
        severity=Severity.MEDIUM,
        summary="The halves of this backup are from different times: restored, it brings back deleted memories "
        "and loses newer ones.",
        comes_about="Two jobs copy the two stores at different hours, or one of them failed.",
        looks_like="The log of the backup is newer or older than its vectors.",
        to_do="\n".join(
            (
                "This says how far its halves are apart, and what a restore would bring back and lose (it takes any "
                "backup made with cp, rsync or tar too):",
                commands("mem0audit snapshot verify /backup/monday"),
                "Take a pair as in B901: with a newer pair beside it, such a backup is no longer what a restore would "
                "use, and this finding ends.",
            )
        ),
    ),
)
