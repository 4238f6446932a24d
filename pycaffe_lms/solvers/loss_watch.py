"""Finds losses that are NaN or infinite, without waiting for the device, and the labels that name no class.

Behind every pass its losses are copied to the host; they are looked at when they have arrived, while later iterations
are queued. With them are kept the number of the iteration and the labels, if a layer on the host made them. The solver
decides by its `nan` what to do about a loss.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import HostArray
from ..errors import NonFiniteLoss, UsageError
from ..layers.base import Runs, count
from ..memory.states import Ask, State
from ..net.build.graph import Node, Value
from ..net.net import Net
from .events import Output

_log = logging.getLogger(__name__)

STOP, WARN, IGNORE = POLICIES = "stop", "warn", "ignore"
Policy = str | Callable[[NonFiniteLoss], object]  # one of POLICIES, or a function
_SLOTS = 8  # most passes whose losses are being copied; `note` waits for the oldest before it takes another
_MOST_LABELS = 1 << 20  # bytes of labels that are kept for each of them
_ON_DEVICE = (State.HEAD_AT_GPU, State.SYNCED)


@dataclass
class _Pass:
    """Hold what is kept of one forward. losses: of `LossWatch._tops`, valid once `event` is done. labels: by buffer."""

    iteration: int
    losses: list[HostArray]
    event: Any = None
    labels: dict[int, HostArray] = field(default_factory=dict)


class LossWatch:
    """Watch the losses of one net. Of losses that are not finite in a row only the first one is reported."""

    def __init__(self, net: Net):
        self._net = net
        self._memory: Callable[[], object] = lambda: None  # the net's memory for which the next attributes were made
        self._tops: list[tuple[Node, Value]] = []  # losses, and the layers that make them
        self._labels: list[Value] = []  # made on the host
        self._slots = np.empty((_SLOTS, 0), np.uint8)
        self._taken = 0
        self._passes: deque[_Pass] = deque()
        self._bad = False
        self._found: NonFiniteLoss | None = None

    # -- a solver's passes ------------------------------------------------------------------------------------------
    def note(self, iteration: int) -> None:
        """Take note of a forward of this iteration, the last work queued so far that writes losses or labels."""
        self._follow()
        if not self._tops:
            return
        if self._net.device.is_host:
            self._judge(_Pass(iteration, [self._read(value) for _, value in self._tops]), newest=True)
            return
        if len(self._passes) == _SLOTS:
            self._arrived(newest=False)
        slot, self._taken = self._slots[self._taken], (self._taken + 1) % _SLOTS
        noted, device, start = _Pass(iteration, []), self._net.device, 0
        with device.lock, device.active():
            for _, value in self._tops:
                memory = self._net.memory.memories[value.data]
                raw = slot[start : start + self._nbytes(value)]
                start += raw.size
                if memory.state in _ON_DEVICE and not memory.managed and memory.span is not None:
                    noted.event = device.copy_down(raw, memory.span)
                else:  # a layer on the host made it, or it is so large that plans move it: wait for it
                    memory.ask(Ask.READ_CPU)
                    raw[...] = memory.host_array((raw.size,), np.uint8)
                noted.losses.append(raw.view(self._net.dtype))
        for value in self._labels:
            made = self._net.memory.memories[value.data].last_on_host
            if made is not None:
                noted.labels[value.data] = made[: self._nbytes(value)].view(self._net.dtype).copy()
        self._passes.append(noted)

    def look(self, wait: bool) -> NonFiniteLoss | None:
        """Return the error to report of passes whose losses have arrived. wait: for all that were noted."""
        while self._passes and (wait or self._passes[0].event is None or self._passes[0].event.done):
            self._arrived(newest=len(self._passes) == 1)
        found, self._found = self._found, None
        return found

    def known(self, iteration: int) -> bool:
        """Return whether the losses of all passes before this iteration were looked at."""
        return not self._passes or self._passes[0].iteration >= iteration

    # -- a test's batches -------------------------------------------------------------------------------------------
    def inspect(self, when: str) -> NonFiniteLoss | None:
        """Return the error to report, once, of the forward that ran last: of its losses, and of outputs of layers that
        read labels (Accuracy). when: what the message calls the pass, such as "batch 3"."""
        if self._bad:
            return None
        net, values = self._net, self._net.graph.values
        for node in net.graph.nodes:
            for value in (values[t] for t in node.tops):
                if value.loss_weight or (node.layer.labels and value.name in net.outputs):
                    seen = self._read(value)
                    if not np.isfinite(seen).all():
                        self._bad = True
                        return self._error(node, value, seen, when, {}, newest=True)
        return None

    def warn_of_batch(self, outputs: Iterable[Output], when: str) -> None:
        """Log what is wrong with a test's batch, if anything. outputs: of the batch."""
        if not all(math.isfinite(output.value) for output in outputs):
            error = self.inspect(when)
            if error is not None:
                warn(error)

    # -- inside -----------------------------------------------------------------------------------------------------
    def _follow(self) -> None:
        """Find losses and labels anew where a reshape gave the net another memory."""
        net = self._net
        if self._memory() is net.memory:
            return
        while self._passes:
            self._arrived(newest=False)
        self._memory = weakref.ref(net.memory)
        nodes, values = net.graph.nodes, net.graph.values
        self._tops = [(node, values[t]) for node in nodes for t in node.tops if values[t].loss_weight]
        made = self._made_on_host()
        read = {v.data: v for node, _ in self._tops if (v := self._labels_of(node)) is not None}
        self._labels = [v for b, v in read.items() if b in made and self._nbytes(v) <= _MOST_LABELS]
        if not net.device.is_host:
            size = sum(self._nbytes(value) for _, value in self._tops)
            self._slots = net.device.host_take(max(1, _SLOTS * size), pinned=True)[: _SLOTS * size].reshape(_SLOTS, -1)

    def _made_on_host(self) -> set[int]:
        """Return the buffers that only layers on the host write."""
        found: dict[Runs, set[int]] = {runs: set() for runs in Runs}
        for node in self._net.graph.nodes:
            found[node.layer.declares.runs_on] |= {self._net.graph.values[t].data for t in node.tops}
        return found[Runs.HOST] - found[Runs.DEVICE]

    def _nbytes(self, value: Value) -> int:
        return int(count(value.shape) * self._net.dtype.itemsize)

    def _labels_of(self, node: Node) -> Value | None:
        labels = node.layer.labels
        return None if labels is None else self._net.graph.values[node.bottoms[labels.bottom]]

    def _read(self, value: Value) -> HostArray:
        memory = self._net.memory.memories[value.data]
        memory.ask(Ask.READ_CPU)
        return memory.host_array(value.shape, self._net.dtype)

    def _arrived(self, newest: bool) -> None:
        noted = self._passes.popleft()
        if noted.event is not None:
            self._net.device.wait_host(noted.event)
        self._judge(noted, newest)

    def _judge(self, noted: _Pass, newest: bool) -> None:
        bad = next((i for i, loss in enumerate(noted.losses) if not np.isfinite(loss).all()), None)
        if bad is not None and not self._bad:
            when = f"iteration {noted.iteration}"
            error = self._error(*self._tops[bad], noted.losses[bad], when, noted.labels, newest)
            error.iteration = noted.iteration
            self._found = self._found or error
        self._bad = bad is not None

    def _error(
        self, node: Node, value: Value, seen: HostArray, when: str, labels: dict[int, HostArray], newest: bool
    ) -> NonFiniteLoss:
        """Return the error about a top of a layer.

        Args:
            seen: values of the top, not all of them finite.
            labels: copies of labels, by buffer.
            newest: no forward ran since, so labels that were not copied can still be read.
        """
        number = float(seen[~np.isfinite(seen)].flat[0])
        text = f"{when}: {'the loss' if value.loss_weight else value.name} is {number:g}"
        others = [n for n, _ in self._tops if n is not node]
        label: float | None = None
        classes: int | None = None
        blob: str | None = None
        for reader in (node, *others):
            rule = reader.layer.labels
            given = None if rule is None else self._given_labels(reader, labels, newest)
            if rule is None or given is None or not (outside := rule.outside(given)).size:
                continue
            label, classes = float(given.reshape(-1)[outside[0]]), rule.classes
            whose = "" if reader is node else f' of layer "{reader.name}"'
            more = f" (and {outside.size - 1} more)" if outside.size > 1 else ""
            text += f": label {label:g}{whose}, at position {outside[0]} of {given.size}{more}, "
            text += f"is none of the {classes} classes 0 to {classes - 1}"
            fix = "correct the labels, give the layer scores of as many classes as there are, or set ignore_label"
            read = reader.layer.param.bottom[rule.bottom]
            blob = self._net.split_names().get(read, read)
            break
        else:
            fix = "lower base_lr or set clip_gradients; debug_info: true names the layer that makes the first nan"
        error = NonFiniteLoss(text, fix=fix).at(layer=node.layer.name, type=node.layer.param.type, blob=blob)
        error.loss, error.label, error.classes = number, label, classes
        return self._net.graph.place(error, self._net.file)

    def _given_labels(self, node: Node, copies: dict[int, HostArray], newest: bool) -> HostArray | None:
        """Return the labels that a layer read; None where they are gone."""
        value = self._labels_of(node)
        if value is None or value.data in copies or not newest:
            return None if value is None else copies.get(value.data)
        memory = self._net.memory.memories[value.data]
        if memory.state is not State.DISCARDED:
            return self._read(value)
        if memory.last_on_host is None or value.data not in self._made_on_host():
            return None
        return memory.host_array(value.shape, self._net.dtype)


def check_policy(policy: Policy) -> None:
    """Raise UsageError for what is not a policy."""
    if not callable(policy) and policy not in POLICIES:
        raise UsageError(f"nan: {policy!r} is not a policy", fix=f"use one of {', '.join(POLICIES)}, or a function")


def warn(error: NonFiniteLoss) -> None:
    """Log an error as a warning of one line."""
    _log.warning("%s: %s (%s)", error.where, error.message, error.fix)
