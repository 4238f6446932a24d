"""Runs single steps: prepares the buffers that a step accesses, then calls the layer on its arrays.

`Executor.run` is the entry point; `_forward_pass` and `_backward_pass` collect the arrays. See also:
`../../memory/states.py` (the state machine), `../program/steps.py` (what a step declares), `recording.py` (whole runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial

from ...activity import activity
from ...arrays import AnyArray, DType
from ...backend.device import Device
from ...errors import CaffeError
from ...layers.base import Gradients, Layer, Needs, Pass, Shape, ShapesChanged, count
from ...lms.program import Mode, Step
from ...memory.states import Ask
from ...memory.synced import SyncedMemory
from ...ops import ops_of
from ...ops.axes import memory_shape
from ..build.graph import Graph, Node
from ..passes.memory_order import matters
from ..passes.order_copies import Copies
from ..passes.param_order import ParamCopies, stored_shape
from ..passes.precision import type_of
from ..program.buffer_views import in_place, place_of
from ..program.steps import LayerStep, node_of, wants

GPU_ASKS = {Mode.READ: Ask.READ_GPU, Mode.UPDATE: Ask.WRITE_GPU, Mode.OVERWRITE: Ask.OVERWRITE_GPU}
_CPU = {Mode.READ: Ask.READ_CPU, Mode.UPDATE: Ask.WRITE_CPU, Mode.OVERWRITE: Ask.OVERWRITE_CPU}


class Branch:
    """Fork work to the branch stream of a device and join it."""

    def __init__(self, device: Device):
        self._device = device
        self._busy = False  # whether the compute stream has yet to wait for the branch

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Queue the work of this context on the branch stream; only while a CUDA graph is captured.

        Outside a capture the extra events would cost the host time, so the work stays on the compute stream.
        """
        device = self._device
        if not device.capturing:
            yield
            return
        device.wait(device.branch, device.record(device.compute))
        self._busy = True
        with device.on(device.branch):
            yield

    def join(self) -> None:
        """Let the compute stream wait for the branch, if there was work on it."""
        if self._busy:
            self._busy = False
            self._device.wait(self._device.compute, self._device.record(self._device.branch))


class Executor:
    """Run the steps of a net's programs. graph: the wired net. memories: SyncedMemory by buffer id."""

    def __init__(self, graph: Graph, memories: Mapping[int, SyncedMemory], device: Device, dtype: DType):
        self.graph, self.memories, self.device, self.dtype = graph, memories, device, dtype
        self._arrays: dict[tuple[int, Shape, int, int], AnyArray] = {}
        self._passes: dict[int, tuple[LayerStep, list[int], Pass]] = {}  # by id of the step: step, addresses, arrays
        self._branch = Branch(device)
        self._some_wait = any(node.waiting is not None for node in graph.nodes)
        self._copies: dict[int, list[Copies | ParamCopies]] = {}  # by id of the node, inner ones first
        for node in graph.everyone():
            copies = [made for made in (ParamCopies(graph, node), Copies(graph, node)) if made]
            if copies:
                self._copies[id(node)] = copies

    def run(self, step: LayerStep) -> None:
        """Run one forward or backward of one layer. Errors get the layer's name, type and line."""
        node = node_of(self.graph, step)
        activity.layer = node.name
        try:
            if self._some_wait:
                self._refuse_waiting(node)
            self.ask(step.step)
            on_host = step.step.host or self.device.is_host
            if step.look:
                looked = [node.bottoms[i] for i in sorted(node.layer.declares.dynamic_shape_bottoms)]
                node.layer.read_dynamic_shapes([self._value(node, step, True, b, "data") for b in looked])
            elif step.zero:
                self._clear(node, step, on_host)
            else:
                self._run_pass(node, step, self._pass(node, step, on_host))
            activity.layer = ""
            activity.passes += 1
        except CaffeError as error:
            error.at(layer=node.name, type=node.layer.param.type, line=node.line)
            raise
        except ShapesChanged as change:
            change.node = node.origin
            raise

    def _refuse_waiting(self, node: Node) -> None:
        """Raise the error for which a layer, or one of a group, is waiting, see `Graph.infer_shapes`."""
        for each in (node, *(self.graph.nodes[m] for m in node.members)):
            if each.waiting is not None:
                raise each.waiting.error

    def _run_pass(self, node: Node, step: LayerStep, io: Pass) -> None:
        """Queue a layer's pass, on copies of arrays that the layer expects in another memory order or type."""
        layer = node.layer
        work: Callable[[Pass], None]
        if step.prepares:
            work = layer.prepare
        elif step.finishes:
            work = layer.finish
        elif step.forward:
            work = layer.rematerialize if step.again else layer.forward
        else:
            work = partial(self._backward, layer)
        for copies in self._copies.get(id(node), ()):
            work = partial(copies.forward if step.forward else copies.backward, run=work)
        work(io)

    def ask(self, step: Step) -> None:
        """Bring every buffer that the step accesses into the state that the access needs."""
        asks = _CPU if step.host or self.device.is_host else GPU_ASKS
        for access in step.accesses:
            self.memories[access.buffer].ask(asks[access.mode])

    def array(self, buffer: int, shape: Shape, dtype: DType, on_host: bool, start: int = 0) -> AnyArray:
        """Return a buffer as an array of `shape` from element `start` on, on the host or the device."""
        memory = self.memories[buffer]
        if on_host:
            return memory.host_array(shape, dtype, start)
        assert memory.span is not None, "asked for before"
        key = (buffer, shape, self.device.place(memory.span), start)
        found = self._arrays.get(key)
        if found is None:
            found = self._arrays[key] = memory.device_array(shape, dtype, start)
        return found

    def _pass(self, node: Node, step: LayerStep, on_host: bool) -> Pass:
        """Return the arrays for one pass of a layer; on the device, those of the last time if no address changed.

        Layers with order copies get new ones each time, because the copies replace arrays in them.
        """
        make = self._forward_pass if step.forward else self._backward_pass
        if on_host or id(node) in self._copies:
            return make(node, step, on_host)
        spans = (self.memories[access.buffer].span for access in step.step.accesses)
        addresses = [self.device.place(span) for span in spans if span is not None]
        known = self._passes.get(id(step))
        if known is None or known[1] != addresses:
            known = self._passes[id(step)] = step, addresses, make(node, step, on_host)
        return known[2]

    def forget(self) -> None:
        """Drop cached arrays, because programs changed."""
        self._passes.clear()
        self._arrays.clear()

    def _forward_pass(self, node: Node, step: LayerStep, on_host: bool) -> Pass:
        layer, graph, value = node.layer, self.graph, partial(self._value, node, step, on_host)
        touched = {a.buffer for a in (step.without_views or step.step).accesses}
        settled = in_place(graph, node, True) if step.without_views is not None else frozenset()  # views: need no copy
        skip_bottoms, skip_tops = (settled, frozenset()) if len(node.bottoms) > 1 else (frozenset(), settled)
        needs = layer.remat_needs() if step.again else layer.forward_needs()
        if step.prepares or step.finishes:
            needs = layer.prepare_needs() if step.prepares else Needs()
        assert needs is not None, "only layers that can run again are rematerialized, or have a step that prepares"
        updates = frozenset() if step.again or step.prepares or step.finishes else layer.forward_updates()
        return Pass(
            ops=ops_of(self.device),
            bottom=[
                value(b, "data") if i in needs.bottoms - skip_bottoms else None for i, b in enumerate(node.bottoms)
            ],
            top=[
                value(t, "data") if graph.values[t].data in touched and j not in skip_tops else None
                for j, t in enumerate(node.tops)
            ],
            param=[
                self._param(node, i, "data", on_host) if i in needs.params or i in updates else None
                for i in range(len(node.params))
            ],
            scratch=self._scratch(node, None, on_host, step.step.host),
        )

    def _backward_pass(self, node: Node, step: LayerStep, on_host: bool) -> Pass:
        layer, value = node.layer, partial(self._value, node, step, on_host)
        joins = step.without_views is not None and len(node.bottoms) > 1
        settled = in_place(self.graph, node, False) if joins else frozenset()
        propagate, param_propagate = wants(node, step.makes)
        needs = layer.backward_needs(propagate, param_propagate)
        return Pass(
            ops=ops_of(self.device),
            bottom=[value(b, "data") if i in needs.bottoms else None for i, b in enumerate(node.bottoms)],
            top=[value(t, "data") if i in needs.tops else None for i, t in enumerate(node.tops)],
            param=[
                self._param(node, i, "data", on_host) if i in needs.params else None for i in range(len(node.params))
            ],
            scratch=self._scratch(node, step.makes, on_host),
            top_diff=[value(t, "diff") if here else None for t, here in zip(node.tops, step.top_diffs, strict=True)],
            bottom_diff=[
                value(b if other is None else other, "diff") if wanted and i not in settled else None
                for i, (b, other, wanted) in enumerate(zip(node.bottoms, step.joins, propagate, strict=True))
            ],
            bottom_adds=[other is not None for other in step.joins],
            param_diff=[
                self._param(node, i, "diff", on_host) if wanted else None for i, wanted in enumerate(param_propagate)
            ],
            accumulate=list(step.accumulate),
            later=[value(v, which) for v, which in node.later],
            beside=self._branch.beside if step.makes is Gradients.ALL else nullcontext,
        )

    def _backward(self, layer: Layer, io: Pass) -> None:
        try:
            layer.backward(io)
        finally:
            self._branch.join()

    def _value(self, node: Node, step: LayerStep, on_host: bool, v: int, which: str) -> AnyArray:
        """Return a value as stored; if both orders are the same in memory, in the order that the layer expects."""
        value = self.graph.values[v]
        last = value.channels_last if matters(value.shape) else node.channels_last
        shape = memory_shape(value.shape, last)
        place = place_of(self.graph, step, getattr(value, which))
        first = value.rows[0] * count(shape, 1) if value.rows else 0
        return self.array(place.buffer, shape, type_of(value, self.dtype), on_host, place.start + first)

    def _param(self, node: Node, i: int, which: str, on_host: bool) -> AnyArray:
        param = self.graph.params[node.params[i]]
        return self.array(getattr(param, which), stored_shape(self.graph, node, i), self.dtype, on_host)

    def _scratch(
        self, node: Node, makes: Gradients | None, on_host: bool, host_step: bool = False
    ) -> dict[str, AnyArray]:
        """Return the scratch arrays of a pass by name. makes: the gradients a backward makes; None: a forward."""
        prepares = makes is None and node.layer.prepare_needs() is not None
        return {
            name: self.array(node.scratch[name], scratch.shape, scratch.dtype, on_host)
            for name, scratch in node.layer.scratches.items()
            if (scratch.used_in_forward(prepares, host_step) if makes is None else scratch.used_for(makes))
        }

    def _clear(self, node: Node, step: LayerStep, on_host: bool) -> None:
        ops = ops_of(self.device)
        for i, (b, wanted) in enumerate(zip(node.bottoms, node.propagate, strict=True)):
            if node.adds and node.adds[i]:
                continue  # a later slab wrote its gradient
            if wanted and on_host:
                self._value(node, step, True, b, "diff").fill(0)
            elif wanted:
                ops.fill(self._value(node, step, False, b, "diff"), 0.0)
