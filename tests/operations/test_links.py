"""A link at the old place: made only where the agent starts with it, and made again at boot."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mem0audit.core.errors import Failed, Refused
from mem0audit.core.links import LinkPlan, tmpfiles_command, tmpfiles_line
from mem0audit.install.host import Host, this_host
from mem0audit.operations.links import leave_link, plan_link


@pytest.fixture
def host(own_home: Path) -> Host:
    return replace(this_host(), home=str(own_home))


def test_a_link_leads_to_the_new_place(durable: Path, host: Host) -> None:
    old, new = durable / "old", durable / "new"
    old.mkdir()
    plan = plan_link("vectors", str(old), str(new), host, mem0="2.2.1")
    assert plan == LinkPlan(str(old), str(new), None)  # the place lasts: no line for the boot
    with pytest.raises(Failed, match="has started at the old place"):
        leave_link(plan)
    old.rename(new)
    assert leave_link(plan) is True
    assert old.readlink() == new and old.lstat().st_uid == durable.stat().st_uid
    assert leave_link(plan) is False
    with pytest.raises(Refused, match="is a link already"):
        plan_link("vectors", str(old), "/elsewhere", host, mem0="2.2.1")


@pytest.mark.parametrize(
    ("mem0", "on_disk", "why"),
    [
        ("0.0.8", True, "deletes its folder at every start"),
        ("0.1.114", None, "deletes its folder at every start"),
        ("1.0.7", False, "deletes its folder at every start"),
        (None, None, "is not known"),
        (None, False, "is not known"),
        ("1.0.7", True, None),
        ("1.0.8", None, None),
        ("2.2.1", False, None),
    ],
)
def test_not_below_the_versions_that_start_with_it(
    mem0: str | None, on_disk: bool | None, why: str | None, durable: Path, host: Host
) -> None:
    old = durable / "old"
    old.mkdir()
    if why is None:
        assert plan_link("vectors", str(old), "/n", host, mem0=mem0, on_disk=on_disk).path == str(old)
        return
    with pytest.raises(Refused, match=why):
        plan_link("vectors", str(old), "/n", host, mem0=mem0, on_disk=on_disk)
    # SQLite follows a link to a log, whatever mem0 it is
    assert plan_link("history", str(old), "/n", host, mem0=mem0, on_disk=on_disk).target == "/n"


def test_not_in_a_place_that_is_made_anew(host: Host) -> None:
    with pytest.raises(Refused, match="of the agent's own") as refused:
        plan_link("vectors", f"/proc/{os.getpid()}/root/tmp/qdrant", "/srv/q", host, mem0="2.2.1")
    assert refused.value.hint is not None and "BindPaths=/srv/q:/tmp/qdrant" in refused.value.hint


@pytest.mark.root
def test_from_a_tmpfs_with_the_line_that_makes_it_again(durable: Path, host: Host) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    point = durable / "memory"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(point)], check=True)
    try:
        with pytest.raises(Refused, match="is a mount point"):
            plan_link("vectors", str(point), "/srv/q", host, mem0="2.2.1")
        plan = plan_link("vectors", str(point / "q"), "/srv/q", host, mem0="2.2.1")
    finally:
        subprocess.run(["umount", str(point)], check=True)
    assert plan.tmpfiles == f"L {point}/q - - - - /srv/q"
    assert tmpfiles_command(plan.tmpfiles).endswith("| sudo tee -a /etc/tmpfiles.d/mem0.conf")


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="no systemd-tmpfiles")
@pytest.mark.root
def test_systemd_makes_that_very_link_and_keeps_it(durable: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    names = ["plain", "with space", 'q"uo\\te', "pc%nt", "ümläut", "a'b#c"]
    place = durable / "cleaned"
    place.mkdir()
    lines = [tmpfiles_line(f"{place}/{name}", f"{durable}/to {name}") for name in names]
    conf = durable / "links.conf"
    conf.write_text("\n".join([f"q {place} 1777 root root 1s", *lines]) + "\n")
    (place / names[0]).mkdir()  # an agent was faster: what it began is not deleted
    (place / names[0] / "meta.json").touch()
    subprocess.run(["systemd-tmpfiles", "--create", str(conf)], check=True)
    assert (place / names[0] / "meta.json").exists()
    for name in names[1:]:
        assert os.readlink(place / name) == f"{durable}/to {name}"
        os.utime(place / name, (1, 1), follow_symlinks=False)
    other = place / "other"
    other.symlink_to("/nowhere")
    os.utime(other, (1, 1), follow_symlinks=False)
    subprocess.run(["systemd-tmpfiles", "--clean", str(conf)], check=True)
    assert all((place / name).is_symlink() for name in names[1:])
