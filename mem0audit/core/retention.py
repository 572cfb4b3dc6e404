"""Which snapshots a policy keeps, and why. Pure: the same snapshots, policy and moment, the same answer.

The policy gives out places: to the newest so many, and to the newest one of each of so many days, ISO weeks and
months (UTC) that have one, and to all within a length of time before the newest. Who gets a place:

- A **good** snapshot: `verify` found it good (every byte, not only a quick look), it is a settled pair, and it is
  not dated in the future. Only these use places up.
- One that verifies and is **not settled** stays where the policy would keep it among the good and the other
  unsettled ones; it takes no place from a good one.
- One **not verified**, or found **bad**, stays where the policy would keep it if it were good: as long as that is
  so, it may turn out to be the better copy. Each is looked at alone with the good ones, so none takes another's place.

Snapshots of different installs in one folder are series of their own, each with all the places of the policy and a last
good one: those of one install never push out those of another.

Whatever the policy says, these stay: the newest good one, and where that lacks memories that its log calls live, or
holds fewer changes than an older one (the log only grows), the newest good one from before: the way back that an audit
names. So nights of an emptied store push out none of a full one. And what is marked to be kept, what is dated in the
future (the clock was wrong then, or is now), and what has a damaged manifest (nothing says what or from when it is).
One that holds memories of somebody erased since has its places in the policy, and stays for no other reason: it is no
last good pair. One that was made to be short-lived stays until its time, and goes then, whatever it is or is marked;
it takes no place, and is no last good pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final, Literal

from mem0audit.core.times import shown

State = Literal["good", "not settled", "not verified", "bad", "damaged"]
"""What a snapshot is to a policy; "damaged" where its manifest does not read or is another's."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LENGTH: Final = re.compile(r"([1-9]\d{0,4})([hdw])", re.ASCII)
_UNITS: Final = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}

THE_LAST: Final = "the last good pair"
BEFORE_LOSS: Final = "the last good pair from before memories were lost"
BEFORE_RESET: Final = "the last good pair from before the log was reset"


@dataclass(frozen=True)
class Policy:
    """How many of each to keep; None where that is not asked for. `within` is a length of time such as "30d"."""

    last: int | None = None
    daily: int | None = None
    weekly: int | None = None
    monthly: int | None = None
    within: str | None = None

    @property
    def empty(self) -> bool:
        """It would keep nothing of itself."""
        return not (self.last or self.daily or self.weekly or self.monthly or self.within)

    def words(self) -> tuple[str, ...]:
        """The same as words of a command line."""
        pairs = (
            ("--keep-last", self.last),
            ("--keep-daily", self.daily),
            ("--keep-weekly", self.weekly),
            ("--keep-monthly", self.monthly),
            ("--keep-within", self.within),
        )
        return tuple(word for flag, value in pairs if value for word in (flag, str(value)))


def length(text: str) -> float:
    """Seconds of a length of time: "12h", "30d", "8w". Raises ValueError."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True)
class Standing:
    """One snapshot as a policy sees it. `taken_at` is in seconds since 1970, None where the manifest is damaged.

    `why` says what is wrong with it, or when it was verified; `kept` is the reason of a mark; `series` names the
    install it is of, empty where that is not known. `changes` are the rows of its log, `lost` the memories live in it
    that its vectors lack, `erased` the memories in it of somebody who was erased since. `until` is when a short-lived
    one goes, in seconds since 1970.
    """

    name: str
    taken_at: float | None
    state: State
    why: str = ""
    kept: str | None = None
    series: str = ""
    changes: int = 0
    lost: int = 0
    erased: int = 0
    until: float | None = None


@dataclass(frozen=True)
class Decision:
    """Whether a snapshot stays. One that stays has at least one reason; of one that goes, `reasons` say what is
    known against it, and may be empty: no place is left for it."""

    snapshot: Standing
    keep: bool
    reasons: tuple[str, ...]


def decide(policy: Policy, snapshots: Iterable[Standing], now: float) -> tuple[Decision, ...]:
    """A decision for each, newest first, those with a damaged manifest last. `now` is in seconds since 1970."""
    everything = sorted(snapshots, key=_newest, reverse=True)
    decided: dict[str, Decision] = {}
    for series in dict.fromkeys(one.series for one in everything):
        of_one = [one for one in everything if one.series == series]
        decided |= {one.snapshot.name: one for one in _decide(policy, of_one, now)}
    return tuple(decided[one.name] for one in everything)


def _decide(policy: Policy, everything: Sequence[Standing], now: float) -> tuple[Decision, ...]:
    """The decisions for one series, which is in order."""
    lasting = [one for one in everything if one.until is None]
    dated = [one for one in lasting if one.taken_at is not None and one.taken_at <= now]
    good = [one for one in dated if one.state == "good"]
    places = _places(policy, good)
    for one, why in _ways_back(good):
        places[one.name] = (*places.get(one.name, ()), why)
    unsettled = _places(policy, [one for one in dated if one.state in ("good", "not settled")])
    for one in dated:
        if one.state == "good":
            continue
        wanted = unsettled
        if one.state != "not settled":
            wanted = _places(policy, sorted([*good, one], key=_newest, reverse=True))
        if one.name in wanted:
            places[one.name] = (f"{_state(one)}; would be {', '.join(wanted[one.name])}",)
    return tuple(_decision(one, places.get(one.name, ()), now) for one in everything)


def _ways_back(good: Sequence[Standing]) -> list[tuple[Standing, str]]:
    """The good ones that stay in any case, and why; `good` is newest first."""
    good = [one for one in good if not one.erased]
    if not good:
        return []
    last = good[0]
    found = [(last, THE_LAST)]
    if last.lost:
        # as `Snapshots.before_loss` looks for it: a few may have been lost long ago
        found += [(one, BEFORE_LOSS) for one in good if one.lost * 2 <= last.lost][:1]
    found += [(one, BEFORE_RESET) for one in good if one.changes > last.changes][:1]
    return found


def _newest(one: Standing) -> tuple[float, int, str]:
    # Of one second the later one has the higher number: X, X-2, X-10.
    return float("-inf") if one.taken_at is None else one.taken_at, len(one.name), one.name


def _state(one: Standing) -> str:
    return f"{one.state} ({one.why})" if one.why and one.state != "good" else one.state


def _decision(one: Standing, places: tuple[str, ...], now: float) -> Decision:
    if one.until is not None:
        return Decision(one, one.until > now, (f"short-lived, until {shown(one.until)}",))
    reasons = list(places)
    if one.kept is not None:
        reasons.append(f"marked: {one.kept}")
    if one.taken_at is None:
        reasons.append(f"{one.why}; expire removes no snapshot with a damaged manifest")
    elif one.taken_at > now:
        reasons.append("dated in the future")
    if reasons:
        return Decision(one, True, tuple(reasons))
    if one.erased:
        return Decision(one, False, (f"holds {one.erased:,} memories of somebody erased since",))
    return Decision(one, False, () if one.state == "good" else (_state(one),))


def _places(policy: Policy, ordered: Sequence[Standing]) -> dict[str, tuple[str, ...]]:
    """Name -> the places that it has, of snapshots with a date, newest first."""
    found: dict[str, list[str]] = {}
    if policy.last:
        for number, one in enumerate(ordered[: policy.last], 1):
            found.setdefault(one.name, []).append(f"last {number} of {policy.last}")
    for count, word, label in (
        (policy.daily, "daily", _day),
        (policy.weekly, "weekly", _week),
        (policy.monthly, "monthly", _month),
    ):
        for one, period in _first_of_each(count or 0, ordered, label):
            found.setdefault(one.name, []).append(f"{word} {period}")
    if policy.within and ordered:
        newest = ordered[0].taken_at or 0.0
        for one in ordered:
            if newest - (one.taken_at or 0.0) <= length(policy.within):
                found.setdefault(one.name, []).append(f"within {policy.within}")
    return {name: tuple(reasons) for name, reasons in found.items()}


def _first_of_each(
    count: int, ordered: Sequence[Standing], label: Callable[[datetime], str]
) -> list[tuple[Standing, str]]:
    """The newest one of each of the `count` newest periods that have one."""
    seen: dict[str, Standing] = {}
    for one in ordered:
        period = label(_EPOCH + timedelta(seconds=one.taken_at or 0.0))
        if period not in seen:
            if len(seen) == count:
                break
            seen[period] = one
    return [(one, period) for period, one in seen.items()]


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d")


def _week(moment: datetime) -> str:
    year, week, _ = moment.isocalendar()
    return f"{year}-W{week:02d}"


def _month(moment: datetime) -> str:
    return moment.strftime("%Y-%m")
