"""Runs a net: passes by hand, whose values all survive, and a solver's iterations, each as a program; loss and reshape.

See also: `built.py` (construction), `build/wiring.py` (names to graph), `memory/net_memory.py` (buffers and plans),
`weights.py` (files), `../pycaffe/net.py` (the class that users import).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..blob import Blob
from ..errors import CaffeError, ShapeError
from ..layers.base import ShapesChanged
from ..lms.plan.plan import Plan, seconds_of
from ..memory.states import Ask, State
from ..memory.synced import SyncedMemory
from . import weights
from .built import BuiltNet
from .inspect.account import net_statistics
from .inspect.named import missing
from .memory.fit import fitted, refuse_chosen_parts
from .memory.split_memory import hand_on
from .program.programs import HostedStep, Sequenced, SplitBackward, sequence
from .program.split_backward import log_split_backward, planned
from .program.step_order import delayed, with_updates
from .run.callbacks import backward_layers, forward_layers


class Net(BuiltNet):
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
    def layers(self) -> list:
        """Return the user's object of each layer, in order."""
        return [node.layer.face for node in self.graph.nodes]

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
        self._kept.update(names)
        self.memory.forget_plans()
        if self.run_graph.groups or self.run_graph.views or self.memory.packed or self.runtime.config.auto:
            self.reshape()  # fused chains do not make inner values, and packed values do not last

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
            return sequence(key, self.builder.forward(first, end), None)

        return self.run_by_hand(f"forward {start}..{end}", start, end, build)

    def run_by_hand(self, name: str, start: int, end: int, build: Callable[[str, int, bool], Sequenced]) -> bool:
        """Run a forward of layers start..end and let blobs show the versions it made last. See `_run`."""
        self.versions.bring(start, end)
        done = self._run(name, start, build, by_hand=True)
        self.versions.show(start, end)
        return done

    def run_steps(self, key: str, steps: Sequence) -> None:
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
                    self.ran &= first > 0 or self.memory.keeps(key)  # otherwise `fitted` may split layers
                    if not self.ran:
                        fitted(self, partial(self._bind, key, make, by_hand), by_hand=by_hand)
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
                self.reshape()

    def _bind(self, key: str, make: Callable[[], Sequenced], by_hand: bool) -> None:
        bound = self.memory.bind(key, make)
        if by_hand and self.runtime.idle:  # without LMS there is no plan that could fail
            program = bound.sequenced.program
            if self.splitting.chooses:  # check every pass that may follow
                program = sequence(key, self.all_steps(fused=False), None).program
            self.memory.refuse_oom(program, None)

    def _before(self, start: int, end: int) -> None:
        self.refresh_shapes()
        self.versions.bring(start, end)

    def backward_range(self, start: int | None = None, end: int = 0) -> None:
        """Run the backward of layers start..end (both included, start >= end). Parameter gradients accumulate."""
        start = len(self.graph.nodes) - 1 if start is None else start
        self.versions.bring_diffs(start, end)
        hand_on(self.memory.split_memories)
        written = {
            v.diff
            for v in self.run_graph.values
            if self.memory.memories[v.diff].state not in (State.UNINITIALIZED, State.DISCARDED)
        }
        present = frozenset(written | self.builder.loss_diffs())
        key = f"backward {start}..{end} {hash(present)}"
        if key in self.memory.plans():
            steps = self.memory.steps(key)
        else:
            steps = self.builder.backward(start, end, present, accumulate=True)
        self.backward_by_hand(start, end, steps, key)
        if self.reduction is not None and self.reduction.layer_wise:
            self.reduce_by_hand(steps, key)

    def backward_by_hand(self, start: int, end: int, steps: Sequence, key: str) -> None:
        """Run these backward steps of layers start down to end as the program `key`, with a user's callbacks."""
        if self.callbacks.around_backward:
            backward_layers(self, start, end, steps, key)
        else:
            self.run_steps(key, steps)
        self.versions.show_diffs(start, end)

    def reduce_by_hand(self, steps: Sequence, key: str) -> None:
        """Average the gradients of these backward steps of the program `key` over all ranks, if there are several."""
        if self.reduction is not None:
            self.run_steps(f"{key}, reduction", self.reduction.alone(steps))

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
        self._before(0, len(self.graph.nodes) - 1)
        memory = self.memory  # `_run` replaces it if layers must be split for the current shapes

        def build(name: str, start: int, reshaped: bool) -> Sequenced:
            own = () if reshaped or self.memory is not memory else tail
            return self._iteration(first, own, name, start, reduce)

        done = self._run(key, 0, build)
        self.versions.show(0, n := len(self.graph.nodes) - 1)
        self.versions.show_diffs(n, 0)
        if self.memory is not memory:
            self.memory.forget_plans()  # this program has no `tail`
            return False
        return done

    def _iteration_with_callbacks(self, first: bool, tail: Sequence[HostedStep], key: str, reduce: bool) -> bool:
        self.refresh_shapes()
        done = self._forward_by_hand(0, n := len(self.graph.nodes) - 1)
        steps = self.builder.backward(n, 0, self.builder.loss_diffs(), accumulate=not first)
        self.backward_by_hand(n, 0, steps, f"{key}, backward")
        if reduce:
            self.reduce_by_hand(steps, key)
        if done and tail:
            self.run_steps(f"{key}, updates", tail)
        return done

    def _iteration(
        self, first: bool, tail: Sequence[HostedStep], key: str, start: int = 0, reduce: bool = False
    ) -> Sequenced:
        """Return the program of an iteration from layer `start` on; with LMS, also its form with split backward."""
        n = len(self.graph.nodes) - 1
        sums = reduce and self.reduction is not None  # they may run on another stream: updates wait for all of them

        def made(split_backward: SplitBackward) -> Sequenced:
            steps, diffs = self.builder.forward(start, n, fused=True), self.builder.loss_diffs()
            back = self.builder.backward(n, 0, diffs, accumulate=not first, fused=True, split_backward=split_backward)
            back = self.reduction.woven(back) if sums else back
            steps = with_updates(steps, back, tail, self.runtime.active and not sums)
            if split_backward is not SplitBackward.NONE:
                sizes = {b: buffer.nbytes for b, buffer in self.memory.buffers.items()}
                steps = delayed(steps, sizes, self.memory.call_scratch)
            return sequence(key, steps, self._survivors())

        if self.tuning.split_backward is None and self.runtime.active:
            return replace(made(SplitBackward.NONE), split_backward=partial(made, self.split_backward))
        return made(self.split_backward if self.tuning.split_backward else SplitBackward.NONE)

    def prepare_iterations(self, kinds: Iterable[tuple[str, bool, Sequence[HostedStep]]]) -> None:
        """Plan a solver's iterations before the first one. Raises OutOfDeviceMemory if they cannot fit.

        kinds: (key, first, tail) of each kind of iteration; the last one averages gradients over ranks.
        """
        kinds = list(kinds)
        with self.placed():
            refuse_chosen_parts(self)
            self.runtime.check_resident()
            for key, first, tail in kinds:
                reduce = key == kinds[-1][0]
                self.memory.bind(key, lambda f=first, t=tail, k=key, r=reduce: self._iteration(f, t, k, reduce=r))
            plans = {key: self.memory.plans()[key] for key, _, _ in kinds}
            log_split_backward(self.run_graph, plans)
            self.runtime.note_plans(self.name, plans)

    def predicted_seconds(self, kinds: Sequence[tuple[str, bool, Sequence[HostedStep]]]) -> float:
        """Predict the seconds of the programs of `prepare_iterations`, together, without taking memory.

        Raises OutOfDeviceMemory if they cannot fit.
        """
        programs = (self._iteration(f, t, key, reduce=key == kinds[-1][0]) for key, f, t in kinds)
        return sum(seconds_of(planned(self.memory, program)[1]) for program in programs)

    def replan(self, key: str, first: bool, tail: Sequence[HostedStep], reduce: bool) -> tuple[float, float] | None:
        """Plan a program of `prepare_iterations` again; see `NetMemory.replan`."""
        with self.device.active():
            found = self.memory.replan(key, lambda: self._iteration(first, tail, key, reduce=reduce))
        if found is not None and found[0] != found[1]:
            self.runtime.note_plans(self.name, {key: self.memory.plans()[key]})
        return found

    def test_forward(self) -> bool:
        """Run a whole forward; outputs and kept blobs survive. Returns False if shapes changed during the run."""
        if self.callbacks.around_forward:
            self.refresh_shapes()
            return self._forward_by_hand(0, len(self.graph.nodes) - 1)
        self._before(0, len(self.graph.nodes) - 1)
        done = self._run("test", 0, lambda key, start, reshaped: self._test_sequence(key, start))
        self.versions.show(0, len(self.graph.nodes) - 1)
        return done

    def _test_sequence(self, key: str = "test", start: int = 0) -> Sequenced:
        return sequence(key, self.builder.forward(start, len(self.graph.nodes) - 1, fused=True), self._survivors())

    def prepare_test(self) -> None:
        """Plan `test_forward` and take its memory. Raises OutOfDeviceMemory if it cannot fit."""
        self.runtime.check_resident()
        fitted(self, lambda: self.memory.bind("test", self._test_sequence))

    def plan_only(self, updates: Callable[[], Sequence[HostedStep]] | None) -> Plan | None:
        """Plan a training iteration with these updates (None: a test forward) without taking its memory.

        Without LMS the plan only packs buffers. Returns None if there is nothing to plan. Raises OutOfDeviceMemory if
        it cannot fit.
        """

        def plan() -> Plan | None:
            self.runtime.check_resident()
            return planned(self.memory, self.program_of(updates))[1]

        return fitted(self, plan, seconds=lambda: seconds_of(plan()), updates=updates)

    def program_of(self, updates: Callable[[], Sequence[HostedStep]] | None) -> Sequenced:
        """Return the program of a training iteration with these updates (None: a test forward)."""
        return self._test_sequence() if updates is None else self._iteration(True, updates(), "train")

    def _survivors(self) -> set[int]:
        """Return the ids of buffers whose values must outlive a solver's program."""
        graph, kept = self.run_graph, self._kept_values()
        ids = {b for p in graph.params for b in (p.data, p.diff)}
        whole = (v for v in graph.values if v.whole is None)
        filled = [v.name for v in whole if not graph.nodes[v.producer].layer.rewrites(v.top)]
        for name in {*graph.outputs, *graph.inputs, *filled, *kept & graph.last.keys()}:
            value = graph.values[graph.last[name]]
            ids.add(value.data)
        ids |= {graph.values[graph.stored(v)].diff for v in self._kept_gradients()}
        for value in graph.values:
            if value.loss_weight:
                ids.add(value.data)
        for node in graph.nodes:
            ids |= {node.scratch[s.name] for s in node.layer.scratches.values() if s.lives.value == "state"}
        return ids

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
        self.findings.say()
        return total

    def statistics(self) -> dict:
        """Return statistics of Large Model Support for this net and its runtime: see `net_statistics`."""
        return net_statistics(self)

    # -- shapes -------------------------------------------------------------------------------------------------------
    def _on_reshape(self, blob: Blob, shape: tuple[int, ...]) -> None:
        """Give all versions of a blob memory of the new shape; other shapes follow at the next `refresh_shapes`."""
        versions = [v for v in self.graph.values if v.name == blob.name]
        if versions[0].shape == shape:
            return
        nbytes = math.prod(shape) * self.dtype.itemsize
        for b in {b for v in versions for b in (v.data, v.diff)}:
            memory = self.memory.memories[b]
            if memory.nbytes != nbytes:
                memory.give_back()
                self.memory.memories[b] = SyncedMemory(nbytes, memory.name, self.device, pinned=memory.pinned)
        self.versions.reshaped(blob, self.memory.memories)
        for value in versions:
            value.shape = shape
        self._dirty = True

    def refresh_shapes(self) -> None:
        """Reshape the net if an input changed its shape, or a source's next batch has another. Cheap otherwise."""
        for node in self.graph.nodes:
            if node.bottoms or node.layer.is_net_input:
                continue
            shapes = [tuple(s) for s in node.layer.infer_shapes([])]
            self._dirty |= shapes != [self.graph.values[t].shape for t in node.tops]
        if self._dirty:
            self.reshape()

    def reshape(self) -> None:
        """Infer all shapes again and make memory for them; parameters and inputs keep their values."""
        try:
            self.ran &= not self.graph.infer_shapes()
        except CaffeError as error:
            error.at(file=self.file)
            raise
        self.device.synchronize()
        old, blobs = self.memory, self.blobs
        old.release()
        self._dirty = False
        self._set_up_memory(old)
        self._fill_constants()
        for name, blob in self.blobs.items():  # keep the Blob objects that the user may hold
            mine = blobs.get(name)
            if mine is not None:
                mine.take_over(blob)
                self.blobs[name] = mine

    # -- parameters ---------------------------------------------------------------------------------------------------
    @property
    def learnable_params(self) -> list[Blob]:
        """Return the blobs of parameters that own their memory, in order of appearance."""
        return [self.param_blob(p) for p in self.graph.learnable]

    def clear_param_diffs(self) -> None:
        """Set all parameter gradients to zero."""
        for blob in self.learnable_params:
            blob.diff = 0

    def share_with(self, other: Net) -> None:
        """Use the other net's parameter data for same-named layers (not gradients)."""
        weights.share(self, other)

    def close(self) -> None:
        """Release files and threads of data layers."""
        self.findings.say()
        for node in self.graph.nodes:
            node.layer.close()
