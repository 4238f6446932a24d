"""Builds a net: graph, memory, blobs and first values; memory and blobs again after every reshape.

`BuiltNet.__init__` makes the graph, `_set_up_memory` the rest. See also: `net.py` (what a built net does),
`build/wiring.py` (names to graph), `memory/net_memory.py` (buffers and plans).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakSet, ref

import numpy as np

from ..backend import get_device
from ..blob import Blob
from ..errors import CaffeError, OutOfDeviceMemory, OutOfHostMemory, human_bytes
from ..filler import check, fill
from ..formats.types import SPLIT
from ..layers.base import Lives, Runs
from ..layers.sizes import check_scratch
from ..lms.config import LMSConfig
from ..lms.program import Step
from ..lms.runtime.memory_owners import explain
from ..lms.runtime.runtime import Runtime
from ..memory.states import Ask, State
from ..ops import ops_of
from ..random import CaffeRandom
from ..uncopied import Uncopied
from ..vectors import NetBlobVec
from . import weights
from .build.gradients import shown_gradients
from .build.graph import Graph, Node, Param
from .build.source import load_source
from .build.wiring import wire
from .inspect.build_log import log_net
from .inspect.named import Named
from .memory.buffers import BufferTable, assign
from .memory.fit import log_parts
from .memory.micro_batch_choice import Splitting
from .memory.net_memory import NetMemory
from .memory.versions import Versions
from .passes import memory_order, param_order, precision
from .passes.fusion import find_groups
from .passes.masks import mask_layers
from .passes.micro_batch import split_values, widened, with_micro_batches
from .passes.order_copies import request_copies
from .program.buffer_views import choose_views
from .program.lms_requests import asked_by_layers
from .program.programs import ProgramBuilder, SplitBackward
from .program.reduction import Reduction
from .program.steps import LayerStep
from .run.callbacks import Callbacks
from .run.findings import Findings
from .tuning import Tuning


class BuiltNet(Uncopied):
    """Build the parts of a `net.Net`, which has the arguments."""

    tuning_by_hand = Tuning(fuse=False, masks=False)  # the default: every blob has its value after a pass
    instead_of_copying = (
        "build another net of the same file, and let it share_with(net), or copy_from what net.save wrote"
    )

    def __init__(
        self,
        source,
        phase: int | None = None,
        *,
        level: int = 0,
        stages: Sequence[str] = (),
        lines=None,
        file: str | None = None,
        device=None,
        lms: LMSConfig | None = None,
        runtime: Runtime | None = None,
        dtype=np.float32,
        seed: int | None = None,
        random: CaffeRandom | None = None,
        solver_count: int = 1,
        solver_rank: int = 0,
        forward_only: bool = False,
        fill: bool = True,
        tuning: Tuning | None = None,
    ):
        loaded = load_source(source, phase=phase, level=level, stages=stages, lines=lines, file=file)
        self.file, self.message = loaded.file, loaded.message
        self.phase = self.message.state.phase
        self.dtype = np.dtype(dtype)
        self.runtime = runtime or Runtime(device or get_device("cpu"), lms or LMSConfig())
        self.runtime.nets = [*(known for known in self.runtime.nets if known() is not None), ref(self)]
        self.device = self.runtime.device
        self._random = random or CaffeRandom(seed)
        self.solver_count, self.solver_rank = solver_count, solver_rank
        self.forward_only, self._will_run = forward_only, fill
        self.tuning = tuning or self.tuning_by_hand
        self.callbacks = Callbacks()
        self.reduction: Reduction | None = None  # set if several ranks train together
        self._kept: set[str] = set()
        self._param_blobs: dict[int, Blob] = {}
        self._dirty = False
        self.ran = False  # whether a forward ran with the current shapes
        self.splitting = Splitting(self.runtime.config.parts, self.runtime.config.blocks)
        self.sharers: WeakSet[BuiltNet] = WeakSet()  # nets that use this net's parameters
        with self._users_names():
            self.graph = wire(self.message, loaded.lines, file=self.file, dtype=self.dtype, prepare=self._prepare_layer)
        self.findings = Findings(self.graph, self.file, self.split_names())
        self._check_first_values()
        with self.device.active():
            if self.tuning.wants_channels_last(self.device):
                memory_order.choose(self.graph, ops_of(self.device))
            if self.tuning.half and self.dtype == np.float32:
                precision.choose(self.graph, ops_of(self.device))
            param_order.choose(self.graph)
        self._set_up_memory()
        if fill:
            self._fill_constants()
            self._fill_params()
        log_net(self.graph, self.message, self.dtype.itemsize, self.tuning.half)
        log_parts(self)

    # -- building ---------------------------------------------------------------------------------------------------
    def _prepare_layer(self, layer, index: int) -> None:
        """Derive the seed of each layer from the net's, and tell data layers their rank and whether to read ahead."""
        layer.reads_ahead = self._will_run
        layer.seed = zlib.crc32(f"{index}:{layer.name}".encode()) ^ (self._random.seed & 0xFFFFFFFFFFFFFFFF)
        layer.solver_count = self.solver_count if layer.phase == 0 else 1
        layer.solver_rank = self.solver_rank if layer.phase == 0 else 0

    @contextmanager
    def _users_names(self) -> Iterator[None]:
        """Let errors raised inside name the user's blobs instead of tops of inserted Split layers."""
        try:
            yield
        except CaffeError as error:
            error.rename(self.split_names())
            raise

    def split_names(self) -> dict[str, str]:
        """Return the user's blob name for every top of an inserted Split layer."""
        splits = [layer for layer in self.message.layer if layer.type == SPLIT]
        return {top: layer.bottom[0] for layer in splits for top in layer.top}

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Complete errors raised inside: file, line and type of the layer, the user's blob names.

        OutOfDeviceMemory errors also list the owners of device memory.
        """
        try:
            with self._users_names():
                yield
            self.findings.say()
        except CaffeError as error:
            self.run_graph.place(error, self.file)
            if isinstance(error, OutOfDeviceMemory):
                explain(self.runtime, error)
            raise

    def _set_up_memory(self, old: NetMemory | None = None) -> None:
        """Make everything that depends on shapes: `run_graph`, buffers, memory, blobs. old: memory to carry over."""
        self.micro_batched = with_micro_batches(
            self.graph, self.splitting.parts(self.graph), self.splitting.blocks(self.graph)
        )
        self.run_graph = graph = self.micro_batched.graph
        for node in self.graph.nodes:
            node.layer.scratches.clear()  # also for layers that run in parts
        table = self._assign_buffers(graph)
        split = [*split_values(self.graph, self.micro_batched), *widened(self.graph, table.buffers)]
        self.builder = ProgramBuilder(graph, join=self.tuning.fuse)
        with self.placed():
            self._choose_views(graph, table)
            packed = self._packed() if self.tuning.pack else frozenset()
            steps = [s.step for s in self.all_steps(fused=True)]
            self.memory = NetMemory(
                graph,
                table,
                self._used_buffers(steps),
                self.runtime,
                self.dtype,
                old,
                packed,
                self.tuning.graph,
                self._lasting(values_too=True),
                steps,
                split,
                self.file,
            )
        self.blobs: Named[Blob] = Named(net=self.graph.name, kind="blob", of=Blob)
        for name, v in self.graph.last.items():
            value = self.graph.values[v]
            memories = (self.memory.shown(value.data), self.memory.shown(value.diff))
            last = value.channels_last
            self.blobs[name] = Blob(name, value.shape, self.dtype, memories, self._on_reshape, channels_last=last)
        self.params: Named[NetBlobVec] = Named(net=self.graph.name, kind="layer with parameters", of=NetBlobVec)
        for node in self.graph.nodes:
            node.layer.blobs = NetBlobVec(self._lasting_blob(self.graph.params[p]) for p in node.params)
            if node.params:
                self.params[node.name] = node.layer.blobs
        before = self.versions if old else None
        self.versions = Versions(self.graph, self.blobs, self.memory.shown, self.dtype, before)
        for value in self.graph.values:
            if value.loss_weight:
                Blob(
                    value.name, value.shape, self.dtype, (None, self.memory.memories[value.diff])
                ).diff = value.loss_weight

    def _assign_buffers(self, graph: Graph) -> BufferTable:
        """Choose fused chains, scratch of layers and bit masks, and return the table of all buffers."""
        graph.groups = find_groups(graph, self._kept_values(), self._kept_gradients()) if self.tuning.fuse else []
        self._declare(graph, graph.everyone())
        table = assign(graph, self.dtype.itemsize)
        if self.tuning.masks and not self.forward_only:
            with self.placed():
                resident = {b for b, managed in asked_by_layers(graph, self.runtime.config).items() if not managed}
            resident |= self._lasting(values_too=True)
            least = self.runtime.config.min_bytes if self.runtime.active else None
            masked = mask_layers(graph, table.buffers, least, resident)
            if masked:
                self._declare(graph, masked)
                table = assign(graph, self.dtype.itemsize)
        return table

    def _choose_views(self, graph: Graph, table: BufferTable) -> None:
        """Choose which values become buffer views into others, if the net is tuned to drop values in an iteration."""
        graph.views = {}
        dropped = self.tuning.fuse and (self.tuning.pack or self.runtime.active)
        if dropped and any(node.layer.stretches for node in graph.nodes):
            steps, excluded = self.all_steps(fused=True), asked_by_layers(graph, self.runtime.config).keys()
            keep = {"short_lived": self._packed(), "lasting": self._lasting(values_too=True), "excluded": excluded}
            graph.views = choose_views(
                graph, steps, table.buffers, dtype=self.dtype, managed=self.runtime.active, **keep
            )

    def _declare(self, graph: Graph, nodes: Iterable[Node]) -> None:
        """Let layers declare their scratch for the current shapes."""
        ops = ops_of(self.device)
        for node in nodes:
            node.layer.scratches.clear()
            shapes = [graph.values[b].shape for b in node.bottoms]
            try:
                with self.device.active():
                    node.layer.declare(shapes, [graph.values[t].shape for t in node.tops], ops)
                check_scratch(node.layer)
                request_copies(graph, node)
                param_order.request_copies(graph, node)
            except CaffeError as error:
                error.at(file=self.file, line=node.line, layer=node.name)
                raise

    def _kept_values(self) -> set[str]:
        """Return the names of values of `run_graph` that belong to kept blobs."""
        return self.micro_batched.names(self._kept)

    def _kept_gradients(self) -> set[int]:
        """Return the ids of values of `run_graph` whose gradients kept blobs show."""
        shown = shown_gradients(self.graph) if self._kept else {}
        return {v for name in self._kept for v in self.micro_batched.values[shown[name]]}

    def pieces(self, param: Param) -> list[Param]:
        """Return the parameters of `run_graph` for one of `graph`: itself, or one per block of outputs, in order."""
        return [self.run_graph.params[p] for p in self.micro_batched.params[param.index]]

    def _lasting_blob(self, param: Param) -> Blob:
        """Return the Blob of a parameter; the same object after every reshape, pointed at the current memory."""
        now = self.param_blob(param)
        blob = self._param_blobs.setdefault(param.index, now)
        blob.take_over(now)
        return blob

    def param_blob(self, param: Param) -> Blob:
        """Return a new Blob of a parameter's current data and diff memory."""
        memories = self.memory.memories
        name = f"{self.graph.nodes[param.node].name}[{param.position}]"
        pair, last = (memories[param.data], memories[param.diff]), param.channels_last
        return Blob(name, param.shape, self.dtype, pair, channels_last=last)

    def _packed(self) -> frozenset[int]:
        """Return the buffers with a short live range in a solver's program.

        These are blobs and, with a backward, their gradients and the scratch that layers save for it.
        """
        graph = self.run_graph
        found = {v.data for v in graph.values}
        if not self.forward_only:
            found |= {v.diff for v in graph.values}
            for node in graph.everyone():
                found |= {node.scratch[s.name] for s in node.layer.scratches.values() if s.lives is Lives.SAVED}
        return frozenset(found) - self._lasting(values_too=True)

    def _lasting(self, *, values_too: bool) -> frozenset[int]:
        """Return the buffers that outlive an iteration or pass between host and device layers.

        values_too: also data that the user or a data layer fills, net outputs, and state of layers.
        """
        graph, kept = self.run_graph, self._kept_values()
        lasting = {i for v in graph.values if v.loss_weight for i in (v.data, v.diff)}
        lasting |= {i for v in graph.values if v.name in kept for i in (v.data, v.diff)}
        for node in graph.nodes:
            if node.layer.runs_on is Runs.HOST:  # its blobs are copied between host and device
                lasting |= {
                    i for v in (*node.bottoms, *node.tops) for i in (graph.values[v].data, graph.values[v].diff)
                }
        if not values_too:
            return frozenset(lasting)
        outside = {*graph.outputs, *graph.inputs}
        for v in graph.values:
            layer = graph.nodes[v.producer].layer
            if v.name in outside or not layer.rewrites(v.top) or layer.is_net_input:
                lasting.add(v.data)
        for node in graph.everyone():
            for scratch in node.layer.scratches.values():
                if scratch.lives in (Lives.STATE, Lives.DIAL):
                    lasting.add(node.scratch[scratch.name])
        return frozenset(lasting)

    @property
    def split_backward(self) -> SplitBackward:
        """Return for which layers a solver's iteration may split the backward."""
        return {None: SplitBackward.LARGE, True: SplitBackward.ALL, False: SplitBackward.NONE}[
            self.tuning.split_backward
        ]

    def all_steps(self, *, fused: bool, split_backward: SplitBackward = SplitBackward.NONE) -> list[LayerStep]:
        """Return the steps of the net's widest program, fused as a solver runs it or by hand; see `ProgramBuilder`."""
        n = len(self.graph.nodes) - 1
        steps = self.builder.forward(0, n, fused=fused)
        if not self.forward_only and any(node.need_backward for node in self.graph.nodes):
            diffs = self.builder.loss_diffs()
            steps += self.builder.backward(n, 0, diffs, accumulate=True, fused=fused, split_backward=split_backward)
        return steps

    def _used_buffers(self, steps: Sequence[Step]) -> set[int]:
        """Return the ids of buffers that get memory: those of steps, parameters, and blobs that users can read."""
        used = {a.buffer for step in steps for a in step.accesses}
        if not self.forward_only:  # updates write the gradient of every learning parameter, even if only for its decay
            used |= {p.diff for p in self.run_graph.learnable if p.lr_mult != 0}
        graph = self.run_graph
        inside = {t for g in graph.groups for m in g.members for t in graph.nodes[m].tops if t not in g.tops}
        shown = {graph.values[v].data for v in graph.last.values() if v not in inside}
        return used | {p.data for p in graph.params} | shown - graph.views.keys()

    def _check_first_values(self) -> None:
        """Raise the errors of `_fill_params` without filling, so that planning a net refuses what running it would."""
        for param in self.graph.params:
            node = self.graph.nodes[param.node]
            try:
                if param.values is None:
                    check(param.filler, param.shape)
            except CaffeError as error:
                error.at(file=self.file, line=node.line, layer=node.name, type=node.layer.param.type)
                raise
        for node in self.graph.nodes:
            weights.check_presets(self, node)

    def _fill_constants(self) -> None:
        for node in self.graph.nodes:
            for j, t in enumerate(node.tops):
                if not node.layer.rewrites(j):
                    memory = self.memory.memories[self.graph.values[t].data]
                    if memory.state is State.UNINITIALIZED:
                        memory.ask(Ask.OVERWRITE_CPU)
                        node.layer.fill_once(j, memory.host_array(self.graph.values[t].shape, self.dtype))

    def _fill_params(self) -> None:
        for param in self.graph.params:
            node = self.graph.nodes[param.node]
            try:
                values = param.values
                if values is None:
                    values = fill(param.filler, param.shape, self.dtype, self._random)
            except MemoryError:
                nbytes = math.prod(param.shape) * self.dtype.itemsize
                raise OutOfHostMemory(
                    f"parameter {param.position} of shape {param.shape} needs {human_bytes(nbytes)}",
                    needed=nbytes,
                    free=0,
                    fix="make the layer smaller",
                ).at(file=self.file, line=node.line, layer=node.name, type=node.layer.param.type) from None
            if param.owner == param.index:  # a sharer draws too, as in Caffe, but keeps the owner's values
                node.layer.blobs[param.position].data = values
        for node in self.graph.nodes:
            weights.load_presets(self, node)
