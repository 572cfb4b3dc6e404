"""Pages of group L: where the stores are."""

# ruff: noqa: S108

from __future__ import annotations

from mem0audit.core.model import Severity
from mem0audit.core.pages import COPY_WITH_PYTHON, PAIR_FIRST, TAKE_PAIR, Rule, commands

_MOVE = "\n".join(
    (
        "Then move for good, with one command, run twice. With the agent running it takes a verified pair beside the "
        "new folder, and says how to stop the agent; with the agent stopped it moves what is there by then, proven "
        "row by row, and keeps the old folder under a dated name:",
        commands("mem0audit relocate --to /srv/agent/qdrant"),
        "Where the log lies in such a place too, add --with-history: it goes to history.db beside that folder.",
    )
)
"""How a store gets to a place that lasts."""

_NEW_PATHS = "\n".join(
    (
        "In what the agent gives to Memory.from_config, name durable paths:",
        commands(
            '"vector_store": {"provider": "qdrant",',
            '    "config": {"path": "/srv/agent/qdrant", "on_disk": True}},',
            '"history_db_path": "/srv/agent/history.db",',
        ),
        "on_disk keeps mem0 1.0.7 and older from deleting that folder at every start; newer ones do not "
        "mind it.",
    )
)

RULES = (
    Rule(
        code="L101",
        name="volatile-filesystem",
        severity=Severity.CRITICAL,
        summary="A store lies in memory, not on a disk: the next reboot, power cut or unmount loses it.",
        comes_about="mem0's default folder is /tmp/qdrant in every version to 2.2.1, and /tmp is a tmpfs on "
        "many systems (Fedora, Arch, Debian 13, Ubuntu from 24.10 on). MEM0_DIR or a path under /dev/shm or "
        "/run does the same, and so does `tmpfs:` in a compose file.",
        looks_like="The mount under the folder is tmpfs or ramfs. history.db in the home usually survives "
        "what takes the vectors, so afterwards the log lists memories that are nowhere (D302, L106).",
        to_do="\n".join(
            (
                "Nothing is lost yet. Do not reboot and do not stop the agent before a copy is out: a tmpfs "
                "of a container, or in a private /tmp, goes when its process stops.",
                TAKE_PAIR,
                _MOVE,
                _NEW_PATHS,
            )
        ),
        not_this="A disk folder that is emptied at boot is L102; a container's own layer is L103.",
    ),
    Rule(
        code="L102",
        name="cleaned-directory",
        severity=Severity.HIGH,
        summary="systemd-tmpfiles empties the folder that this store is in, at boot or by age.",
        comes_about="Debian and its relatives ship `D /tmp`, which empties /tmp at boot, and many "
        "distributions an age for /tmp (10 days) and /var/tmp (30 days). An age rule takes single files that "
        "nobody touched for so long: a quiet collection can lose storage.sqlite and keep meta.json.",
        looks_like="A D, d, q, Q, e or R line of /etc/tmpfiles.d, /run/tmpfiles.d or /usr/lib/tmpfiles.d "
        "covers the path; the finding prints the line and its file.",
        to_do="\n".join(
            (
                TAKE_PAIR,
                _MOVE,
                _NEW_PATHS,
                "Until then, against an age rule only, this keeps the folder out:",
                commands("echo 'x /tmp/qdrant' > /etc/tmpfiles.d/mem0.conf"),
                "It does not help against D and R lines: those remove the folder at boot whatever an x line "
                "says (seen with systemd 252).",
            )
        ),
    ),
    Rule(
        code="L103",
        name="container-layer",
        severity=Severity.HIGH,
        summary="A store lies in the container's own layer: removing or recreating the container deletes it.",
        comes_about="No volume or bind mount covers the path. mem0's defaults (/tmp/qdrant and "
        "~/.mem0/history.db) are in the layer unless somebody mounted something there. `docker compose up` "
        "with a new image, `docker rm`, `--rm` and a rescheduled pod all recreate the container.",
        looks_like="The mount under the path is the container's overlay root.",
        to_do="\n".join(
            (
                "Restarting the container keeps the layer, removing it does not: take both stores out before "
                "anything else, with the agent running. From the host, with the container's name and paths:",
                commands(
                    "docker exec CONTAINER mkdir -p /tmp/copy",
                    "docker exec CONTAINER cp /tmp/qdrant/meta.json /tmp/copy/meta.json",
                    "docker exec CONTAINER "
                    + COPY_WITH_PYTHON.replace(
                        "SOURCE", "/tmp/qdrant/collection/mem0/storage.sqlite"
                    ).replace("TARGET", "/tmp/copy/mem0.sqlite"),
                    "docker exec CONTAINER "
                    + COPY_WITH_PYTHON.replace("SOURCE", "/root/.mem0/history.db").replace(
                        "TARGET", "/tmp/copy/history.db"
                    ),
                    "install -d -m 700 /srv/backup/mem0",
                    "docker exec CONTAINER tar -C /tmp/copy -cf - . | tar -C /srv/backup/mem0 -xf -",
                    "docker exec CONTAINER rm -r /tmp/copy",
                ),
                "and the same for mem0_entities, if it is there, last. A plain copy of a running store, "
                "docker cp too, is damaged more often than not. mem0.sqlite is the file that belongs at "
                "qdrant/collection/mem0/storage.sqlite beside qdrant/meta.json.",
                "Then give both paths a volume, put the copies into it, and recreate the container.",
                "With root on the host it is one command, run twice in a minute in which nothing is written, with the "
                "agent's PID on the host and a folder that the container mounts from then on. The first run takes the "
                "pair, and the second, after `docker stop`, puts it at the new place:",
                commands(
                    "sudo mem0audit relocate --history /proc/PID/root/root/.mem0/history.db \\\n"
                    "      --qdrant-path /proc/PID/root/tmp/qdrant --to /srv/agent/qdrant --with-history"
                ),
            )
        ),
        not_this="A tmpfs inside the container is L101. One store in the layer, the other on a volume: L113.",
    ),
    Rule(
        code="L104",
        name="private-tmp",
        severity=Severity.HIGH,
        summary="The agent sees another /tmp than you do, and systemd deletes it when the agent stops.",
        comes_about="The unit has PrivateTmp=yes (many packaged and hardened units have), so its /tmp and "
        "/var/tmp are folders of its own; or the agent runs in a container. What you see at the same path is "
        "another folder, or none.",
        looks_like="The process that has the store open lives in another mount namespace, with another /tmp.",
        to_do="\n".join(
            (
                "Do not stop or restart the unit: that deletes its /tmp, and the store with it. Take both "
                "stores out first, as root, with the agent running (the finding has the PID):",
                commands(
                    "sudo mem0audit snapshot create --history ~/.mem0/history.db \\\n"
                    "      --qdrant-path /proc/PID/root/tmp/qdrant --to /srv/backup/mem0"
                ),
                "The log by such a path too, if it lies in the agent's /tmp. Where that is refused (a log above 2 GB), "
                "by hand: enter the agent's view of the files:",
                commands("nsenter --target PID --mount"),
                "and in the shell that this opens:",
                commands(
                    "mkdir -p /tmp/copy/qdrant/collection/mem0",
                    "cp /tmp/qdrant/meta.json /tmp/copy/qdrant/meta.json",
                    "sqlite3 -readonly -cmd '.timeout 30000' "
                    "/tmp/qdrant/collection/mem0/storage.sqlite "
                    "\"VACUUM INTO '/tmp/copy/qdrant/collection/mem0/storage.sqlite'\"",
                    "exit",
                ),
                "and then, outside:",
                commands(
                    "install -d -m 700 /srv/backup/mem0",
                    "cp -R /proc/PID/root/tmp/copy/. /srv/backup/mem0",
                    "rm -r /proc/PID/root/tmp/copy",
                    "sqlite3 -readonly -cmd '.timeout 30000' ~/.mem0/history.db "
                    "\"VACUUM INTO '/srv/backup/mem0/history.db'\"",
                ),
                "The last line with the history that the agent uses, inside if it lies in its /tmp too. Never "
                "open a database as /proc/PID/root/…: SQLite follows that link to your own file of the same "
                "name.",
                "Then move it out for good, as root, in a minute in which the agent is idle:",
                commands(
                    "sudo mem0audit relocate --history ~/.mem0/history.db \\\n"
                    "      --qdrant-path /proc/PID/root/tmp/qdrant --to /srv/agent/qdrant --wait"
                ),
                "It takes another verified pair, says how to stop the agent, and as soon as that has stopped, and its "
                "/tmp is gone, puts the pair at the new place. Only then start the agent, with the new path.",
                _NEW_PATHS,
            )
        ),
    ),
    Rule(
        code="L105",
        name="default-path",
        severity=Severity.LOW,
        summary="The vectors are in mem0's default /tmp/qdrant; nothing is wrong with it yet.",
        comes_about="No path is configured: every mem0 version to 2.2.1 then takes /tmp/qdrant. Whether /tmp "
        "survives a reboot is the system's choice, and changes with upgrades (a tmpfs from Ubuntu 24.10 on).",
        looks_like="The folder is /tmp/qdrant, on a disk, and no cleaning rule was found.",
        to_do="\n".join((PAIR_FIRST, _MOVE, _NEW_PATHS)),
        not_this="Silent where L101 or L102 say worse of the same folder.",
    ),
    Rule(
        code="L106",
        name="store-missing",
        severity=Severity.CRITICAL,
        summary="The log has live memories, and the vector store's folder or its collection is not there.",
        comes_about="The folder was in /tmp and is gone since a reboot or a clean-up; the agent uses another "
        "path, MEM0_DIR, HOME or collection name than this audit; the agent's /tmp is a private one (L104); "
        "a volume was mounted at the wrong place.",
        looks_like="history.db ends in ADD or UPDATE for some memories, and no folder, or no collection of "
        "that name, is at the path.",
        to_do="\n".join(
            (
                "Before you conclude that it is lost, look where the agent really keeps it:",
                commands("mem0audit status", "sudo mem0audit status"),
                "If it is nowhere: restore the newest copy of both stores, with the agent stopped "
                "(`mem0audit snapshot restore NAME --in-place`). Without a copy the texts are in the log still. "
                "Keep a copy of it before the agent starts again:",
                commands(
                    "sqlite3 -readonly -cmd '.timeout 30000' ~/.mem0/history.db "
                    "\"VACUUM INTO '/srv/backup/history.db'\"",
                    "mem0audit log",
                    "mem0audit show MEMORY_ID",
                ),
                "Each text can be added again with memory.add(text, user_id=…, infer=False). Whose it was, "
                "the log does not say in any version.",
            )
        ),
        not_this="The folder is there and single memories are missing: D302.",
    ),
    Rule(
        code="L107",
        name="several-stores",
        severity=Severity.MEDIUM,
        summary="There is more than one store that could belong to this log: you may be looking at the wrong "
        "one.",
        comes_about="The agent ran once as another user, with another HOME or MEM0_DIR, or with a relative "
        "path from another working directory; or an old /tmp/qdrant was left after a move. MEM0_DIR is read "
        "when mem0 is imported: setting it later does nothing.",
        looks_like="Another history.db or another folder with a meta.json, of the same user, that no process "
        "has open.",
        to_do="\n".join(
            (
                "See which one is in use, and what the other one holds (the finding prints its command):",
                commands("mem0audit status"),
                "Do not delete the other one before you know that nothing of it is missing in the first. "
                "Name absolute paths in the configuration.",
            )
        ),
    ),
    Rule(
        code="L108",
        name="shared-store",
        severity=Severity.HIGH,
        summary="One log serves two vector stores, or two installs share one folder.",
        comes_about="history.db is one per MEM0_DIR, whatever collection and folder are configured: every "
        "program of the same user without its own history_db_path writes into it. Deletions, reset() and, "
        "with mem0 2.x, the chat messages of one program then reach the other: a reset() of one empties the "
        "log of both, and the prompt of one can hold the last messages of the other.",
        looks_like="Ids of this log live in another store that was found, or a collection in this folder "
        "holds memories that this log has never heard of.",
        to_do="\n".join(
            (
                "Nothing is lost. Give each program its own log and its own folder:",
                commands(
                    '"history_db_path": "/srv/agent/history.db",',
                    '"vector_store": {"provider": "qdrant", "config": {"path": "/srv/agent/qdrant"}},',
                ),
                "The rows so far stay together in the old file. Audit each program with its own paths.",
            )
        ),
    ),
    Rule(
        code="L109",
        name="network-filesystem",
        severity=Severity.MEDIUM,
        summary="A store is on a network file system, where the locks that protect it may not hold.",
        comes_about="SQLite's and Qdrant's locks rely on the server and the mount options (NFS, SMB, some "
        "FUSE). Where they do not hold, two agents can open the store at once, and a commit can be torn.",
        looks_like="The mount under the path is nfs, cifs, 9p, sshfs or the like.",
        to_do="\n".join(
            (
                PAIR_FIRST,
                "Then put both stores on a local disk, or the vectors into a Qdrant server. Let one process "
                "alone use them meanwhile.",
                commands("mem0audit relocate --to /srv/agent/qdrant --with-history"),
            )
        ),
    ),
    Rule(
        code="L110",
        name="wiped-at-start",
        severity=Severity.CRITICAL,
        summary="The agent's mem0 deletes the vector folder whenever a Memory is made: the next start empties "
        "it.",
        comes_about="mem0 0.0.16 to 1.0.7 remove the local folder before opening it unless on_disk is true, "
        "and its default is false; 0.0.8 to 0.0.15 remove it always. 1.0.8 was the first that does not. A "
        "second script or a Python prompt that makes a Memory does it too, under the running agent, and a "
        "start that fails afterwards (no API key) has already done it.",
        looks_like="The agent's mem0 version is in that range, the vectors are in a local folder, and on_disk "
        "is not true in the configuration. Where the version is unknown this is not checked.",
        to_do="\n".join(
            (
                "Do not restart the agent, and start nothing else that uses mem0, before a copy is out.",
                TAKE_PAIR,
                "Then, before the next start, set on_disk (works at once, except in 0.0.8 to 0.0.15) and, "
                "better, upgrade mem0 to 1.0.8 or later:",
                commands('"vector_store": {"provider": "qdrant", "config": {"path": "…", "on_disk": True}},'),
                "Never go by way of mem0 0.1.100 to 0.1.106: they hang on an older log and strand it (I205).",
            )
        ),
        not_this="Memories that are missing already: D302, and the incident above the findings.",
    ),
    Rule(
        code="L111",
        name="readable-by-others",
        severity=Severity.HIGH,
        summary="Other users of this machine can read the memories, or can replace the files.",
        comes_about="mem0 makes folders 0755 and files 0644. Under a home of mode 0700 nobody reaches them; "
        "in /tmp, /srv or a home of mode 0755 everybody can. A parent folder that others may write to, "
        "without the sticky bit, lets them put another store in its place.",
        looks_like="The files are readable by others and every parent folder can be searched by them; or a "
        "parent is writable for them.",
        to_do="\n".join(
            (
                "As the owner of the files; the agent may keep running if it runs as that owner:",
                commands("chmod -R go-rwx ~/.mem0 /tmp/qdrant"),
                "A store in a folder that others may change belongs elsewhere: see L105.",
            )
        ),
        not_this="Open modes under a closed home: nobody can reach them, and nothing is said.",
    ),
    Rule(
        code="L112",
        name="disk-nearly-full",
        severity=Severity.MEDIUM,
        summary="There is less free space than one copy of both stores needs.",
        comes_about="The disk filled up. mem0's own writes fail on a full disk as well, half-way: the vector "
        "is stored and the log row is not.",
        looks_like="No durable file system of the install has room for one copy.",
        to_do="\n".join(
            (
                "Make room, or copy to another disk. Do not delete anything in the stores to win space: "
                "SQLite files do not shrink when rows go.",
                commands("mem0audit status", "df -h"),
            )
        ),
        threshold="Free space is less than 1.1 times the size of history and vectors together.",
    ),
    Rule(
        code="L113",
        name="split-lifetimes",
        severity=Severity.HIGH,
        summary="One store outlives what the other does not: some day they will not be a pair any more.",
        comes_about="One of the two got a volume and the other was forgotten: usually the vectors are on a "
        "volume or a server, and ~/.mem0/history.db is in the container's layer.",
        looks_like="One path is in the container's own layer, the other is mounted from outside.",
        to_do="\n".join(
            (
                "Removing the container loses the one in the layer: take it out first, as "
                "`mem0audit explain L103` shows.",
                "Then give both the same volume, and set history_db_path into it.",
            )
        ),
        not_this="Silent where L101 or L102 speak of one of the stores.",
    ),
)
