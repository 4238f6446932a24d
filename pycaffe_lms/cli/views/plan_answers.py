"""Answer what `plan` asks of a net, as numbers ready for JSON: from the cache where the same was asked before.

The net is built in any case, so that its errors come, and because the shapes of its blobs are part of the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from ... import errors
from ...errors import CaffeError, Where
from ...lms.cost.network import Cluster, Prediction, predict
from ...lms.plan.statistics import plan_statistics
from ...lms.report.text import step_table
from ...log import only_warnings
from ...net.memory.forecast import InCore, Least
from ...net.memory.micro_batch_choice import describe
from ...net.net import Net
from ...net.program.split_backward import split_backward_count
from .answer_cache import AnswerCache
from .plan_nets import Nets, Outcome, Tail
from .side_by_side import side_by_side

Numbers = dict[str, Any]
_LARGE = 150  # layers; only of such a net it pays to ask in two processes


class Page(NamedTuple):
    """Hold what the page shows: answers by the names of the questions.

    None: `least` with Large Model Support off, `largest` where it was not wanted.
    """

    outcome: Numbers
    largest: int | None
    least: tuple[Numbers, int | None] | None
    largest_without_lms: int | None


class Answers:
    """Answer questions about one net.

    Args:
        nets: builds it.
        cache: what was asked before. Nets with Python layers that run are always asked anew.
        outcome_wanted: the plan itself will be asked for (`Answers.found`), not only its numbers.
    """

    def __init__(self, nets: Nets, cache: AnswerCache, *, outcome_wanted: bool = False):
        self.nets, self._cache, self._wanted = nets, AnswerCache("off") if nets.python else cache, outcome_wanted
        self.found: Outcome | None = None  # what `Nets.planned` found for the last `outcome` that was computed
        self._questions: dict[int | None, Numbers] = {}
        self._built: dict[int | None, tuple[Net, Tail]] = {}  # for `_planned`
        self._cores: dict[int | None, InCore] = {}

    # -- questions ---------------------------------------------------------------------------------------------------
    def outcome(self, batch: int | None = None, *, steps: bool = False) -> Numbers:
        """Return what planning finds for a batch size (None: the net's own). steps: with the lines of `step_table`."""
        return self._with_core(self._planned(batch, steps), self._core(batch))

    def _planned(self, batch: int | None, steps: bool) -> Numbers:
        """Return what `outcome` does, but for what `_with_core` adds."""
        question = self._question(batch)

        def compute() -> Numbers:
            with only_warnings():
                self.found = found = self.nets.planned(batch, self._built.pop(batch, None))
            table = [] if found.plan is None or not steps else list(step_table(found.plan, found.times, found.steps))
            return numbers(found) | {"error": _described(found.refused), "table": table}

        if self._wanted:
            return compute()
        return dict(self._cache.answer(question | {"asked": "outcome", "table": steps}, compute))

    def _with_core(self, found: Numbers, core: InCore) -> Numbers:
        """Return the numbers of an outcome with those of its needs without Large Model Support."""
        ms, batch = 1e3 * core.seconds, found["batch"]
        found = found | {"in_core": {"bytes": core.nbytes, "ms": ms, "fits": self.nets.fits(core)}}
        if found["fits"] and found["ms"] is None:
            found |= {"ms": ms, "images_per_s": batch / core.seconds if batch and core.seconds else None}
        return found

    def least(self) -> tuple[Numbers, int | None]:
        """Return the least budget with layers whole, as `least_numbers`, and one with layers in parts, if they help."""
        question, core = self._question(None), self._core(None)

        def compute() -> list[Any]:
            with only_warnings():
                least = self.nets.least(core.nbytes)
                return [least_numbers(least), self.nets.least_in_parts(least.nbytes)]

        whole, parts = self._cache.answer(question | {"asked": "least"}, compute)
        return whole, parts

    def largest(self, start: int) -> tuple[int, str]:
        """Return the largest batch that fits, and why a larger one does not."""
        question = self._question(None)

        def compute() -> list[Any]:
            with only_warnings():
                return list(self.nets.largest(start))

        largest, why = self._cache.answer(question | {"asked": "largest", "start": start}, compute)
        return largest, why

    def largest_without_lms(self) -> int | None:
        """Return a batch that fits without Large Model Support, about the largest; 0: none was found.

        None: the net has no batch, or its own fits.
        """
        question, core = self._question(None), self._core(None)
        if not self.nets.batch or self.nets.fits(core):
            return None

        def compute() -> int:
            with only_warnings():
                return self.nets.largest_without_lms(core.nbytes)

        return int(self._cache.answer(question | {"asked": "largest without LMS"}, compute))

    def ranks(self, clusters: Sequence[Cluster]) -> list[Numbers]:
        """Return a prediction of a data-parallel training for each cluster, as `rank_numbers`."""
        question = self._question(None)

        def compute() -> list[Numbers]:
            alone = 1e-3 * self.outcome()["ms"]
            with only_warnings():
                timeline = self.nets.timeline()
            machine = self.nets.machine
            return [rank_numbers(predict(timeline, alone, c, machine), self.nets) for c in clusters]

        asked = {"asked": "ranks", "clusters": [asdict(c) for c in clusters]}
        return list(self._cache.answer(question | asked, compute))

    def page(self, *, steps: bool, largest: bool) -> Page:
        """Return what the page shows, of a large net found by two processes side by side.

        steps: as of `outcome`. largest: find the largest batch also where the net's own fits.
        """
        nets = self.nets
        layers = self._question(None)["layers"]  # for both processes

        def planned() -> tuple[Numbers, int | None]:
            found = self._planned(None, steps)
            wanted = largest or found["error"] is not None
            return found, self.largest(nets.batch)[0] if nets.batch and wanted else None

        works: list[Callable[[], Any]] = [planned, self.largest_without_lms]
        works += [self.least] if nets.lms.enabled else []
        works.append(partial(self._core, None))  # last: the other process begins with it, since its answers need it
        found, without, *least, core = side_by_side(works) if layers >= _LARGE else [work() for work in works]
        self._cores[None] = core
        return Page(self._with_core(found[0], core), found[1], least[0] if least else None, without)

    # -- what they depend on -----------------------------------------------------------------------------------------
    def _question(self, batch: int | None) -> Numbers:
        """Return what all questions about a batch size have in common."""
        if batch not in self._questions:
            nets = self.nets
            net, _ = self._built[batch] = nets.build(nets.lms, batch)
            self._questions[batch] = {
                "net": nets.message.SerializeToString(deterministic=True).hex(),
                "file": nets.parsed.filename,
                "lines": [nets.parsed.lines.layer(k) for k in range(len(nets.message.layer))],
                "shapes": [list(value.shape) for value in net.graph.values],
                "layers": len(net.graph.nodes),
                "batch": batch,
                "settings": nets.described(),
            }
        return self._questions[batch]

    def _core(self, batch: int | None) -> InCore:
        """Return what a batch size needs without Large Model Support."""
        if batch not in self._cores:

            def compute() -> list[float]:
                with only_warnings():
                    found = self.nets.in_core(batch)
                return [found.nbytes, found.seconds]

            nbytes, seconds = self._cache.answer(self._question(batch) | {"asked": "in_core"}, compute)
            self._cores[batch] = InCore(nbytes, seconds)
        return self._cores[batch]


# -- numbers -----------------------------------------------------------------------------------------------------------
def numbers(found: Outcome) -> Numbers:
    """Return an outcome of `Nets.planned` for JSON: bytes, milliseconds. ms: None where nothing is managed."""
    plan, graph = found.plan, found.net.graph
    result: Numbers = {
        "batch": found.batch,
        "fits": found.refused is None,
        "refused": None if found.refused is None else str(found.refused),
        "in_core": None,
        "device_bytes": found.device,
        "host_bytes": found.host,
        "ms": 1e3 * found.seconds if found.managed or found.refused is not None else None,
        "images_per_s": found.rate,
        "stall_ms": 1e3 * found.stall,
        "layers": len(graph.nodes),
    }
    if found.refused is None:
        result["parts"] = describe(graph, found.net.arrangement.micro_batched)
    if plan is not None and found.times is not None:
        again = [again for _, again in plan.order]
        result["plan"] = plan_statistics(plan)
        result["remat_ms"] = 1e3 * sum(t for t, a in zip(found.steps, again, strict=True) if a)
        result["busy_in_ms"], result["busy_out_ms"] = 1e3 * found.times.busy_in, 1e3 * found.times.busy_out
        result["layers_in_two_steps"] = split_backward_count(found.net.run_graph, plan.program)
        result["steps"] = [
            {
                "name": step.name,
                "again": again[s],
                "ms": 1e3 * found.steps[s],
                "stall_ms": 1e3 * found.times.stalls[s],
            }
            for s, step in enumerate(plan.program.steps)
        ]
    return result


def rank_numbers(found: Prediction, nets: Nets) -> Numbers:
    """Return a prediction for JSON: milliseconds, images per second of all ranks (None: the net has no batch)."""
    ranks = found.cluster.ranks
    return {
        "ranks": ranks,
        "nodes": found.cluster.nodes,
        "ms": 1e3 * found.seconds,
        "images_per_s": None if nets.batch is None else ranks * nets.batch / found.seconds,
        "efficiency": found.efficiency,
        "sums_ms": 1e3 * found.summing,
        "latency_ms": 1e3 * found.latency,
        "waiting_ms": 1e3 * (found.waiting + found.link),
        "limit": found.limit(nets.machine),
    }


def least_numbers(least: Least) -> Numbers:
    """Return a least budget for JSON: bytes."""
    return asdict(least) | {"layer": least.layer, "blobs": [{"name": name, "bytes": n} for name, n in least.blobs]}


# -- errors as numbers -------------------------------------------------------------------------------------------------
def _described(error: CaffeError | None) -> Numbers | None:
    """Return an error of memory as JSON, from which `error_of` makes it again."""
    if error is None:
        return None
    more = {name: getattr(error, name) for name in ("needed", "free")}
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "where": asdict(error.where),
        "fix": error.fix,
    } | more


def error_of(described: Numbers) -> CaffeError:
    """Return the error that `Answers.outcome` has under "error"."""
    kind: Callable[..., CaffeError] = getattr(errors, described["kind"])
    where = Where(**described["where"])
    return kind(
        described["message"], needed=described["needed"], free=described["free"], where=where, fix=described["fix"]
    )
