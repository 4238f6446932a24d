"""Tracks the versions of a blob: values of one name that in-place layers wrote to separate memory, and their gradients.

In Caffe all versions share one memory, data and diff. Here they share it only where results stay the same. So a blob
shows one version, and before a pass the shown data or diff is copied to the version that the pass reads. `bring` and
`show` handle data around a forward, `bring_diffs` and `show_diffs` gradients around a backward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...arrays import DType
from ...blob import Blob, host_view
from ...memory import exported_views
from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from ..build.gradients import gets_gradient, in_one_memory, shown_gradients
from ..build.graph import Graph, Node, Value

_NOTHING = (State.UNINITIALIZED, State.DISCARDED)


class Versions:
    """Record which version every blob of a net shows: `shown` maps blob name to value id.

    Methods take `start` and `end`: the first and last layer of a forward, or the last and first layer of a backward.
    The values that such a pass touches are found once and kept, because iterations on small batches are short.

    Args:
        memory_of: returns the memory of a buffer id.
        before: the record that this one replaces after a reshape.
    """

    def __init__(
        self,
        graph: Graph,
        blobs: Mapping[str, Blob],
        memory_of: Callable[[int], SyncedMemory],
        dtype: DType,
        before: Versions | None = None,
    ):
        self._graph, self._blobs, self._memory_of, self._dtype = graph, blobs, memory_of, dtype
        self.shown: dict[str, int] = dict(before.shown if before else graph.last)
        places: dict[str, set[int]] = {}
        for value in graph.values:
            places.setdefault(value.name, set()).add(value.data)
        self._several = {name for name, data in places.items() if len(data) > 1}
        self._read: dict[tuple[int, int], list[Value]] = {}
        self._made: dict[tuple[int, int], list[Value]] = {}
        self._alike = in_one_memory(graph)
        diffs: dict[int, set[int]] = {}
        for value in graph.values:
            diffs.setdefault(self._alike[value.id], set()).add(value.diff)
        self._several_diffs = {k for k, ids in diffs.items() if len(ids) > 1}
        showing = [*shown_gradients(graph).values(), *(before._shown_diffs.values() if before else ())]
        self._shown_diffs: dict[int, int] = {self._alike[v]: v for v in showing}
        self._names: dict[int, list[str]] = {}  # names of blobs that share one memory in Caffe
        for name, v in graph.last.items():
            self._names.setdefault(self._alike[v], []).append(name)
        self._read_diffs: dict[tuple[int, int], list[Value]] = {}
        self._made_diffs: dict[tuple[int, int], list[Value]] = {}
        for name in self._several:
            self._show(graph.values[self.shown[name]])
        for k in self._several_diffs & self._shown_diffs.keys():
            self._show_diff(graph.values[self._shown_diffs[k]])

    # -- data ---------------------------------------------------------------------------------------------------------
    def bring(self, start: int, end: int) -> None:
        """Copy, before a forward, each shown version to the version that is read first, as if they shared memory."""
        if (start, end) not in self._read:
            self._read[start, end] = self._read_first(start, end)
        for value in self._read[start, end]:
            self._bring(self._graph.values[self.shown.get(value.name, value.id)], value)

    def show(self, start: int, end: int) -> None:
        """Let blobs show, after a forward, the versions that it made last."""
        if (start, end) not in self._made:
            tops = [self._graph.values[t] for node in self._graph.nodes[start : end + 1] for t in node.tops]
            last = {v.name: v for v in tops if v.name in self._several}
            self._made[start, end] = list(last.values())
        for value in self._made[start, end]:
            self._show(value)

    def _show(self, value: Value) -> None:
        self.shown[value.name] = value.id
        if value.name in self._blobs:
            blob = self._blobs[value.name]
            blob.data_memory, blob.data_last = self._memory_of(value.data), value.channels_last

    def _read_first(self, start: int, end: int) -> list[Value]:
        """Return values that these layers read before they make them, of blobs with several versions."""
        made: set[int] = set()
        read = []
        for node in self._graph.nodes[start : end + 1]:
            values = (self._graph.values[b] for b in node.bottoms if b not in made)
            read += [value for value in values if value.name in self._several]
            if not node.layer.declares.is_net_input:
                made.update(t for j, t in enumerate(node.tops) if node.layer.rewrites(j))
        return read

    def _bring(self, shown: Value, wanted: Value) -> None:
        separate = shown.data != wanted.data and shown.shape == wanted.shape  # where shapes differ, do not copy
        if not separate or self._memory_of(shown.data).state is State.UNINITIALIZED:
            return
        self._copy(shown, shown.data, wanted, wanted.data)

    def _copy(self, shown: Value, old: int, wanted: Value, new: int) -> None:
        source, target = self._memory_of(old), self._memory_of(new)
        exported_views.before_run((source,), ())
        source.ask(Ask.READ_CPU)
        target.ask(Ask.OVERWRITE_CPU)
        np.copyto(
            host_view(target, wanted.shape, self._dtype, wanted.channels_last),
            host_view(source, shown.shape, self._dtype, shown.channels_last).reshape(wanted.shape),
        )

    # -- gradients ----------------------------------------------------------------------------------------------------
    def bring_diffs(self, start: int, end: int) -> None:
        """Copy, before a backward, each shown gradient to the version that is read first."""
        if (start, end) not in self._read_diffs:
            self._read_diffs[start, end] = self._diffs_read_first(start, end)
        for value in self._read_diffs[start, end]:
            shown = self._graph.values[self._shown_diffs.get(self._alike[value.id], value.id)]
            if shown.diff == value.diff:
                continue
            target = self._memory_of(value.diff)
            if self._memory_of(shown.diff).state not in _NOTHING:
                self._copy(shown, shown.diff, value, value.diff)
            elif target.state not in _NOTHING:  # left by an earlier pass
                target.ask(Ask.OVERWRITE_CPU)
                host_view(target, value.shape, self._dtype, value.channels_last)[...] = 0

    def show_diffs(self, start: int, end: int) -> None:
        """Let blobs show, after a backward, the gradients that it made last: those of their earliest versions."""
        if (start, end) not in self._made_diffs:
            made = [self._graph.values[b] for node in self._backward(start, end) for b in gets_gradient(node)]
            last = {self._alike[v.id]: v for v in made if self._alike[v.id] in self._several_diffs}
            self._made_diffs[start, end] = list(last.values())
        for value in self._made_diffs[start, end]:
            self._show_diff(value)

    def _show_diff(self, value: Value) -> None:
        k = self._alike[value.id]
        self._shown_diffs[k] = value.id
        for name in self._names.get(k, ()):
            blob = self._blobs[name]
            blob.diff_memory, blob.diff_last = self._memory_of(value.diff), value.channels_last

    def _backward(self, start: int, end: int) -> list[Node]:
        return [node for node in reversed(self._graph.nodes[end : start + 1]) if node.need_backward]

    def _diffs_read_first(self, start: int, end: int) -> list[Value]:
        """Return values whose gradients these layers read before they make them, of blobs with several versions.

        Loss weights are left out.
        """
        made: set[int] = set()
        read: dict[int, Value] = {}
        for node in self._backward(start, end):
            tops = (self._graph.values[t] for t in node.tops if any((*node.propagate, *node.param_propagate)))
            for value in tops:
                if value.diff not in made and self._alike[value.id] in self._several_diffs and not value.loss_weight:
                    read.setdefault(value.diff, value)
            made.update(self._graph.values[b].diff for b in gets_gradient(node))
        return list(read.values())

    def reshaped(self, blob: Blob, memories: Mapping[int, SyncedMemory]) -> None:
        """Point a blob at the new memory of its shown version, after the user changed its shape."""
        name = blob.name
        blob.data_memory = memories[self._graph.values[self.shown[name]].data]
        last = self._graph.values[self._graph.last[name]]
        shown = self._graph.values[self._shown_diffs.get(self._alike[last.id], last.id)]
        blob.diff_memory = memories[(shown if shown.name == name else last).diff]
