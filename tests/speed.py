"""What a test may say about time on a machine that is slow, or busy with other things."""

from __future__ import annotations

import functools
import os
import time

_USUAL_S = 0.05
"""CPU seconds of the sum below on the machine that the bounds in the tests were written on."""


@functools.cache
def slowness() -> float:
    """How many times slower than usual this machine computes, at least 1."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        sum(number * number for number in range(1_000_000))
        best = min(best, time.process_time() - begun)
    return max(1.0, best / _USUAL_S)


def kept_waiting() -> float:
    """Seconds in which threads of this process could run and were given no processor (0 where Linux does not tell)."""
    waited = 0
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return 0.0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/schedstat") as told:
                waited += int(told.read().split()[1])
        except (OSError, IndexError, ValueError):  # it ended meanwhile
            continue
    return waited / 1e9


class Allowance:
    """From when it is made: a bound in seconds, and what the machine adds to it."""

    def __init__(self) -> None:
        self._begun = kept_waiting()

    def __call__(self, seconds: float) -> float:
        """`seconds` of the usual machine, and as long as this process was kept waiting for a processor since."""
        return seconds * slowness() + max(0.0, kept_waiting() - self._begun)
