"""`--leave-link`: a symbolic link at the place that a store was moved away from."""

# Paths here are texts, kept as they were written.
# ruff: noqa: PTH115, PTH120

from __future__ import annotations

import os
from pathlib import Path

from mem0audit.core.errors import Failed, Refused
from mem0audit.core.links import LinkPlan, refuse_wiping_through_link, tmpfiles_line
from mem0audit.core.restore import Half
from mem0audit.core.words import shell_word
from mem0audit.install.host import Host, seen_through
from mem0audit.install.places import look_at
from mem0audit.operations.targets import is_mount_point
from mem0audit.stores import exchange


def plan_link(
    half: Half, old: str, new: str, host: Host, *, mem0: str | None = None, on_disk: bool | None = None
) -> LinkPlan:
    """The link that would lead from `old` to `new` (absolute) once the store is there; to be asked before the move.

    `mem0` is the agent's version and `on_disk` what its configuration says (None: not known); both count for the
    vector store alone: SQLite follows a link to a log in every version. Raises Refused where the agent would not start
    with a link there, or would not see it.
    """
    if half == "vectors":
        refuse_wiping_through_link(mem0, on_disk)
    inside = seen_through(old, host)
    if inside[0] is not None:
        bind = shell_word(f"{new}:{inside[1]}")
        raise Refused(
            f"--leave-link: {old} lies in a /tmp or a container of the agent's own, which is made anew at each start",
            f"give it the new folder at the old path: BindPaths={bind} in its unit, -v {bind} for a container",
        )
    place = look_at(old, host)
    if place.container_layer:
        raise Refused(
            f"--leave-link: {old} lies in a container's own layer: a link there goes with the container",
            f"mount the new folder at the old path instead: -v {shell_word(f'{new}:{old}')}",
        )
    if is_mount_point(old, host):
        raise Refused(
            f"--leave-link: {old} is a mount point, which no link can replace",
            "mount the new folder there instead",
        )
    if place.link_target is not None and place.link_target != new:
        raise Refused(
            f"--leave-link: {old} is a link already",
            f"let it lead to the new place: ln -sfn {shell_word(new)} {shell_word(old)}",
        )
    if not os.access(os.path.dirname(old), os.W_OK | os.X_OK):
        raise Refused(f"--leave-link: you cannot write to {os.path.dirname(old)}", "run it as its owner")
    gone = place.volatile or place.cleaned is not None
    plain = old.isprintable() and new.isprintable()
    return LinkPlan(old, new, tmpfiles_line(old, new) if gone and plain else None)


def leave_link(plan: LinkPlan) -> bool:
    """Makes the link, after the store was moved; False where it is there already. Raises Failed: the move stands."""
    try:
        if os.path.islink(plan.path) and os.readlink(plan.path) == plan.target:  # noqa: PTH114
            return False
        exchange.make_link(Path(plan.path), plan.target)
    except FileExistsError:
        raise Failed(
            f"{plan.path}: something is there again, so no link was left: the agent has started at the old place",
            "stop it, look at what it wrote (mem0audit status), and change its configuration",
        ) from None
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise Failed(f"{plan.path}: no link was left: {why}", "the stores are moved all the same") from None
    return True
