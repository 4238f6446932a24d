"""Tells how the ranks of a training do: which is the slowest, how long each exchanges, what each copied.

At displays, `REPORT_S` seconds after its last wish at the earliest, rank 0 wishes for a report. Then every rank
describes itself by a `Row`, all gather them, and rank 0 logs a line. At the end of `train` it logs a row of each rank.

A rank's own work is what is left of its time without exchanges: in these it waits for slower ranks, and moves data. Of
GPUs it is what the compute stream does other than sums, see `net/program/reduction.py`.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ..errors import human_bytes
from .display import number

if TYPE_CHECKING:
    from .base import Solver

_log = logging.getLogger(__name__)
REPORT_S = 10.0
_EVEN = 0.01  # share of the time; a rank that holds up the others for less is not named


@dataclass(frozen=True)
class Row:
    """Say what one rank did in some iterations.

    Attributes:
        host: its name.
        iterations, seconds: since the last report, or since the end of the first iteration.
        exchange: seconds of them in exchanges with other ranks, beside which nothing else ran; None: not known.
        bytes_in, bytes_out, stall: what LMS copied in them, and seconds of waiting for copies as plans predict; None
            without LMS.
    """

    host: str
    iterations: int
    seconds: float
    exchange: float | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    stall: float | None = None

    def described(self) -> dict[str, str | int | float | None]:
        """Return the numbers as `-lms_stats` has them: totals of the iterations."""
        return {
            "host": self.host,
            "iterations": self.iterations,
            "seconds": self.seconds,
            "exchange_seconds": self.exchange,
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "stall_ms_predicted": None if self.stall is None else 1e3 * self.stall,
        }

    @property
    def work(self) -> float | None:
        """Return the seconds of an iteration outside of exchanges."""
        return None if self.exchange is None else (self.seconds - self.exchange) / self.iterations


@dataclass(frozen=True)
class _Count:
    """Hold a rank's totals at the end of an iteration."""

    iterations: int
    clock: float
    exchange: float | None
    copied: tuple[int, int, float] | None


class RankReport:
    """Count what this rank does, and make the reports.

    Attributes:
        rows: of the newest report, in the order of ranks; empty before the first.
        totals: of all iterations but the first, once `total` was called.
    """

    def __init__(self, solver: Solver):
        self._solver = solver
        self._begin: _Count | None = None  # the first iteration, which builds kernels, is not counted
        self._last: _Count | None = None  # at the newest report
        self._now: _Count | None = None
        self._wished: float | None = None
        self.rows: Sequence[Row] = ()
        self.totals: Sequence[Row] = ()

    def iterated(self, exchange: float | None) -> None:
        """Count an iteration that all ranks have finished. exchange: seconds in exchanges so far, or None.

        Every rank calls it for each, but for the first few that a GPU's host is ahead, at about the same time."""
        runtime, trained = self._solver.runtime, self._solver.lms_log.trained
        copied = (trained.bytes_in, trained.bytes_out, trained.stall_seconds) if runtime.active else None
        done = 0 if self._now is None else self._now.iterations + 1
        self._now = _Count(done, time.monotonic(), exchange, copied)
        if self._begin is None:
            self._begin = self._last = self._now

    def wanted(self, lag: int) -> bool:
        """Return whether to begin a report, which is made `lag` iterations from here, before an iteration that is
        displayed. Only the root wants one."""
        display, now, last = self._solver.param.display, self._now, self._last
        if self._solver.solver_count == 1 or not self._solver.is_root:
            return False
        if not display or (self._solver.iter + lag) % display:
            return False
        if now is None or now is last or (self._wished is not None and now.clock - self._wished < REPORT_S):
            return False
        self._wished = now.clock
        return True

    def display(self, gather: Callable[[bytes], list[bytes]]) -> None:
        """Exchange what the ranks did since the last report; the root logs a line. All ranks call it."""
        self.rows = self._gathered(gather, self._last)
        self._last = self._now
        said = line(self.rows, images_per_iteration(self._solver)) if self._solver.is_root and self.rows else ""
        if said:
            _log.info(said)

    def total(self, gather: Callable[[bytes], list[bytes]]) -> None:
        """Exchange what the ranks did in all iterations but the first; the root logs a row of each. All ranks call it,
        after the same iteration."""
        self.totals = self._gathered(gather, self._begin)
        if self._solver.is_root and self.totals:
            for text in table(self.totals, images_per_iteration(self._solver)):
                _log.info(text)

    def _gathered(self, gather: Callable[[bytes], list[bytes]], since: _Count | None) -> Sequence[Row]:
        now = self._now
        if now is None or since is None or now is since:
            return ()
        exchange = None if now.exchange is None or since.exchange is None else now.exchange - since.exchange
        copied: Sequence[float | None] = (None, None, None)
        if now.copied is not None:
            before = since.copied or (0, 0, 0.0)
            copied = [a - b for a, b in zip(now.copied, before, strict=True)]
        seconds = now.clock - since.clock
        mine = (socket.gethostname(), now.iterations - since.iterations, seconds, exchange, *copied)
        return [Row(*found) for found in map(json.loads, gather(json.dumps(mine).encode()))]


def images_per_iteration(solver: Solver) -> int | None:
    """Return what all ranks together read in an iteration: the largest first axis of tops of the train net's data
    layers, times the passes of every rank; None: there are no data layers."""
    net = solver.net
    makers = [node for node in net.graph.nodes if not node.layer.param.bottom and not node.layer.params]
    batches = [net.blobs[top].shape[0] for node in makers for top in node.layer.param.top if net.blobs[top].shape]
    return max(batches) * solver.updates.passes * solver.solver_count if batches else None


def line(rows: Sequence[Row], images: int | None) -> str:
    """Return the line of a display, "" where nothing is known. images: those of an iteration of all ranks."""
    parts = [_rate(rows, images)] if images is not None else []
    work = [w for row in rows if (w := row.work) is not None]
    if len(work) == len(rows):
        slowest = max(range(len(rows)), key=work.__getitem__)
        others = median(w for rank, w in enumerate(work) if rank != slowest)
        row = rows[slowest]
        waits = (work[slowest] - others) * row.iterations / row.seconds
        if waits < _EVEN:
            parts.append(f"none is slower than the others by more than {_EVEN:.0%} of the time")
        else:
            two = len(rows) == 2
            parts.append(
                f"rank {slowest} on {row.host} is the slowest with {_ms(work[slowest])} of own work per iteration "
                f"({'the other' if two else 'median of the others'}: {_ms(others)}), "
                f"{'which waits' if two else 'they wait'} {waits:.0%} of the time for it"
            )
    return f"Ranks: {'; '.join(parts)}." if parts else ""


def table(rows: Sequence[Row], images: int | None) -> list[str]:
    """Return the lines of the report at the end: a head, one for each rank, and the sums. images: as in `line`."""
    lines = [f"Ranks, per iteration, mean of {rows[0].iterations}:"]
    for rank, row in enumerate(rows):
        parts = [_ms(row.seconds / row.iterations)]
        if row.exchange is not None and row.work is not None:
            share = row.exchange / row.seconds
            parts = [f"{_ms(row.work)} own work, {_ms(row.exchange / row.iterations)} exchanging ({share:.0%})"]
        if row.stall is not None:
            parts.append(f"LMS {_copied([row])}, stall {_ms(row.stall / row.iterations)} (predicted)")
        lines.append(f"    rank {rank} on {row.host}: {'; '.join(parts)}")
    lms = [row for row in rows if row.bytes_in is not None]
    together = [_rate(rows, images)] if images is not None else []
    if lms:
        together.append(f"LMS {_copied(lms)}")
    return [*lines, f"    all: {'; '.join(together)}"] if together else lines


def per_iteration(rows: Sequence[Row], name: str) -> float | None:
    """Return the sum over ranks of a number (bytes_in, bytes_out) per iteration; None where a rank has none."""
    values = [(getattr(row, name), row.iterations) for row in rows]
    return sum(v / n for v, n in values) if values and all(v is not None for v, _ in values) else None


def _rate(rows: Sequence[Row], images: int) -> str:
    return f"{_rounded(images * rows[0].iterations / max(rows[0].seconds, 1e-9))} images/s together"


def _copied(rows: Sequence[Row]) -> str:
    into, out = (per_iteration(rows, name) or 0.0 for name in ("bytes_in", "bytes_out"))
    return f"{human_bytes(into)} in, {human_bytes(out)} out"


def _ms(seconds: float) -> str:
    return f"{_rounded(1e3 * seconds)} ms"


def _rounded(value: float) -> str:
    return number(float(f"{value:.3g}"))
