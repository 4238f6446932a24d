"""Builds and runs a net: passes by hand, whose values all survive, and a solver's iterations, each as a program.

A `Net` is put together from `build/wiring.py` (names to graph), `arrangement.py` (how the graph runs, and its
programs), `memory/net_memory.py` (memory and plans), `blobs.py` (what users see) and `first_values.py`. `weights.py`
reads and writes files; `../pycaffe/net.py` has the class that users import.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet, ref

import numpy as np
from numpy.typing import DTypeLike

from ..activity import activity
from ..backend import get_device
from ..backend.device import Device
from ..blob import Blob
from ..errors import CaffeError, OutOfDeviceMemory, ShapeError
from ..formats.prototxt.parser import Lines
from ..formats.types import SPLIT
from ..layers.base import TRAIN, BuildContext, ShapesChanged
from ..lms.config import LMSConfig
from ..lms.plan.plan import Plan, seconds_of
from ..lms.runtime.memory_owners import explain
from ..lms.runtime.runtime import Runtime
from ..memory.states import Ask, State
from ..ops import ops_of
from ..proto.caffe_pb2 import LayerParameter, NetParameter
from ..random import CaffeRandom
from ..uncopied import Uncopied
from ..vectors import NetBlobVec
from . import weights
from .arrangement import Arrangement, Kept
from .blobs import NetBlobs
from .build.graph import Graph
from .build.source import load_source
from .build.wiring import wire
from .first_values import FirstValues
from .inspect.account import net_statistics
from .inspect.log import DeviceErrors, log_net
from .inspect.named import Named, missing
from .memory.buffer_store import hand_on
from .memory.fit import Need, fit, log_parts, refuse_chosen_parts
from .memory.forecast import on_demand as plan_on_demand
from .memory.micro_batch_choice import Splitting
from .memory.net_memory import NetMemory
from .passes import memory_order, param_order, precision
from .program.programs import AnyStep, HostedStep, Sequenced, sequence
from .program.reduction import Reduction
from .program.split_backward import log_split_backward
from .program.steps import LayerStep
from .recurrent_state import RecurrentStates
from .run.callbacks import Callbacks, backward_layers, forward_layers
from .tuning import Tuning


class Net(Uncopied):
    """Build a net from a prototxt and run it.

    Args:
        source: a prototxt path or a NetParameter.
        phase: 0 TRAIN, 1 TEST; None: as the message's state says.
        device: a backend device (default: the CPU).
        lms: an LMSConfig.
        runtime: the runtime of other nets, to share its memory; replaces `device` and `lms`.
        seed: for parameter filling and random layers; None: from the system.
        solver_count: number of ranks among which data layers of a TRAIN net divide their records.
        solver_rank: index of this rank among them.
        forward_only: count (and manage) memory for forward passes only, as a solver's test nets need; backward still
            works, with memory from the pool.
        fill: give parameters and constant tops their first values (a net that is only planned needs none).

    Raises:
        CaffeError: the net cannot be built; the error names file, line, layer and blob.
    """

    tuning_by_hand = Tuning(fuse=False, masks=False)  # the default: every blob has its value after a pass
    instead_of_copying = (
        "build another net of the same file, and let it share_with(net), or copy_from what net.save wrote"
    )

    def __init__(
        self,
        source: str | os.PathLike[str] | NetParameter,
        phase: int | None = None,
        *,
        level: int = 0,
        stages: Sequence[str] = (),
        lines: Lines | None = None,
        file: str | None = None,
        device: Device | None = None,
        lms: LMSConfig | None = None,
        runtime: Runtime | None = None,
        dtype: DTypeLike = np.float32,
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
        self.ran = False  # whether a forward ran with the current shapes
        asked = self.runtime.config
        self.splitting = Splitting(asked.parts, asked.blocks, asked.slabs)
        self.sharers: WeakSet[Net] = WeakSet()  # nets that use this net's parameters
        with self._users_names():
            self.graph = wire(self.message, loaded.lines, file=self.file, dtype=self.dtype, context_of=self._context_of)
        self.device_errors = DeviceErrors(self.graph, self.file, self.split_names())
        first_values = FirstValues(self.graph, self.file, self.dtype, self._random, self.device)
        first_values.check()
        with self.placed(self.graph):
            self.arrangement: Arrangement = ops_of(self.device).conv_ahead_plan(self._ordered)
            self.memory = self._made_memory(None)
        self.own_blobs = NetBlobs(self.graph, self.dtype, self.memory.store)
        self._first_values = first_values
        if fill:
            first_values.fill_constants(self.memory.memories)
            first_values.fill_params()
        log_net(self.graph, self.message, self.dtype.itemsize, self.tuning.half)
        log_parts(self.splitting, self.arrangement)

    # -- building ---------------------------------------------------------------------------------------------------
    def _context_of(self, param: LayerParameter, index: int) -> BuildContext:
        """Return a layer's context: its seed from the net's; for data layers their rank and whether to read ahead."""
        return BuildContext(
            phase=param.phase,
            dtype=self.dtype,
            seed=zlib.crc32(f"{index}:{param.name}".encode()) ^ (self._random.seed & 0xFFFFFFFFFFFFFFFF),
            solver_count=self.solver_count if param.phase == TRAIN else 1,
            solver_rank=self.solver_rank if param.phase == TRAIN else 0,
            wants_half=self.tuning.half,
            reads_ahead=self._will_run,
            on_gpu=not self.device.is_host,
        )

    def turn_to(self, rank: int) -> None:
        """Let the layers of a TRAIN net go on as those of another rank of `solver_count`: with its records and random
        numbers, from where it stood."""
        for node in self.graph.nodes:
            context = node.layer.context
            before, now = ((self._random.seed + r - self.solver_rank) & 0xFFFFFFFF for r in (context.solver_rank, rank))
            if before != now:
                node.layer.turn_to(rank, context.seed ^ before ^ now)

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
    def placed(self, graph: Graph | None = None) -> Iterator[None]:
        """Complete errors raised inside: file, line and type of the layer, the user's blob names.

        OutOfDeviceMemory errors also list the owners of device memory. graph: the one whose layers errors name; None:
        the one that runs.
        """
        try:
            with self._users_names():
                yield
            self.device_errors.log()
        except CaffeError as error:
            (graph or self.run_graph).place(error, self.file)
            if isinstance(error, OutOfDeviceMemory):
                explain(self.runtime, error)
            raise

    def _ordered(self) -> Arrangement:
        """Choose orders, and return the first arrangement."""
        self._choose_orders()
        return self._arrange(Kept())

    def _choose_orders(self) -> None:
        """Choose the memory order and the type of values and parameters."""
        with self.device.active():
            if self.tuning.wants_channels_last(self.device):
                memory_order.choose(self.graph, ops_of(self.device))
            if self.tuning.half and self.dtype == np.float32:
                precision.choose(self.graph, ops_of(self.device))
            param_order.choose(self.graph)

    def _arrange(self, kept: Kept) -> Arrangement:
        """Return the arrangement for the current shapes. kept: blobs that stay readable."""
        about = self.runtime, self.dtype, self.tuning, self.splitting, kept, self.forward_only, self.file
        return Arrangement(self.graph, *about)

    def _made_memory(self, old: NetMemory | None) -> NetMemory:
        """Return memory for the current arrangement. old: the memory that it replaces, whose values carry over."""
        return NetMemory(
            self.arrangement.run_graph,
            self.arrangement.choose_memory(),
            self.runtime,
            self.dtype,
            old=old,
            graph_runs=self.tuning.graph,
            file=self.file,
        )

    @property
    def run_graph(self) -> Graph:
        """Return the graph that runs, whose layers may be parts of the user's."""
        return self.arrangement.run_graph

    @property
    def blobs(self) -> Named[Blob]:
        """Return the blobs by name."""
        return self.own_blobs.blobs

    @property
    def params(self) -> Named[NetBlobVec]:
        """Return the parameters of each layer that has any, by its name."""
        return self.own_blobs.params

    @property
    def recurrent_states(self) -> RecurrentStates:
        """Return the states that layers carry from one forward to the next, in the net's present memory."""
        return RecurrentStates(self.graph, self.memory.memories)

    # -- names ------------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """Return the name of the net in its prototxt."""
        return self.graph.name

    @property
    def inputs(self) -> list[str]:
        """Return the names of the inputs, the blobs that the user fills, in order."""
        return list(self.graph.inputs)

    @property
    def outputs(self) -> list[str]:
        """Return the names of the outputs, the blobs that no layer reads, in alphabetical order."""
        return list(self.graph.outputs)

    @property
    def layers(self) -> list[Any]:
        """Return the user's object of each layer, in order."""
        return [node.layer.public_object for node in self.graph.nodes]

    def layer_index(self, name: str) -> int:
        """Return the index of the last layer of that name. Raises MissingName."""
        for node in reversed(self.graph.nodes):
            if node.name == name:
                return node.index
        raise missing(self.name, "layer", name, [node.name for node in self.graph.nodes])

    def check_blob(self, name: str) -> None:
        """Raise MissingName if there is no blob of that name."""
        if not isinstance(name, str) or name not in self.blobs:
            raise missing(self.name, "blob", name, list(self.blobs))

    def keep(self, *names: str) -> None:
        """Keep data and diff of blobs readable after a solver's iteration under LMS: keep("conv1", "ip").

        Raises MissingName if there is no blob of a name.
        """
        for name in names:
            self.check_blob(name)
        self.keep_only(Kept(set(names), set(names)))

    def keep_only(self, more: Kept) -> None:
        """Keep values and gradients of blobs readable after a solver's iteration, of each blob what `more` says."""
        self.arrangement.kept.add(more)
        self.memory.forget_plans()
        if self.run_graph.groups or self.run_graph.views or self.memory.store.packed or self.runtime.config.auto:
            self.reshape()  # fused chains do not make inner values, and packed values do not last

    def set_packed(self, on: bool, keep: Kept | None = None) -> None:
        """Let values with short live ranges share device memory from the next iteration on (`Tuning.pack`), or give
        each memory of its own. Those that will share it lose their values now.

        keep: blobs that stay readable, beside those that do already.
        """
        if keep is not None:
            self.arrangement.kept.add(keep)
        if on:
            self.memory.store.forget_values(self.arrangement.short_lived())
        self.tuning = replace(self.tuning, pack=on)
        self.reshape()

    # -- running ----------------------------------------------------------------------------------------------------
    def forward_range(self, start: int = 0, end: int | None = None) -> float:
        """Run the forward of layers start..end (both included) and return their weighted loss. Every value survives."""
        end = len(self.graph.nodes) - 1 if end is None else end
        self.refresh_shapes()
        self._forward_by_hand(start, end)
        return self.loss(start, end)

    def _forward_by_hand(self, start: int, end: int) -> bool:
        """Run a forward of which every value survives. Returns whether all shapes stayed the same."""
        if self.callbacks.around_forward:
            return forward_layers(self, start, end)

        def build(key: str, first: int, reshaped: bool) -> Sequenced:
            return self.arrangement.forward(key, first, end)

        return self.run_by_hand(f"forward {start}..{end}", start, end, build)

    def run_by_hand(self, name: str, start: int, end: int, build: Callable[[str, int, bool], Sequenced]) -> bool:
        """Run a forward of layers start..end and let blobs show the versions it made last. See `_run`."""
        self.own_blobs.versions.bring(start, end)
        done = self._run(name, start, build, by_hand=True)
        self.own_blobs.versions.show(start, end)
        return done

    def run_steps(self, key: str, steps: Sequence[AnyStep]) -> None:
        """Run these steps as the program `key`; every value survives."""
        with self.placed():
            self.memory.run(key, lambda: sequence(key, steps, None))

    def _run(self, name: str, start: int, build: Callable[[str, int, bool], Sequenced], by_hand: bool = False) -> bool:
        """Run the program `build(key, start, False)`. Returns whether all shapes stayed the same.

        If a layer finds during the run that its tops need other shapes, reshape the net and run the rest, the program
        `build(key, index of that layer, True)`.
        """
        first, reshaped, tries = start, False, 0
        while True:
            key = f"{name} from {first}" if reshaped else name
            make = partial(build, key, first, reshaped)
            try:
                with self.placed():
                    self.ran &= first > 0 or self.memory.programs.keeps(key)  # otherwise `fit` may split layers
                    if not self.ran:
                        fit(self.runtime, [Need(self, partial(self._bind, key, make, by_hand), by_hand=by_hand)])
                        self.ran = True
                    self.memory.run(key, make)
                return not reshaped
            except ShapesChanged as change:
                tries = tries + 1 if change.node == first and reshaped else 0
                if tries > 3:
                    raise self.graph.nodes[first].layer.error(
                        "wants other shapes for its tops each time that it is asked",
                        kind=ShapeError,
                        fix="let reshape (or look) and forward agree on the shapes for the same bottoms",
                    ) from None
                first, reshaped = change.node, True
            with self._users_names():
                self.reshape(first)

    def _bind(self, key: str, make: Callable[[], Sequenced], by_hand: bool) -> None:
        bound = self.memory.programs.bind(key, make)
        if by_hand and self.runtime.idle:  # without LMS there is no plan that could fail
            program = bound.sequenced.program
            if self.splitting.chooses:  # check every pass that may follow
                program = sequence(key, self.arrangement.all_steps(fused=False), None).program
            self.memory.refuse_oom(program, None)

    def _before_whole_forward(self) -> None:
        self.refresh_shapes()
        self.own_blobs.versions.bring(0, len(self.graph.nodes) - 1)

    def backward_range(self, start: int | None = None, end: int = 0) -> None:
        """Run the backward of layers start..end (both included, start >= end). Parameter gradients accumulate."""
        start = len(self.graph.nodes) - 1 if start is None else start
        if self.reduction is not None and self.reduction.layer_wise:
            self.reduction.check_by_hand()
        self.own_blobs.versions.bring_diffs(start, end)
        hand_on(self.memory.store.split)
        written = {
            v.diff
            for v in self.run_graph.values
            if self.memory.memories[v.diff].state not in (State.UNINITIALIZED, State.DISCARDED)
        }
        present = frozenset(written | self.arrangement.builder.loss_diffs())
        key = f"backward {start}..{end} {hash(present)}"
        if key in self.memory.plans():
            steps = [step for step in self.memory.steps(key) if isinstance(step, LayerStep)]
        else:
            steps = self.arrangement.builder.backward(start, end, present, accumulate=True)
        self.backward_by_hand(start, end, steps, key)
        if self.reduction is not None and self.reduction.layer_wise:
            self.reduce_by_hand(steps, key)

    def backward_by_hand(self, start: int, end: int, steps: Sequence[LayerStep], key: str) -> None:
        """Run these backward steps of layers start down to end as the program `key`, with a user's callbacks."""
        if self.callbacks.around_backward:
            backward_layers(self, start, end, steps, key)
        else:
            self.run_steps(key, steps)
        self.own_blobs.versions.show_diffs(start, end)

    def reduce_by_hand(self, steps: Sequence[LayerStep], key: str) -> None:
        """Average the gradients of these backward steps of the program `key` over all ranks, if there are several."""
        if self.reduction is not None:
            self.run_steps(f"{key}, reduction", self.reduction.alone(self.memory.executor, steps))

    def iteration(self, first: bool, tail: Sequence[HostedStep] = (), *, key: str, reduce: bool = False) -> bool:
        """Run one forward and backward of a solver's iteration, then `tail`, as the program `key`.

        Under LMS, values that no later step reads are discarded.

        Args:
            first: overwrite parameter gradients instead of adding to them.
            tail: update steps.
            reduce: average parameter gradients over all ranks, if there are several.

        Returns:
            False if shapes changed during the run (see ShapesChanged). Then memory is new and `tail` did not run,
            because its steps use the old memory.
        """
        if self.callbacks:
            return self._iteration_with_callbacks(first, tail, key, reduce)
        self._before_whole_forward()
        memory = self.memory  # `_run` replaces it if layers must be split for the current shapes

        def build(name: str, start: int, reshaped: bool) -> Sequenced:
            own = () if reshaped or self.memory is not memory else tail
            return self._iteration(name, first, own, start, reduce=reduce)

        done = self._run(key, 0, build)
        self.own_blobs.versions.show(0, n := len(self.graph.nodes) - 1)
        self.own_blobs.versions.show_diffs(n, 0)
        if self.memory is not memory:
            self.memory.forget_plans()  # this program has no `tail`
            return False
        return done

    def _iteration_with_callbacks(self, first: bool, tail: Sequence[HostedStep], key: str, reduce: bool) -> bool:
        self.refresh_shapes()
        done = self._forward_by_hand(0, n := len(self.graph.nodes) - 1)
        steps = self.arrangement.whole_backward(accumulate=not first)
        self.backward_by_hand(n, 0, steps, f"{key}, backward")
        if reduce:
            self.reduce_by_hand(steps, key)
        if done and tail:
            self.run_steps(f"{key}, updates", tail)
        return done

    def _iteration(
        self, key: str, first: bool, tail: Sequence[HostedStep], start: int = 0, *, reduce: bool = False
    ) -> Sequenced:
        reduction = self.reduction if reduce else None
        weave = partial(reduction.woven, self.memory.executor) if reduction is not None else None
        return self.arrangement.iteration(key, first, tail, self.memory.buffers, start, weave)

    def prepare_iterations(self, kinds: Iterable[tuple[str, bool, Sequence[HostedStep]]]) -> None:
        """Plan a solver's iterations before the first one. Raises OutOfDeviceMemory if they cannot fit.

        kinds: (key, first, tail) of each kind of iteration; the last one averages gradients over ranks.
        """
        kinds = list(kinds)
        with self.placed():
            refuse_chosen_parts(self.splitting, self.arrangement, self.runtime.plan_cache)
            self.runtime.check_resident()
            for key, first, tail in kinds:
                reduce = key == kinds[-1][0]
                self.memory.programs.bind(key, partial(self._iteration, key, first, tail, reduce=reduce))
            plans = {key: self.memory.plans()[key] for key, _, _ in kinds}
            log_split_backward(self.run_graph, plans)
            self.runtime.note_plans(self.name, plans)

    def predicted_seconds(self, kinds: Sequence[tuple[str, bool, Sequence[HostedStep]]]) -> float:
        """Predict the seconds of the programs of `prepare_iterations`, together, without taking memory.

        Raises OutOfDeviceMemory if they cannot fit.
        """
        programs = (self._iteration(key, f, t, reduce=key == kinds[-1][0]) for key, f, t in kinds)
        return sum(seconds_of(self.memory.planner.planned(program)[1]) for program in programs)

    def replan(self, key: str, first: bool, tail: Sequence[HostedStep], reduce: bool) -> tuple[float, float] | None:
        """Plan a program of `prepare_iterations` again; see `BoundPrograms.replan`."""
        with self.device.active():
            found = self.memory.programs.replan(key, partial(self._iteration, key, first, tail, reduce=reduce))
        if found is not None and found[0] != found[1]:
            self.runtime.note_plans(self.name, {key: self.memory.plans()[key]})
        return found

    def test_forward(self) -> bool:
        """Run a whole forward; outputs and kept blobs survive. Returns False if shapes changed during the run."""
        if self.callbacks.around_forward:
            self.refresh_shapes()
            return self._forward_by_hand(0, len(self.graph.nodes) - 1)
        self._before_whole_forward()
        done = self._run("test", 0, lambda key, start, reshaped: self.arrangement.test(key, start))
        self.own_blobs.versions.show(0, len(self.graph.nodes) - 1)
        return done

    def prepare_test(self) -> None:
        """Plan `test_forward` and take its memory. Raises OutOfDeviceMemory if it cannot fit."""
        fit(self.runtime, [self.test_need()])

    def test_need(self) -> Need:
        """Return what `prepare_test` plans."""
        return Need(self, lambda: self.memory.programs.bind("test", self.arrangement.test))

    def plan_only(self, updates: Callable[[], Sequence[HostedStep]] | None, *, on_demand: bool = False) -> Plan | None:
        """Plan a training iteration with these updates (None: a test forward) without taking its memory.

        Without LMS the plan only packs buffers. Returns None if there is nothing to plan. Raises OutOfDeviceMemory if
        it cannot fit.

        on_demand: copy on demand, with layers in as few micro-batches as fit: far faster than a search for the best
        plan.
        """

        def plan() -> Plan | None:
            self.runtime.check_resident()
            planner, program = self.memory.planner, self.program_of(updates)
            if on_demand and self.runtime.active:
                return plan_on_demand(planner, program)
            return planner.planned(program)[1]

        seconds = None if on_demand else lambda: seconds_of(plan())
        plans: list[Plan | None] = fit(self.runtime, [Need(self, plan, seconds, updates)])
        return plans[0]

    def program_of(self, updates: Callable[[], Sequence[HostedStep]] | None) -> Sequenced:
        """Return the program of a training iteration with these updates (None: a test forward)."""
        if updates is None:
            return self.arrangement.test()
        return self._iteration("train", True, updates(), reduce=True)

    def loss(self, start: int = 0, end: int | None = None) -> float:
        """Return the weighted sum of the loss tops of layers start..end, as last computed."""
        total = 0.0
        end = len(self.graph.nodes) - 1 if end is None else end
        for node in self.graph.nodes[start : end + 1]:
            for t in node.tops:
                value = self.graph.values[t]
                if value.loss_weight:
                    memory = self.memory.memories[value.data]
                    memory.ask(Ask.READ_CPU)
                    total += value.loss_weight * float(memory.host_array(value.shape, self.dtype).sum(dtype=np.float64))
        self.device_errors.log()
        return total

    def statistics(self) -> dict[str, Any]:
        """Return statistics of Large Model Support for this net and its runtime: see `net_statistics`."""
        return net_statistics(self)

    # -- shapes -------------------------------------------------------------------------------------------------------
    def refresh_shapes(self) -> None:
        """Reshape the net if an input changed its shape, or a source's next batch has another. Cheap otherwise."""
        changed = self.own_blobs.reshaped
        for node in self.graph.nodes:
            if node.bottoms or node.layer.declares.is_net_input:
                continue
            activity.layer = node.name  # a data layer waits here for its next batch
            shapes = [tuple(s) for s in node.layer.infer_shapes([])]
            activity.layer = ""
            changed |= shapes != [self.graph.values[t].shape for t in node.tops]
        if changed:
            self.reshape()

    def reshape(self, known: int = -1) -> None:
        """Infer all shapes again and make memory for them; parameters and inputs keep their values.

        known: see `Graph.infer_shapes`.
        """
        try:
            self.ran &= not self.graph.infer_shapes(known)
        except CaffeError as error:
            error.at(file=self.file)
            raise
        self.device.synchronize()
        old = self.memory
        old.store.release()
        with self.placed(self.graph):
            kept = self.arrangement.kept
            self.arrangement = ops_of(self.device).conv_ahead_plan(lambda: self._arrange(kept))
            self.memory = self._made_memory(old)
        self.own_blobs.follow(self.memory.store)
        self._first_values.fill_constants(self.memory.memories)

    def rearrange(self) -> None:
        """Take memory for the current parts and mode, as do the nets that share its parameters.

        Values of blobs move to the new buffers, and so do NumPy views that the user keeps of them.
        """
        with self.own_blobs.moved():
            self.reshape()
        for sharer in list(self.sharers):
            sharer.share_with(self)

    # -- parameters ---------------------------------------------------------------------------------------------------
    @property
    def learnable_params(self) -> list[Blob]:
        """Return the blobs of parameters that own their memory, in order of appearance."""
        return [self.own_blobs.of_param(p) for p in self.graph.learnable]

    def clear_param_diffs(self) -> None:
        """Set all parameter gradients to zero."""
        for blob in self.learnable_params:
            blob.diff = 0

    def share_with(self, other: Net) -> None:
        """Use the other net's parameter data for same-named layers (not gradients)."""
        weights.share(self, other)

    def close(self) -> None:
        """Release files and threads of data layers."""
        self.device_errors.log()
        for node in self.graph.nodes:
            node.layer.close()
