"""What a screen may say, and must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mem0audit.core.catalogue import CATALOGUE
from mem0audit.core.erase import Erased, Left
from mem0audit.core.model import (
    Candidate,
    Certainty,
    Incident,
    NotChecked,
    Origin,
    Report,
    SeenSnapshot,
    Snapshots,
)
from mem0audit.core.residue import FileSearch, Residue
from mem0audit.core.scopes import Scope
from mem0audit.report.erase import verdict_text
from mem0audit.report.pages import explain_text
from mem0audit.report.screen import Screen
from mem0audit.report.text import audit_text
from tests.report import installs
from tests.report.installs import CHECKED, NOT_ASKED, SCREENS, finding, place, report


def said(given: object, **screen: object) -> str:
    return audit_text(given, Screen(**screen))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [n for n in SCREENS if n not in ("clean",)])
def test_only_a_clean_install_is_called_agreeing_and_none_safe(name: str) -> None:
    text = said(SCREENS[name]())
    assert "agree" not in text
    assert "clean" not in text.replace("cleaned", "")
    assert "safe" not in text


def test_clean_is_not_said_when_a_place_is_not_known_to_last() -> None:
    unknown = report(places=(place(installs.HISTORY), place("/srv/agent/qdrant", volatile=None)))
    assert "agree." in said(unknown)
    assert "Durable" not in said(unknown)


def test_what_a_server_stands_on_is_not_called_durable() -> None:
    there = replace(installs.install(), vectors=None, server_url=Origin("http://q:6333", "--qdrant-url"))
    text = said(report(install=there, places=(place(installs.HISTORY),)))
    assert "agree. The log is durable. What the server stands on was not looked at." in " ".join(text.split())


def test_before_memories_are_added_back_to_a_server_its_volume_is_asked_about() -> None:
    given = installs.emptied()
    there = replace(given.install, vectors=None, server_url=Origin("http://q:6333", "--qdrant-url"))
    lost = tuple(f for f in given.findings if f.code == "D302")
    text = said(replace(given, install=there, findings=(finding("Q951", path="http://q:6333"), *lost)))
    assert text.index("mem0audit explain Q951") < text.index("mem0audit recover")


def test_agreement_is_not_said_when_the_rules_for_it_were_not_asked_for() -> None:
    text = said(report(checked=("L101", "L102"), not_checked=()))
    assert text.startswith("Nothing found. Durable. 2 rules")


def test_a_gap_is_never_clean() -> None:
    text = said(report(not_checked=(NotChecked("E501", "mem0_entities: damaged"), *NOT_ASKED)))
    assert "agree" not in text
    assert "mem0_entities: damaged" in text


def test_missing_memories_are_not_denied_when_the_log_was_not_read() -> None:
    text = said(installs.could_not_read())
    assert "Whether memories are missing is not known" in text
    assert "None of" not in text


def test_a_restart_is_not_called_harmless_when_the_agents_mem0_is_unknown() -> None:
    quiet = (NotChecked("L110", "the agent's mem0 version is not known", gap=False),)
    text = said(
        report(
            findings=(finding("D304", memory_id="x"),),
            checked=tuple(c for c in CHECKED if c != "L110"),
            not_checked=quiet,
        )
    )
    assert "but not known: whether the agent's mem0 deletes the folder when it starts (L110)." in " ".join(
        text.split()
    )


def test_a_folder_that_nobody_named_may_be_the_wrong_one() -> None:
    gone = (finding("L106", path="/tmp/qdrant"), finding("D302", memory_id="x"))
    lost = Incident("emptied", "it was emptied", Certainty.LIKELY, (), (), ("D302", "L106"))
    by_default = replace(report().install, vectors=Origin("/tmp/qdrant", "mem0's default"))
    text = said(report(install=by_default, findings=gone, incidents=(lost,)))
    assert "The memories are gone, or the agent keeps them elsewhere: /tmp/qdrant, mem0's default," in text
    assert "   mem0audit audit --config FILE\n" in text
    named = replace(by_default, vectors=Origin("/tmp/qdrant", "--qdrant-path"))
    text = said(report(install=named, findings=gone, incidents=(lost,)))
    assert "The memories are gone: /tmp/qdrant is missing" in text
    assert "--config FILE" not in text


def test_two_halves_of_different_installs_are_no_loss() -> None:
    mixed = Incident(
        "two-installs",
        "this log and this vector store belong to two different installs",
        Certainty.CERTAIN,
        (),
        ("Check the paths.",),
        ("D302", "D303"),
    )
    text = said(report(findings=(finding("D302", memory_id="x"),), incidents=(mixed,)))
    assert "gone" not in text
    assert "This log and this vector store belong to two different installs (certain): 1 memory" in text
    assert "Now:   Check the paths." in text


def test_what_lies_behind_a_permission_is_read_as_root_first() -> None:
    text = said(installs.could_not_read(), program_for_root="/home/ann/.local/bin/mem0audit")
    assert f"Now:\n   sudo /home/ann/.local/bin/mem0audit audit --history {installs.HISTORY} " in text


def test_a_page_spells_a_command_for_root_so_that_it_runs() -> None:
    text = explain_text([CATALOGUE["L106"]], Screen(program_for_root="/opt/x/bin/mem0audit"), whole=True)
    assert "    sudo /opt/x/bin/mem0audit status\n" in text
    assert "    mem0audit status\n" in text


def test_two_halves_of_one_store_have_one_command() -> None:
    command = "mem0audit audit --history /a/history.db --qdrant-path /a/qdrant"
    halves = tuple(
        Candidate(kind, path, "held by pid 7", command=command)  # type: ignore[arg-type]
        for kind, path in (("vectors", "/a/qdrant"), ("history", "/a/history.db"))
    )
    text = said(replace(installs.nothing_found(), candidates=halves))
    assert text.count(command) == 1


@pytest.mark.parametrize("name", ["on-a-tmpfs", "private-tmp", "cleaned-at-boot"])
def test_what_dies_is_taken_out_before_anything_is_stopped(name: str) -> None:
    text = said(SCREENS[name]())
    first = text.index("copy both stores")
    for word in ("systemctl stop", "docker stop", "kill "):
        assert word not in text[:first]
    assert "with the agent running" in text


def test_a_private_tmp_is_taken_by_root() -> None:
    text = said(installs.private_tmp())
    assert "as root" in text
    stores = "--history /home/ann/.mem0/history.db --qdrant-path /proc/4711/root/tmp/qdrant"
    assert f"mem0audit snapshot create {stores} --to /home/ann/mem0-snapshots" in text


def test_private_tmp_steps_by_hand_enter_the_agents_namespace() -> None:
    given = installs.private_tmp()
    large = tuple(replace(p, size_bytes=3_000_000_000) for p in given.places)
    text = said(replace(given, places=large))
    assert "nsenter --target 4711 --mount" in text
    assert "as root" in text


def test_the_copy_goes_nowhere_volatile() -> None:
    both = report(
        places=(
            place(installs.HISTORY, filesystem="tmpfs", volatile=True),
            place("/srv/agent/qdrant", filesystem="tmpfs", volatile=True),
        ),
        findings=(finding("L101", path=installs.HISTORY), finding("L101", path="/srv/agent/qdrant")),
    )
    text = said(both)
    assert "9,871 memories and their log stand on a tmpfs" in text
    assert "/home/ann/mem0-" not in text
    assert "a folder that lasts" in text


def test_no_copy_is_advised_of_a_store_that_would_run_code() -> None:
    given = installs.on_a_tmpfs()
    unsafe = report(
        install=given.install,
        places=given.places,
        findings=(*given.findings, finding("I208", path="/tmp/qdrant")),
    )
    text = said(unsafe)
    assert "would run code" in text
    assert "VACUUM INTO" not in text


def test_commands_repeat_the_users_flags_and_program() -> None:
    text = said(
        installs.on_a_tmpfs(),
        flags=("--history", "/my logs/h.db"),
        program="scripts/mem0audit",
    )
    assert "scripts/mem0audit audit --history '/my logs/h.db' --select D301 --verbose" in text
    assert " mem0audit explain" not in text
    assert "scripts/mem0audit explain D301" in text


def test_verbose_shows_every_finding_and_quiet_no_evidence() -> None:
    given = installs.on_a_tmpfs()
    everything = said(given, verbose=True)
    assert all((f.memory_id or "") in everything for f in given.findings)
    assert "more:" not in everything
    quiet = said(given, quiet=True)
    assert "1,203 memories are gone" in quiet
    assert "D301 resurrected-memory" in quiet
    assert "3f2a9c1e" not in quiet
    assert said(installs.clean(), quiet=True) == ""
    assert "permission denied" in said(installs.could_not_read(), quiet=True)


def test_notes_are_shown_in_full_only_when_asked_for() -> None:
    assert "214" not in said(installs.clean())
    assert "history rows 214" in said(installs.clean(), verbose=True)


def test_an_install_of_which_one_half_is_there_was_found() -> None:
    assert installs.nothing_found().nothing_found
    gone = installs.nothing_found()
    half = report(places=(place(installs.HISTORY), gone.places[1]), install=gone.install)
    assert not half.nothing_found
    denied = report(
        install=gone.install,
        places=(place(installs.HISTORY, exists=False, problem="permission denied"), gone.places[1]),
    )
    assert not denied.nothing_found


def test_hostile_words_from_a_store_stay_on_their_line() -> None:
    bad = "x\x1b]0;owned\x07\n critical  L101 forged \u202e\x9b1m \udc80 [bold]"
    given = report(
        findings=(
            finding("D304", memory_id=bad, evidence={bad: bad}, subject=bad, help=None),
            finding("L105", path="/tmp/" + bad),
        ),
        not_checked=(NotChecked(bad, bad),),
    )
    for verbose in (False, True):
        text = said(given, verbose=verbose)
        assert all(line.isprintable() for line in text.split("\n"))
        assert not any(line.startswith(" critical") for line in text.split("\n"))
        assert "[bold]" in text


def test_a_program_of_several_words_is_named_once() -> None:
    screen = Screen(program="/usr/bin/python3 -m mem0audit", flags=("--history", "/x/history.db"))
    command = screen.command("audit", "--verbose")
    assert command == "/usr/bin/python3 -m mem0audit audit --history /x/history.db --verbose"
    assert screen.steps(command, 0) == [command]
    assert screen.steps("mem0audit explain D301", 0) == ["/usr/bin/python3 -m mem0audit explain D301"]


def kept(report_: Report, **changes: object) -> Report:
    """The same with one good snapshot, six hours old."""
    values: dict[str, object] = {"name": "2026-11-30T023000Z", "path": "/srv/backup/2026-11-30T023000Z"}
    one = SeenSnapshot(**{**values, "taken_at": 1_796_005_800.0, **changes})  # type: ignore[arg-type]
    known = Snapshots(("/srv/backup",), (one,), (), 604_800.0, 1_796_005_800.0 + 6 * 3600 + 60)
    return replace(report_, snapshots=known)


def test_a_healthy_install_says_how_old_its_last_snapshot_is() -> None:
    assert "Last snapshot 6 h ago. " in said(kept(installs.clean()))
    assert "Last snapshot 6 h ago, verified." in said(kept(installs.clean(), verified_at=1.0))


def test_where_memories_are_gone_the_last_snapshot_is_the_way_back() -> None:
    text = said(kept(installs.emptied()))
    assert "to go back to the snapshot of 2026-11-30 02:30:00Z" in text
    assert "mem0audit snapshot restore /srv/backup/2026-11-30T023000Z --in-place --dry-run" in text
    for changes in ({"problems": ("history.db is missing",)}, {"pair": False}, {"erased": 3}):
        assert "snapshot restore" not in said(kept(installs.emptied(), **changes))


def test_the_way_back_is_a_snapshot_from_before_the_loss() -> None:
    given = kept(installs.emptied(), changes=9, lost=0)
    gone = sum(f.code == "D302" for f in given.findings)
    assert gone > 1 and given.snapshots is not None
    (before,) = given.snapshots.snapshots
    since = replace(before, path="/srv/backup/since", taken_at=1_796_005_900.0, lost=gone)
    known = replace(given.snapshots, snapshots=(before, since))
    text = said(replace(given, snapshots=known))
    assert f"snapshot restore {before.path} --in-place" in text
    assert "snapshot restore" not in said(replace(given, snapshots=replace(known, snapshots=(since,))))


def test_after_a_reset_the_way_back_is_a_snapshot_with_the_longer_log() -> None:
    incident = Incident(
        "reset",
        "mem0 was reset",
        Certainty.LIKELY,
        (),
        advice=("If it was not meant: go back.",),
        codes=("D311",),
    )
    given = kept(replace(installs.clean(), incidents=(incident,)), changes=1_000_000)
    assert "snapshot restore /srv/backup/2026-11-30T023000Z --in-place --dry-run" in said(given)
    assert "is missing" not in said(given)
    assert "snapshot restore" not in said(kept(given, changes=3))


def test_a_restore_that_was_cut_off_comes_first() -> None:
    given = installs.emptied()
    text = said(replace(given, findings=(finding("B906", path="/srv/.qdrant"), *given.findings)))
    first = text.index("snapshot restore --in-place --dry-run")
    assert first < text.index("Findings")
    assert "with the agent stopped" in text[:first]


@pytest.mark.parametrize(("shared", "said_so"), [(0, False), (2, True)])
def test_erased_is_not_said_of_bytes_that_others_own_too(shared: int, said_so: bool) -> None:
    install = report().install
    scope = Scope("alice")
    files = (FileSearch("/srv/history.db", 100, shared=shared),)
    after = Residue(install, scope, (), 1, 6, 31, 0, (), 0, (0, 0), files, (), True, ())
    none = Left(0, 0)
    done = Erased(
        install, scope, 0.0, "s", (), 1, 0, 0, 0, none, none, "2.2.1", "1", "3", True, False, "l", after=after
    )
    text = " ".join(verdict_text(done, Screen()).split())
    assert "Erased: none of the 6 texts known of user alice" in text
    assert ("but where others own the same" in text) is said_so
