"""Which snapshots stay: against a slow, obvious oracle, and case by case."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mem0audit.core.retention import (
    BEFORE_LOSS,
    BEFORE_RESET,
    THE_LAST,
    Decision,
    Policy,
    Standing,
    State,
    decide,
    length,
)

NOW = dt.datetime(2026, 11, 30, 12, tzinfo=dt.timezone.utc).timestamp()
DAY = 86400.0


# --- the oracle: one question a snapshot, answered from the definitions, without any loop shared with ours -------


def utc(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, dt.timezone.utc)


def later(one: Standing, other: Standing) -> bool:
    """Whether `one` is newer: by its time, and within a second by the number in its name."""
    assert one.taken_at is not None and other.taken_at is not None
    if one.taken_at != other.taken_at:
        return one.taken_at > other.taken_at
    number = [int(x.name.partition("Z-")[2] or 1) for x in (one, other)]
    return number[0] > number[1]


def has_a_place(policy: Policy, one: Standing, among: Sequence[Standing]) -> bool:
    """Whether the policy has a place for one of these."""
    assert one.taken_at is not None
    newer = [other for other in among if other is not one and later(other, one)]
    if policy.last and len(newer) < policy.last:
        return True

    def period(at: float, kind: str) -> tuple[int, ...]:
        moment = utc(at)
        if kind == "day":
            return moment.year, moment.month, moment.day
        if kind == "month":
            return moment.year, moment.month
        monday = moment.date() - dt.timedelta(days=moment.weekday())
        return monday.year, monday.month, monday.day

    for count, kind in ((policy.daily, "day"), (policy.weekly, "week"), (policy.monthly, "month")):
        mine = period(one.taken_at, kind)
        newer_periods = {period(other.taken_at or 0, kind) for other in newer}
        if count and mine not in newer_periods and len(newer_periods) < count:
            return True
    if policy.within:
        seconds = {"h": 3600, "d": 86400, "w": 604800}[policy.within[-1]] * int(policy.within[:-1])
        newest = max(other.taken_at or 0 for other in among)
        return one.taken_at >= newest - seconds
    return False


def stays(policy: Policy, one: Standing, everything: Sequence[Standing], now: float) -> bool:
    if one.state == "damaged" or one.kept is not None:
        return True
    assert one.taken_at is not None
    if one.taken_at > now:
        return True
    everything = [x for x in everything if x.series == one.series]
    dated = [x for x in everything if x.state != "damaged" and x.taken_at is not None and x.taken_at <= now]
    good = [x for x in dated if x.state == "good"]
    if one.state == "good":
        if one.erased:
            return has_a_place(policy, one, good)
        whole = [x for x in good if not x.erased]
        newer = [other for other in whole if other is not one and later(other, one)]
        last = next(x for x in whole if not any(later(y, x) for y in whole if y is not x))
        way_back = [
            not newer,
            last.lost > 0 and one.lost <= last.lost / 2 and all(x.lost > last.lost / 2 for x in newer),
            one.changes > last.changes and all(x.changes <= last.changes for x in newer),
        ]
        return any(way_back) or has_a_place(policy, one, good)
    if one.state == "not settled":
        return has_a_place(policy, one, [x for x in dated if x.state in ("good", "not settled")])
    return has_a_place(policy, one, [*good, one])


# --- what is tried -------------------------------------------------------------------------------------

# Around the ends of days, weeks, months and years, and a few close together, so that places collide.
edges = st.sampled_from(
    [
        utc_.timestamp()
        for utc_ in (
            dt.datetime(2026, 11, 30, 0, 0, 0, tzinfo=dt.timezone.utc),  # a Monday
            dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc),
            dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),  # in week 1; 28 to 31 December 2025 partly so
            dt.datetime(2025, 12, 29, tzinfo=dt.timezone.utc),
            dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc),
            dt.datetime(2027, 1, 1, tzinfo=dt.timezone.utc),  # the future
        )
    ]
)
times = st.one_of(
    st.integers(0, 100 * 24).map(lambda hours: NOW - 3600.0 * hours),
    st.integers(-3, 800).map(lambda days: NOW - DAY * days),
    st.builds(lambda at, off: at + off, edges, st.sampled_from([-1.0, 0.0, 1.0])),
)
counts = st.one_of(st.none(), st.integers(1, 6))
policies = st.builds(
    Policy,
    counts,
    counts,
    counts,
    counts,
    st.one_of(st.none(), st.sampled_from(["1h", "24h", "7d", "30d", "8w"])),
).filter(lambda policy: not policy.empty)


@st.composite
def folders(draw: st.DrawFn) -> list[Standing]:
    found: list[Standing] = []
    taken: dict[str, int] = {}
    for at in draw(st.lists(times, max_size=25)):
        state = draw(st.sampled_from(["good"] * 4 + ["not settled"] * 2 + ["not verified", "bad", "damaged"]))
        name = utc(at).strftime("%Y-%m-%dT%H%M%SZ")
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            name += f"-{taken[name]}"
        kept = draw(st.sampled_from([None] * 9 + ["before the move"]))
        series = draw(st.sampled_from(["one", "one", "one", "other"]))
        changes, lost = draw(st.sampled_from([5, 5, 5, 9, 2])), draw(st.sampled_from([0, 0, 0, 1, 2, 7]))
        when = None if state == "damaged" else at
        erased = draw(st.sampled_from([0, 0, 0, 0, 3]))
        found.append(Standing(name, when, state, "", kept, series, changes, lost, erased))
    return found


@settings(max_examples=300)
@given(policies, folders())
def test_the_oracle_agrees(policy: Policy, folder: list[Standing]) -> None:
    decided = decide(policy, folder, NOW)
    assert sorted(one.snapshot.name for one in decided) == sorted(one.name for one in folder)
    for one in decided:
        assert one.keep is stays(policy, one.snapshot, folder, NOW), one
        assert one.reasons or not one.keep
    # the order in which the folder was read means nothing
    assert decide(policy, folder[::-1], NOW) == decided


@given(policies, folders())
def test_what_is_never_lost(policy: Policy, folder: list[Standing]) -> None:
    """Whatever the policy: the newest good pair, and every one newer than it; and with no good one, all that are not
    known to be good and unsettled."""
    decided = {one.snapshot.name: one for one in decide(policy, folder, NOW)}
    for one in folder:
        good = [
            x
            for x in folder
            if x.state == "good" and (x.taken_at or 0) <= NOW and x.series == one.series and not x.erased
        ]
        if not decided[one.name].keep:
            assert one.state != "damaged" and one.kept is None and (one.taken_at or 0) <= NOW
            if one.state != "not settled" and not one.erased:
                assert any(later(other, one) for other in folder if other.state == "good")
            if one.state == "not settled":
                assert any(
                    later(x, one)
                    for x in folder
                    if x.state in ("good", "not settled")
                    and x.taken_at is not None
                    and x.series == one.series
                )
        if good:
            newest = next(x for x in good if not any(later(y, x) for y in good if y is not x))
            assert THE_LAST in decided[newest.name].reasons


@given(policies, folders())
def test_others_take_no_place_from_a_good_one(policy: Policy, folder: list[Standing]) -> None:
    """With and without all that is not good, the same good ones stay."""
    alone = [one for one in folder if one.state == "good"]
    with_others = {one.snapshot.name for one in decide(policy, folder, NOW) if one.keep}
    without = {one.snapshot.name for one in decide(policy, alone, NOW) if one.keep}
    assert with_others & {one.name for one in alone} == without


@given(policies, folders())
@example(Policy(daily=2), [])
def test_a_second_run_removes_nothing_more(policy: Policy, folder: list[Standing]) -> None:
    """What is left after one run is all kept by the next: a policy gives places, it does not count runs."""
    left = [one.snapshot for one in decide(policy, folder, NOW) if one.keep]
    again = decide(policy, left, NOW)
    assert [one.snapshot.name for one in again if not one.keep and one.snapshot.state == "good"] == []


# --- case by case --------------------------------------------------------------------------------------


def at(text: str, state: str = "good", kept: str | None = None, why: str = "") -> Standing:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.timezone.utc)
    name = moment.strftime("%Y-%m-%dT%H%M%SZ")
    return Standing(name, moment.timestamp(), state, why, kept)  # type: ignore[arg-type]


def reasons(decided: Sequence[Decision]) -> dict[str, tuple[str, ...] | None]:
    return {one.snapshot.name[:10]: one.reasons if one.keep else None for one in decided}


def test_all_the_reasons_of_each() -> None:
    folder = [at(f"2026-11-{day:02d} 02:30:00") for day in (1, 15, 22, 23, 28, 29, 30)]
    assert reasons(decide(Policy(last=1, daily=2, weekly=2, monthly=2, within="2d"), folder, NOW)) == {
        "2026-11-30": (
            "last 1 of 1",
            "daily 2026-11-30",
            "weekly 2026-W49",
            "monthly 2026-11",
            "within 2d",
            THE_LAST,
        ),
        "2026-11-29": ("daily 2026-11-29", "weekly 2026-W48", "within 2d"),
        "2026-11-28": ("within 2d",),
        "2026-11-23": None,
        "2026-11-22": None,
        "2026-11-15": None,
        "2026-11-01": None,
    }


def test_iso_weeks_at_the_end_of_a_year() -> None:
    folder = [at(f"{day} 02:30:00") for day in ("2025-12-28", "2025-12-29", "2026-01-01", "2026-01-04")]
    decided = reasons(decide(Policy(weekly=9), folder, NOW))
    assert decided["2026-01-04"] == ("weekly 2026-W01", THE_LAST)
    assert decided["2026-01-01"] is None  # of the same week
    assert decided["2025-12-29"] is None
    assert decided["2025-12-28"] == ("weekly 2025-W52",)


def test_days_are_utc() -> None:
    folder = [at("2026-11-28 23:59:59"), at("2026-11-29 00:00:00")]
    assert all(one.keep for one in decide(Policy(daily=2), folder, NOW))


def test_one_not_verified_stays_while_it_may_be_the_better_copy() -> None:
    folder = [
        at("2026-11-30 02:30:00", "not verified"),
        at("2026-11-29 02:30:00"),
        at("2026-11-28 02:30:00", "not verified"),
        at("2026-11-27 02:30:00"),
        at("2026-11-26 02:30:00", "bad", why="verify, today: history.db is missing"),
    ]
    decided = decide(Policy(daily=2), folder, NOW)
    assert reasons(decided) == {
        "2026-11-30": ("not verified; would be daily 2026-11-30",),
        "2026-11-29": ("daily 2026-11-29", THE_LAST),
        "2026-11-28": ("not verified; would be daily 2026-11-28",),
        "2026-11-27": ("daily 2026-11-27",),
        "2026-11-26": None,
    }
    assert decided[-1].reasons == ("bad (verify, today: history.db is missing)",)


def test_with_nothing_verified_nothing_goes() -> None:
    folder = [at(f"2026-{month:02d}-01 02:30:00", "not verified") for month in range(1, 12)]
    assert all(one.keep for one in decide(Policy(last=1), folder, NOW))


def test_an_install_that_never_settles_does_not_fill_the_disk() -> None:
    folder = [at(f"2026-11-{day:02d} 02:30:00", "not settled") for day in range(1, 31)]
    decided = decide(Policy(daily=3), [*folder, at("2026-10-01 02:30:00")], NOW)
    assert [one.snapshot.name[:10] for one in decided if one.keep] == [
        "2026-11-30",
        "2026-11-29",
        "2026-11-28",
        "2026-10-01",
    ]


def test_one_not_verified_or_bad_takes_no_place_from_an_unsettled_one() -> None:
    folder = [
        at("2026-11-30 02:30:00", "bad"),
        at("2026-11-29 02:30:00", "not verified"),
        at("2026-11-28 02:30:00", "not settled"),
        at("2026-11-27 02:30:00", "not settled"),
    ]
    assert [one.keep for one in decide(Policy(last=1), folder, NOW)] == [True, True, True, False]


def test_one_install_never_pushes_out_another() -> None:
    folder = [replace(at(f"2026-11-{day:02d} 02:30:00"), series="busy") for day in range(1, 31)]
    quiet = replace(at("2026-01-01 02:30:00"), series="quiet")
    decided = decide(Policy(last=2, within="1d"), [*folder, quiet], NOW)
    assert [one.snapshot.name[:10] for one in decided if one.keep] == [
        "2026-11-30",
        "2026-11-29",
        "2026-01-01",
    ]
    assert decided[-1].reasons == ("last 1 of 2", "within 1d", THE_LAST)


def test_nights_of_an_emptied_store_push_out_none_of_a_full_one() -> None:
    """What an audit names as the way back must be there still when somebody reads it."""
    full = replace(at("2026-10-31 02:30:00"), changes=50, lost=1)
    nights = [at(f"2026-11-{day:02d} 02:30:00") for day in range(1, 31)]
    emptied = [replace(one, changes=50, lost=18) for one in nights]
    older = replace(full, name="2026-10-30T023000Z", taken_at=(full.taken_at or 0) - DAY)
    kept = reasons(decide(Policy(last=1), [*emptied, full, older], NOW))
    assert {name: why for name, why in kept.items() if why} == {
        "2026-11-30": ("last 1 of 1", THE_LAST),
        "2026-10-31": (BEFORE_LOSS,),
    }
    reset = [replace(one, changes=3) for one in nights]
    kept = reasons(decide(Policy(last=1), [*reset, full, older], NOW))
    assert kept["2026-10-31"] == (BEFORE_RESET,)
    assert [name for name, why in kept.items() if why] == ["2026-11-30", "2026-10-31"]
    # put back, or grown again: nothing is kept for it
    back = [replace(one, changes=51, lost=1) for one in nights]
    assert reasons(decide(Policy(last=1), [*back, full, older], NOW))["2026-10-31"] is None


def test_one_that_holds_somebody_erased_is_no_last_good_pair() -> None:
    folder = [
        replace(at("2026-11-30 02:30:00"), erased=3),
        at("2026-11-01 02:30:00"),
        at("2026-10-01 02:30:00"),
    ]
    decided = decide(Policy(monthly=1), folder, NOW)
    assert reasons(decided) == {
        "2026-11-30": ("monthly 2026-11",),
        "2026-11-01": (THE_LAST,),
        "2026-10-01": None,
    }
    (one,) = decide(Policy(within="1h"), [folder[0], at("2026-11-30 11:30:00")], NOW)[1:]
    assert (one.keep, one.reasons) == (False, ("holds 3 memories of somebody erased since",))


def test_marks_the_future_and_damaged_manifests_stay() -> None:
    folder = [
        at("2031-01-01 00:00:00"),
        at("2026-11-30 02:30:00"),
        at("2026-01-01 02:30:00", kept="before the move"),
        Standing("2026-01-02T023000Z", None, "damaged", "manifest.json is missing"),
    ]
    assert reasons(decide(Policy(last=1, within="30d"), folder, NOW)) == {
        "2031-01-01": ("dated in the future",),
        "2026-11-30": ("last 1 of 1", "within 30d", THE_LAST),
        "2026-01-01": ("marked: before the move",),
        "2026-01-02": ("manifest.json is missing; expire removes no snapshot with a damaged manifest",),
    }


def test_within_counts_from_the_newest_not_from_now() -> None:
    """An agent that was off for a year still has its last month of snapshots."""
    folder = [at("2025-11-30 02:30:00"), at("2025-11-10 02:30:00"), at("2025-10-01 02:30:00")]
    assert [one.keep for one in decide(Policy(within="30d"), folder, NOW)] == [True, True, False]


def test_several_of_one_second() -> None:
    folder = [at("2026-11-30 02:30:00")]
    folder += [Standing(f"{folder[0].name}-{n}", folder[0].taken_at, "good") for n in (2, 9, 10)]
    (kept,) = [one.snapshot.name for one in decide(Policy(last=1), folder, NOW) if one.keep]
    assert kept.endswith("-10")


def test_lengths_of_time() -> None:
    assert (length("12h"), length("30d"), length("8w")) == (43200, 30 * DAY, 56 * DAY)
    for text in ("", "30", "d", "0d", "-1d", "1.5d", "30D", "30 d", "1m", "999999d", "３d"):
        with pytest.raises(ValueError):
            length(text)


def test_the_policy_as_words() -> None:
    policy = Policy(3, None, 2, None, "30d")
    assert policy.words() == ("--keep-last", "3", "--keep-weekly", "2", "--keep-within", "30d")
    assert Policy().empty and Policy(last=0).empty and not policy.empty


@pytest.mark.parametrize("state", ["good", "not verified", "bad", "not settled"])
def test_a_short_lived_one_goes_at_its_time_whatever_protects_others(state: State) -> None:
    short = Standing("2026-11-30T020000Z", NOW - 3600, state, kept="please", until=NOW + 60)
    older = Standing("2026-11-29T020000Z", NOW - DAY, "good", lost=9)
    policy = Policy(last=1)
    now = {one.snapshot.name: one for one in decide(policy, [short, older], NOW)}
    assert now[short.name].keep and "short-lived" in now[short.name].reasons[0]
    assert now[older.name].reasons == ("last 1 of 1", THE_LAST)  # it takes no place, and is no last good pair
    then = {one.snapshot.name: one.keep for one in decide(policy, [short, older], NOW + 60)}
    assert then == {short.name: False, older.name: True}
    (alone,) = decide(policy, [short], NOW + 60)
    assert not alone.keep
