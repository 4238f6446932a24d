"""Leave out of a run's times those in which only the host works: charts show the time of the device. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from ..cost.timing import PlanTimes
from ..plan.plan import OpKind, Plan


def device_times(plan: Plan, times: PlanTimes) -> PlanTimes:
    """Return the times by a clock that stands still while a step runs on the host and the device has nothing to do."""
    spans: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for op in plan.ops:
        spans[op.kind is OpKind.HOST].append((times.start[op.id], times.end[op.id]))
    cuts = _uncovered(sorted(spans[True]), sorted(spans[False]))
    begins, lost = [start for start, _ in cuts], [0.0]  # lost[i]: seconds of the first i cuts
    for begin, until in cuts:
        lost.append(lost[-1] + until - begin)

    def clock(at: float) -> float:
        i = bisect_right(begins, at)
        return at - lost[i] + (max(0.0, cuts[i - 1][1] - at) if i else 0.0)

    start, end = tuple(map(clock, times.start)), tuple(map(clock, times.end))
    return replace(times, start=start, end=end, seconds=clock(times.seconds))


def _uncovered(spans: list[tuple[float, float]], others: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return what no other span covers of `spans`, which do not overlap; both are sorted."""
    found, i = [], 0
    reach = 0.0  # everything before it is behind the spans, or covered up to there
    for start, end in spans:
        at = max(start, reach)
        while i < len(others) and others[i][0] < end:
            begin, until = others[i]
            if begin > at:
                found.append((at, begin))
            at = reach = max(at, until)
            i += 1
        if at < end:
            found.append((at, end))
    return found
