"""Arranges a net's graph for its current shapes: what runs as one, where each value lies, which steps a program has.

An `Arrangement` is made anew after every reshape and takes no memory: layers in micro-batches or blocks, fused chains,
scratch, buffers, buffer views. `memory/choice.py` then says which memory the buffers get, and `Net` runs the programs
that the arrangement makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..errors import CaffeError
from ..layers.base import Lives, Runs
from ..layers.sizes import check_scratch
from ..lms.program import Buffer, BufferKind, Step, kind_of
from ..lms.runtime.runtime import Runtime
from ..ops import NotBuilt, ops_of
from .build.gradients import shown_gradients
from .build.graph import Graph, Node, Param, Value
from .memory.choice import MemoryChoice, choose_memory
from .memory.micro_batch_choice import Splitting
from .passes import param_order
from .passes.fusion import find_groups
from .passes.masks import mask_layers
from .passes.micro_batch import MicroBatchedGraph, split_values, widened, with_micro_batches
from .passes.order_copies import request_copies
from .passes.slabs import with_slabs
from .program.buffer_views import choose_views
from .program.buffers import BufferTable, assign
from .program.lms_requests import asked_by_layers
from .program.programs import AnyStep, HostedStep, ProgramBuilder, Sequenced, SplitBackward, sequence
from .program.step_order import delayed, with_updates
from .program.steps import LayerStep
from .tuning import Tuning

# scratch that outlives an iteration, or that the host touches
_LASTING = (Lives.STATE, Lives.STEP_SCALAR, Lives.PREPARED, Lives.MADE)


@dataclass
class Kept:
    """Hold the names of blobs whose values, or gradients, stay readable after a solver's iteration."""

    data: set[str] = field(default_factory=set)
    diff: set[str] = field(default_factory=set)

    def add(self, more: Kept) -> None:
        """Keep these, too."""
        self.data |= more.data
        self.diff |= more.diff


def _arranged(graph: Graph, splitting: Splitting) -> MicroBatchedGraph:
    """Return the graph that runs."""
    slabs = splitting.slabs(graph)
    if slabs > 1:
        return with_slabs(graph, slabs, splitting.blocks(graph))
    return with_micro_batches(graph, splitting.parts(graph), splitting.blocks(graph))


class Arrangement:
    """Decide how a graph runs, and make its programs.

    Attributes:
        graph: the user's graph; run_graph: the one that runs, whose layers may be micro-batches or blocks of others.
        micro_batched: which parts of `run_graph` belong to which layers and values of `graph`.
        table: all buffers of `run_graph`.
        builder: makes the steps of layers.
        kept: blobs that stay readable after a solver's iteration; names added later count for the programs made from
            then on.

    Args:
        splitting: how many parts each layer runs in.
        forward_only: only forwards count, as of a solver's test nets.
        file: the prototxt, for errors.
    """

    def __init__(
        self,
        graph: Graph,
        runtime: Runtime,
        dtype: np.dtype,
        tuning: Tuning,
        splitting: Splitting,
        kept: Kept,
        forward_only: bool,
        file: str | None,
    ):
        self.graph, self.dtype, self.tuning = graph, dtype, tuning
        self._runtime, self._device = runtime, runtime.device
        self.kept, self._forward_only, self._file = kept, forward_only, file
        self.micro_batched = _arranged(graph, splitting)
        self.run_graph = self.micro_batched.graph
        for node in graph.nodes:
            node.layer.scratches.clear()  # also for layers that run in parts
        self.table = self._assign_buffers()
        self._split_values = [*split_values(graph, self.micro_batched), *widened(graph, self.table.buffers)]
        self.builder = ProgramBuilder(self.run_graph, join=tuning.fuse)
        with self._placed():
            self._choose_views()

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Complete errors raised inside: file, line and type of the layer."""
        try:
            yield
        except CaffeError as error:
            self.run_graph.place(error, self._file)
            raise

    # -- buffers ----------------------------------------------------------------------------------------------------
    def _assign_buffers(self) -> BufferTable:
        """Choose fused chains, scratch of layers and bit masks, and return the table of all buffers."""
        graph, config = self.run_graph, self._runtime.config
        kept = self._kept_values(), self._kept_gradients(), self.micro_batched.names(self.kept.diff)
        graph.groups = find_groups(graph, *kept) if self.tuning.fuse else []
        inside = {m for group in graph.groups for m in group.members}
        for node in graph.nodes:
            if node.layer.context.by_hand is not (node.index in inside):
                node.layer.update_context(by_hand=node.index in inside)
        self._declare(graph, graph.everyone())
        table = assign(graph, self.dtype.itemsize)
        if self.tuning.masks and not self._forward_only:
            with self._placed():
                resident = {b for b, managed in asked_by_layers(graph, config).items() if not managed}
            resident |= self._lasting()
            least = config.min_bytes if self._runtime.active else None
            masked = mask_layers(graph, table.buffers, least, resident)
            if masked:
                self._declare(graph, masked)
                table = assign(graph, self.dtype.itemsize)
        return table

    def _choose_views(self) -> None:
        """Choose which values become buffer views into others, if the net is tuned to drop values in an iteration."""
        graph = self.run_graph
        graph.views = {}
        dropped = self.tuning.fuse and (self.tuning.pack or self._runtime.active)
        if dropped and any(node.layer.view_offsets for node in graph.nodes):
            steps, excluded = self.all_steps(fused=True), asked_by_layers(graph, self._runtime.config).keys()
            keep = {"short_lived": self._packed(), "lasting": self._lasting(), "excluded": excluded}
            graph.views = choose_views(
                graph, steps, self.table.buffers, dtype=self.dtype, managed=self._runtime.active, **keep
            )

    def _declare(self, graph: Graph, nodes: Iterable[Node]) -> None:
        """Let layers declare their scratch for the current shapes."""
        ops, complete = ops_of(self._device), True
        for node in nodes:
            node.layer.scratches.clear()
            shapes = [graph.values[b].shape for b in node.bottoms]
            if node.waiting is not None:
                shapes = node.waiting.shapes
            try:
                with self._device.active():
                    node.layer.declare(shapes, [graph.values[t].shape for t in node.tops], ops)
                check_scratch(node.layer)
                request_copies(graph, node)
                param_order.request_copies(graph, node)
            except NotBuilt:
                complete = False  # the others are asked all the same
            except CaffeError as error:
                error.at(file=self._file, line=node.line, layer=node.name)
                raise
        if not complete:
            raise NotBuilt

    def _kept_values(self) -> set[str]:
        """Return the names of values of `run_graph` that belong to blobs whose values are kept."""
        return self.micro_batched.names(self.kept.data)

    def _kept_gradients(self) -> set[int]:
        """Return the ids of values of `run_graph` whose gradients are kept, since blobs show them."""
        shown = shown_gradients(self.graph) if self.kept.diff else {}
        return {v for name in self.kept.diff for v in self.micro_batched.values[shown[name]]}

    def _packed(self) -> frozenset[int]:
        """Return the buffers with a short live range in a solver's program.

        These are blobs and, with a backward, their gradients and the scratch that layers save for it.
        """
        graph = self.run_graph
        found = {v.data for v in graph.values}
        if not self._forward_only:
            found |= {v.diff for v in graph.values}
            for node in graph.everyone():
                found |= {node.scratch[s.name] for s in node.layer.scratches.values() if s.lives is Lives.SAVED}
        return frozenset(found) - self._lasting()

    def _lasting(self) -> frozenset[int]:
        """Return the buffers that outlive an iteration or that the host touches: kept blobs, data that the user or a
        data layer fills, outputs of the net, state of layers, blobs of host layers and those that give shapes."""
        graph, kept, gradients = self.run_graph, self._kept_values(), self.micro_batched.names(self.kept.diff)
        lasting = {v.data for v in graph.values if v.loss_weight or v.name in kept}
        lasting |= {v.diff for v in graph.values if v.loss_weight or v.name in gradients}
        for node in graph.nodes:
            if node.layer.declares.runs_on is Runs.HOST:  # its blobs are copied between host and device
                lasting |= {
                    i for v in (*node.bottoms, *node.tops) for i in (graph.values[v].data, graph.values[v].diff)
                }
            lasting |= {graph.values[node.bottoms[i]].data for i in node.layer.declares.dynamic_shape_bottoms}
        outside = {*graph.outputs, *graph.inputs}
        for v in graph.values:
            layer = graph.nodes[v.producer].layer
            if v.name in outside or not layer.rewrites(v.top) or layer.declares.is_net_input:
                lasting.add(v.data)
        for node in graph.everyone():
            scratches = node.layer.scratches.values()
            lasting |= {node.scratch[s.name] for s in scratches if s.lives in _LASTING}
        return frozenset(lasting)

    def short_lived(self) -> frozenset[int]:
        """Return the buffers that lose their values in a solver's program if the net is packed and LMS is off."""
        return frozenset() if self._runtime.active or self._device.is_host else self._packed()

    def lost_if_packed(self) -> Kept:
        """Return the blobs whose values, or gradients, a solver's iteration makes, but loses if the net is packed."""
        graph, whole, lost = self.run_graph, self.micro_batched.values, self.short_lived()
        inside = graph.inside_groups()

        def names(shown: Mapping[str, int], of: Callable[[Value], int]) -> set[str]:
            parts = {name: [graph.values[v] for v in whole[value]] for name, value in shown.items()}
            return {name for name, vs in parts.items() if any(of(v) in lost and v.id not in inside for v in vs)}

        return Kept(names(self.graph.last, lambda v: v.data), names(shown_gradients(self.graph), lambda v: v.diff))

    def pieces(self, param: Param) -> list[Param]:
        """Return the parameters of `run_graph` for one of `graph`: itself, or one per block of outputs, in order."""
        return [self.run_graph.params[p] for p in self.micro_batched.params[param.index]]

    def choose_memory(self) -> MemoryChoice:
        """Choose which memory each buffer gets. Raises CaffeError for a request of a layer that cannot be met."""
        steps = [step.step for step in self.all_steps(fused=True)]
        with self._placed():
            return choose_memory(
                self.run_graph,
                self.table,
                self._runtime,
                frozenset(self._used_buffers(steps)),
                self._packed() if self.tuning.pack else frozenset(),
                self._lasting(),
                steps,
                self._split_values,
            )

    def _used_buffers(self, steps: Sequence[Step]) -> set[int]:
        """Return the ids of buffers that get memory: those of steps, parameters, and blobs that users can read."""
        used = {a.buffer for step in steps for a in step.accesses}
        if not self._forward_only:  # updates write the gradient of every learning parameter, even if only for its decay
            used |= {p.diff for p in self.run_graph.learnable if p.lr_mult != 0}
        graph = self.run_graph
        inside = graph.inside_groups()
        shown = {graph.values[v].data for v in graph.last.values() if v not in inside}
        return used | {p.data for p in graph.params} | shown - graph.views.keys()

    # -- programs ---------------------------------------------------------------------------------------------------
    @property
    def split_backward(self) -> SplitBackward:
        """Return for which layers a solver's iteration may split the backward."""
        return {None: SplitBackward.LARGE, True: SplitBackward.ALL, False: SplitBackward.NONE}[
            self.tuning.split_backward
        ]

    def all_steps(self, *, fused: bool, split_backward: SplitBackward = SplitBackward.NONE) -> list[LayerStep]:
        """Return the steps of the widest program, fused as a solver runs it or by hand; see `ProgramBuilder`."""
        n = len(self.graph.nodes) - 1
        steps = self.builder.forward(0, n, fused=fused)
        if not self._forward_only and any(node.need_backward for node in self.graph.nodes):
            diffs = self.builder.loss_diffs()
            steps += self.builder.backward(n, 0, diffs, accumulate=True, fused=fused, split_backward=split_backward)
        return steps

    def forward(self, name: str, start: int, end: int) -> Sequenced:
        """Return the program `name`: the forward of layers start..end; every value survives."""
        return sequence(name, self.builder.forward(start, end), None)

    def test(self, name: str = "test", start: int = 0) -> Sequenced:
        """Return the program `name`: the forward from layer `start` on; outputs and kept blobs survive."""
        n = len(self.graph.nodes) - 1
        return sequence(name, self.builder.forward(start, n, fused=True), self._survivors())

    def whole_backward(self, *, accumulate: bool) -> list[LayerStep]:
        """Return the backward steps of all layers, not fused. accumulate: add to the parameters' gradients."""
        n = len(self.graph.nodes) - 1
        return self.builder.backward(n, 0, self.builder.loss_diffs(), accumulate=accumulate)

    def iteration(
        self,
        name: str,
        first: bool,
        tail: Sequence[HostedStep],
        buffers: Mapping[int, Buffer],
        start: int = 0,
        weave: Callable[[Sequence[LayerStep]], list[AnyStep]] | None = None,
    ) -> Sequenced:
        """Return the program `name`: an iteration from layer `start` on; with LMS, also its form with split backward.

        Args:
            first: overwrite parameter gradients instead of adding to them.
            tail: update steps.
            buffers: all buffers of the net, by id, those of the updates too.
            weave: adds to backward steps those that average gradients over all ranks (`Reduction.woven`); these may run
                on another stream, and updates wait for all of them.
        """
        n = len(self.graph.nodes) - 1
        kept = {a.buffer for one in tail for a in one.step.accesses if kind_of(a.buffer) is BufferKind.EXTERNAL}

        def made(split: SplitBackward) -> Sequenced:
            forward, diffs = self.builder.forward(start, n, fused=True), self.builder.loss_diffs()
            back = self.builder.backward(n, 0, diffs, accumulate=not first, fused=True, split_backward=split)
            averaged: Sequence[AnyStep] = weave(back) if weave is not None else back
            early = self._runtime.active and weave is None
            steps: list[AnyStep] = with_updates(forward, averaged, tail, early)
            if split is not SplitBackward.NONE:
                sizes = {b: buffer.nbytes for b, buffer in buffers.items()}
                steps = delayed(steps, sizes, {b for b, buffer in buffers.items() if buffer.call_scratch})
            return sequence(name, steps, self._survivors() | kept)

        if self.tuning.split_backward is None and self._runtime.active:
            return replace(made(SplitBackward.NONE), split_backward=partial(made, self.split_backward))
        return made(self.split_backward if self.tuning.split_backward else SplitBackward.NONE)

    def _survivors(self) -> set[int]:
        """Return the ids of buffers whose values must outlive a solver's program."""
        graph, kept = self.run_graph, self._kept_values()
        ids = {b for p in graph.params for b in (p.data, p.diff)}
        whole = (v for v in graph.values if v.whole is None)
        filled = [v.name for v in whole if not graph.nodes[v.producer].layer.rewrites(v.top)]
        names = {*graph.outputs, *graph.inputs, *filled, *kept & graph.last.keys()}
        ids |= {graph.values[graph.last[name]].data for name in names}
        ids |= {graph.values[graph.stored(v)].diff for v in self._kept_gradients()}
        ids |= {value.data for value in graph.values if value.loss_weight}
        for node in graph.nodes:
            ids |= {node.scratch[s.name] for s in node.layer.scratches.values() if s.lives is Lives.STATE}
        return ids
