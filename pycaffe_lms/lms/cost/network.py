"""Predict the iteration of a data-parallel training on many GPUs: sums of gradients and what they delay. Pure.

`all_reduce` follows NCCL's own model of a sum, with the formulas and constants of its `src/graph/tuning.cc`; what bus
bandwidth means says nccl-tests' PERFORMANCE.md. `predict` follows the sums of one iteration beside its backward.
docs/scaling.md states the formulas and compares predictions with measurements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import UsageError
from .machine import Machine

_US = 1e-6
_LL128_CAPABILITY = 7.0
_UNITS = {"GB/s": 1e9, "MB/s": 1e6, "Gbit/s": 1e9 / 8, "Mbit/s": 1e6 / 8}


@dataclass(frozen=True)
class Cluster:
    """Describe what ranks run on.

    Attributes:
        ranks: GPUs in all, one rank each.
        node_gpus: GPUs of a node.
        network: bytes per second that a node sends, and receives at the same time, over all its network cards.
    """

    ranks: int
    node_gpus: int
    network: float

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return -(-self.ranks // self.node_gpus)

    @property
    def local(self) -> int:
        """Return the number of ranks of a node."""
        return min(self.ranks, self.node_gpus)


@dataclass(frozen=True)
class Protocol:
    """Describe how NCCL moves data: `latency` in microseconds to begin, then per step over NVLink, PCIe and network."""

    name: str
    begin: float
    nvlink: float
    pcie: float
    network: float
    share: float  # of the bus bandwidth that it reaches


RING = (
    Protocol("ring, LL", 6.6, 0.6, 1.0, 2.7, 1 / 2),
    Protocol("ring, LL128", 14.0, 1.9, 2.5, 4.0, 0.92),
    Protocol("ring", 8.4, 3.4, 5.7, 14.0, 1.0),
)
TREE = (
    Protocol("tree, LL", 6.8, 0.6, 1.0, 5.0, 0.92 / 3.8),
    Protocol("tree, LL128", 14.0, 1.25, 1.9, 8.5, 0.92 * 120 / 128),
    Protocol("tree", 8.4, 4.0, 4.0, 14.0, 0.92),
)


@dataclass(frozen=True)
class AllReduce:
    """Hold the prediction of one sum: its seconds, those of them that are latency, and NCCL's name for how it is done.

    link: seconds for which it would keep the link to the host busy if it had it alone."""

    seconds: float
    latency: float
    how: str
    link: float


def all_reduce(nbytes: int, cluster: Cluster, machine: Machine, *, gather: bool = False) -> AllReduce:
    """Predict the sum of an array of `nbytes` over all ranks: the fastest of NCCL's algorithms and protocols.

    gather: instead, every rank receives the arrays of all, of `nbytes` together. NCCL has rings for that, which go
    round once where those of a sum go round twice."""
    n, nodes, local = cluster.ranks, cluster.nodes, cluster.local
    rounds = 1 if gather else 2
    if n < 2:
        return AllReduce(0.0, 0.0, "", 0.0)
    link = min(machine.link_in, machine.link_out, machine.link_both / 2)
    inside = (machine.nvlink or link) if local > 1 else float("inf")
    outside = cluster.network if nodes > 1 else float("inf")
    ring_bus = min(inside, outside)
    tree_bus = min(inside, outside * 2 if nodes == 2 else outside)  # of two nodes, each is the root of one tree
    found = []
    for algorithm, bus, ratio in ((RING, ring_bus, n / (rounds * (n - 1))), (TREE, tree_bus, 1 / 2)):
        for p in algorithm if algorithm is RING or not gather else ():
            if p.name.endswith("LL128") and not (machine.nvlink and machine.capability >= _LL128_CAPABILITY):
                continue
            step = p.nvlink if machine.nvlink else p.pcie
            if algorithm is RING:
                steps = rounds * ((n - nodes) * step + (nodes - 1) * p.network)
            else:
                steps = 2 * ((local - 1) * step + (nodes.bit_length() - 1) * p.network)
            latency = _US * (p.begin + steps)
            found.append((latency + nbytes / (bus * p.share * ratio), latency, p.name))
    seconds, latency, how = min(found)
    moved = rounds * (n - 1) / n * nbytes
    # Without NVLink every rank sends and receives this much; with it, the network's part is divided among the node's.
    over_link = moved if not machine.nvlink else moved / local if nodes > 1 else 0.0
    return AllReduce(seconds, latency, how, over_link / link)


@dataclass(frozen=True)
class Sum:
    """Describe the sum of one bucket of gradients in an iteration, or an exchange of a layer.

    Attributes:
        nbytes: of its gradients; of an exchange, those that each rank gives.
        ready: seconds from the iteration's start to the end of the step that completes them, without sums.
        scaling: seconds of the kernels that divide the sum by the number of ranks, unless that is a power of two: then
            NCCL makes the mean.
        beside: it runs beside the backward; else the next step waits for it (the gradients are managed by LMS).
        layer: it is an exchange of a layer, such as a synchronised BatchNorm.
        gathered: the exchange gathers the ranks' arrays; else it sums them.
    """

    nbytes: int
    ready: float
    scaling: float
    beside: bool
    layer: bool = False
    gathered: bool = False


@dataclass(frozen=True)
class Timeline:
    """Hold the iteration of one of several ranks as it would be if sums took no time, in seconds from its start.

    Attributes:
        sums: in the order in which they are made.
        joined: when the updates begin, which wait for all sums.
        seconds: of the iteration.
        copies: (start, end) of copies of LMS between device and host, sorted by start.
        busy: seconds for which the busier direction of the link copies.
    """

    sums: Sequence[Sum]
    joined: float
    seconds: float
    copies: Sequence[tuple[float, float]] = ()
    busy: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """Hold the prediction of an iteration of a data-parallel training, in seconds.

    Attributes:
        seconds: of the iteration.
        alone: of the iteration of one GPU without other ranks.
        summing: of all sums together.
        latency: part of `summing` that does not depend on the gradients' sizes.
        waiting: by which sums make the iteration longer than `Timeline.seconds`.
        between: part of `waiting` of sums between backward steps, of gradients that LMS manages.
        layers: part of `waiting` of exchanges of layers.
        link: by which copies and sums, which share the link to the host, make it longer still.
    """

    cluster: Cluster
    seconds: float
    alone: float
    summing: float
    latency: float
    waiting: float
    between: float
    layers: float
    link: float

    @property
    def efficiency(self) -> float:
        """Return the images per second of a GPU over those of one without other ranks."""
        return self.alone / self.seconds

    def limit(self, machine: Machine) -> str:
        """Return what makes it slower than one GPU, in a few words."""
        over = self.seconds - self.alone
        if over <= 0.01 * self.seconds:
            return "the layers"
        if self.link > max(self.waiting, over / 2):
            return "copies and sums on one link"
        if self.layers > self.waiting / 2:
            return "exchanges of layers"
        if self.latency > self.summing / 2:
            return "latency of the sums"
        if self.between > self.waiting / 2:
            return "sums of managed gradients"
        inside = machine.nvlink or machine.link_both / 2
        if self.cluster.nodes > 1 and self.cluster.network <= inside:
            return "the network"
        return "NVLink" if machine.nvlink else "PCIe"


def predict(timeline: Timeline, alone: float, cluster: Cluster, machine: Machine) -> Prediction:
    """Predict an iteration on all ranks of a cluster.

    Sums follow each other. One beside the backward starts when its gradients are complete, and the updates wait for the
    last one. While LMS copies, a sum has half of the link to the host. The iteration is never shorter than what copies
    and sums need of that link together.

    Args:
        alone: seconds of the iteration of one GPU without other ranks.
    """
    if cluster.ranks < 2:
        return Prediction(cluster, alone, alone, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    free = delay = summing = latency = between = layers = link = 0.0
    averages = cluster.ranks & (cluster.ranks - 1) == 0
    for s in timeline.sums:
        one = all_reduce(s.nbytes * (cluster.ranks if s.gathered else 1), cluster, machine, gather=s.gathered)
        ready = s.ready + delay
        begin = max(free, ready)
        copies = [(start + delay, end + delay) for start, end in timeline.copies]
        free = _end(begin, one, copies) + (0.0 if averages else s.scaling)
        summing, latency, link = summing + one.seconds, latency + one.latency, link + one.link
        if not s.beside:
            between += 0.0 if s.layer else free - ready
            layers += free - ready if s.layer else 0.0
            delay += free - ready
    waiting = delay + max(0.0, free - (timeline.joined + delay))
    seconds = timeline.seconds + waiting
    late = max(0.0, timeline.busy + link - seconds) if timeline.copies else 0.0
    return Prediction(cluster, seconds + late, alone, summing, latency, waiting, between, layers, late)


def _end(begin: float, one: AllReduce, copies: Sequence[tuple[float, float]]) -> float:
    """Return when a sum ends that has half of the link to the host while copies run."""
    slowed = min(1.0, one.seconds / (2 * one.link)) if one.link else 1.0
    if slowed == 1.0:
        return begin + one.seconds
    now, left = begin, one.seconds
    for start, end in _joined(copies):
        if end <= now:
            continue
        if start > now:
            if left <= start - now:
                break
            left, now = left - (start - now), start
        if left <= (end - now) * slowed:
            return now + left / slowed
        left, now = left - (end - now) * slowed, end
    return now + left


def _joined(spans: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the union of spans, which are sorted by start."""
    begin = until = 0.0
    for start, end in spans:
        if start > until:
            if until > begin:
                yield begin, until
            begin = start
        until = max(until, end)
    if until > begin:
        yield begin, until


def parse_ranks(text: str, node_gpus: int) -> list[int]:
    """Return the numbers of ranks of "64" or "8,16,32". Raises UsageError, also where nodes would not be full."""
    example = "for example -ranks 64, or -ranks 8,16,32,64"
    if not re.fullmatch(r"\d{1,7}(,\d{1,7})*", text):
        raise UsageError(f"-ranks {text!r} is not a number of GPUs, nor several with commas", fix=example)
    found = [int(number) for number in text.split(",")]
    for ranks in found:
        if ranks < 1:
            raise UsageError(f"-ranks {text!r}: at least one GPU trains", fix=example)
        if ranks > node_gpus and ranks % node_gpus:
            raise UsageError(
                f"-ranks {ranks} does not fill nodes of {node_gpus} GPUs",
                fix=f"-ranks {-(-ranks // node_gpus) * node_gpus}, or -node_gpus with a number that divides it",
            )
    return found


def parse_network(text: str) -> float:
    """Return the bytes per second of "50GB/s" or "400Gbit/s" (powers of 1000). Raises UsageError."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+/s)\s*", text)
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise UsageError(
            f"-network {text[:40]!r} is no rate",
            fix="give what a node sends per second over all its network cards, for example -network 50GB/s or "
            "-network 400Gbit/s",
        )
    return float(match[1]) * _UNITS[match[2]]
