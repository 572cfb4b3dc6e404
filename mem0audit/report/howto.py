"""How-to pages: what somebody reads with a problem before them. `mem0audit help` lists them.

A paragraph a line; a line that begins with four spaces is to be copied, and stands as it is; one without an end mark
and without spaces before it is a heading. What a page says of mem0, systemd and containers was tried: see each.
"""

# ruff: noqa: E501 (a paragraph is one line)

from __future__ import annotations

import re

from mem0audit.report import questions
from mem0audit.report.screen import Screen, table

# Tried with mem0 1.0.7 and 2.2.1. Lambda: a read-only root, no home, a /tmp of its own, a bind mount for EFS; mem0 without
# MEM0_DIR fails on the read-only file system, with it under /tmp it forgets, on the mount it keeps, and a second one
# beside it fails. Containers: an overlay over the root, thrown away between two starts; a volume; the store mounted at
# the old path (2.2.1 opens it; 1.0.7 without on_disk deletes every file in it, then fails with EBUSY on the folder).
# PrivateTmp and BindPaths: a mount namespace with another /tmp, thrown away between two starts; a link in the host's
# /tmp is not seen there. Units: systemd-analyze verify (252). No Docker daemon, no systemd and no Lambda were at hand.
_RELOCATE = """\
In every case the same three steps. The first run takes a verified pair with the agent running, and says how to stop it; the second, with the agent stopped, moves both stores and prints what the agent's configuration must say:
    mem0audit relocate --to /srv/agent/qdrant --with-history
    mem0audit relocate --to /srv/agent/qdrant --with-history --update-config --config mem0.yaml
    mem0audit status
The last says whether the agent really works at the new place, or started again at the old one.
The folder that mem0 is given is vector_store.config.path, and no environment variable says it; the log is history_db_path, or history.db in MEM0_DIR. mem0 expands neither ~ nor $NAME in them. Before mem0 1.0.8, on_disk: true must stand beside the path: without it the folder is deleted at every start.
A systemd service
A unit with PrivateTmp=yes has a /tmp of its own, deleted when it stops: do not stop it before the first run, which root makes through the process:
    sudo mem0audit relocate --history /home/agent/.mem0/history.db --qdrant-path /proc/PID/root/tmp/qdrant \\
        --to /var/lib/agent/qdrant --with-history
Then let the unit have a folder that lasts, and give its configuration the paths that were printed (systemctl edit agent):
    [Service]
    StateDirectory=agent
    StateDirectoryMode=0700
    Environment=MEM0_DIR=/var/lib/agent
StateDirectory= makes /var/lib/agent for the unit's user, also under ProtectSystem=strict. Where the code cannot change yet, from mem0 1.0.8 on, the new folder can be shown at the old path; a link in /tmp (--leave-link) is not seen under PrivateTmp:
    BindPaths=/var/lib/agent/qdrant:/tmp/qdrant
Docker
What a container writes outside of volumes goes with it (docker rm, --rm, compose down), and a tmpfs: at each stop. From the machine, while it runs, PID being its process (docker inspect -f '{{.State.Pid}}' agent):
    sudo mem0audit relocate --history /proc/PID/root/root/.mem0/history.db \\
        --qdrant-path /proc/PID/root/tmp/qdrant --to /srv/agent/qdrant --with-history
Then stop it, run the same command again, and start it with that folder as a volume, under the same path inside, so that the printed lines hold as they stand:
    docker run -v /srv/agent:/srv/agent -e MEM0_DIR=/srv/agent ... IMAGE
The files keep their owner: a container that runs as another user needs that one (docker run --user, or chown). Only one container at a time can have an embedded store open.
Never mount the new folder at the old path (-v /srv/agent/qdrant:/tmp/qdrant) for mem0 1.0.7 and older without on_disk: true: it deletes every file in it at start, through the mount. From 1.0.8 on that is a way for those who cannot change the code.
Compose
The same, in compose.yaml; a named volume does as well, and survives compose down, not compose down -v:
    services:
      agent:
        environment:
          MEM0_DIR: /srv/agent
        volumes:
          - /srv/agent:/srv/agent
Lambda
/tmp is the only place that a function can write to, each of its environments has another one, and all of them go without a word. MEM0_DIR under /tmp makes mem0 start, and forget. Mount an EFS access point (/mnt/memory), and say both:
    MEM0_DIR=/mnt/memory/mem0
    config = {"vector_store": {"provider": "qdrant", "config": {"path": "/mnt/memory/qdrant", "on_disk": True}}}
An embedded store takes one process: a second environment beside the first fails with "already accessed by another instance", so set the reserved concurrency to 1. With more than that, a Qdrant server is the answer. What lies in a function's /tmp can be taken out by the function alone: let it copy its own files there, once, before that is changed.
"""

# The rounding, what live leaves out, and that OLD stays hidden were tried with mem0 2.2.1; so was each command.
_LIFETIMES = """\
mem0 writes a fact once and repeats it for ever. Two faults, two cures: what decays gets an end, what drifts gets a review.
What decays
Travel, "this week", a trial, an offer: it is true until a day that is known. Say it when it is added, or later:
    memory.add("…", user_id="alice", expiration_date="2026-12-05")
    mem0audit ledger expire MEMORY_ID --in 7d
Seven days do for travel and "this week"; about its release cadence for a software version. There is no default: whoever cannot say how long has a fact that drifts. mem0 hides it from the end of that day in UTC on, so up to a day late and never early, and deletes nothing; it is still in both stores (T701), and before mem0 2.0.10 it is not even hidden.
What drifts
A preference, a convention, a port, an address: true until somebody changes it, and nobody tells mem0. It gets no end, for an end would remove what is still true. It is asked about, the oldest confirmation first:
    mem0audit review
What cannot be looked up anywhere cannot be confirmed, only deleted. Put down where a memory comes from (a file, a URL, a command, a message) while it is known:
    mem0audit ledger source MEMORY_ID docs/ports.md
What was said anew
mem0 2.x only adds: the old fact stays beside the new one, and both are retrieved. Say which is true, and let the agent ask through live, which leaves the other out:
    mem0audit ledger supersede OLD_ID NEW_ID
    found = mem0audit.live(memory.search("…", filters={"user_id": "alice"}), memory)
Delete the newer one through mem0audit, and the older goes with it, first. Deleted by the agent alone, the older is what mem0 answers from: an audit says so (T705), and live still leaves it out.
Can a wrong fact be detected?
No. A wrong fact that was stored looks like a right one: the same words, the same vector, the same log. What can be seen is around it: that its source is not known, that nobody confirmed it for long, that another memory close to it says something else, that it was changed behind mem0's back (D310). Whether it is true is decided by whoever can look it up, a person or an agent that can read the repository:
    mem0audit review --format json --text
    mem0audit review confirm MEMORY_ID --source docs/ports.md
"""

PAGES = {
    "relocate": ("moving both stores to a place that lasts: systemd, Docker, compose, Lambda", _RELOCATE),
    "came-back": ("I deleted it, and it came back", questions.CAME_BACK),
    "by-hand": ("may I edit by hand while it runs?", questions.BY_HAND),
    "on-server": ("what a Qdrant server keeps of deleted memories, and how to clear it", questions.ON_SERVER),
    "wrong-facts": ("can a wrong fact be detected?", questions.WRONG),
    "lifetimes": ("how long a memory should live, and whether a wrong one can be detected", _LIFETIMES),
}
"""Name of a page: what it is about, and its text."""


def list_text(screen: Screen) -> str:
    """The pages there are, and the other helps."""
    rows = [[f"{screen.program} help {name}", about] for name, (about, _) in PAGES.items()]
    rows += [
        [f"{screen.program} explain CODE", "the page of a finding"],
        [f"{screen.program} --help", "the commands"],
    ]
    return "\n".join(table(rows)) + "\n"


def page_text(name: str, screen: Screen) -> str:
    """A page: its title, then prose as wide as the screen and lines to copy as they stand."""
    about, text = PAGES[name]
    lines = [screen.bold(f"{name}: {about}"), ""]
    for line in text.splitlines():
        if line.startswith("    "):
            lines.append(screen.ours(line))
        elif re.search(r"[.:]$", line):
            lines += screen.wrap(line)
        else:
            lines += ["", screen.bold(line)]
    return "\n".join(lines) + "\n"
