"""A net with pycaffe's methods: what `caffe.Net` and the nets of solvers are to their users.

Covers: names and vectors, forward and backward by keyword, arrays of any length, weights in and out, what third-party
code reaches for (`_forward`, `_top_ids` and their like). Does not cover: constructors (`classes.py`).
Source of the behaviour: BVLC/caffe, python/caffe/pycaffe.py and _caffe.cpp.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import UsageError
from ..formats.weights.hdf5_weights import write_hdf5_weights
from ..net import net as core
from ..net import weights
from ..net.inspect import table
from ..net.inspect.named import Named
from ..net.run.callbacks import LayerCallback
from ..parallel.data_parallel import DataParallel
from ..proto.caffe_pb2 import NetParameter
from ..vectors import DtypeVec, IntVec, LayerVec, NetBlobVec, StringVec
from .batches import Collected, batches
from .lms import NetLMS
from .mode import solver_count, solver_rank


class PycaffeNet(core.Net):
    """pycaffe's methods on a net. `blobs` and `params` are ordered: blob name -> Blob, layer name -> its parameters.

    One net belongs to one thread at a time; different nets may run in different threads: see `mode.py`.
    """

    def __init__(self, source: str | os.PathLike | NetParameter, phase: int | None = None, **options: Any) -> None:
        options.setdefault("solver_count", solver_count())
        options.setdefault("solver_rank", solver_rank())
        super().__init__(source, phase, **options)

    # -- names and vectors --------------------------------------------------------------------------------------------
    @property
    def layers(self) -> LayerVec[Any]:
        """All layers in order, inserted Split layers and inputs included; each has `type` and `blobs`. A Python layer
        is the object of the user's class."""
        return LayerVec(super().layers)

    @property
    def layer_dict(self) -> OrderedDict[str, Any]:
        """Layers by name."""
        return Named(((node.name, node.layer.face) for node in self.graph.nodes), net=self.name, kind="layer")

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """Loss weight of every blob, by name."""
        values = self.graph.values
        return OrderedDict((name, values[v].loss_weight) for name, v in self.graph.last.items())

    @property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """Names of every layer's tops, by layer."""
        return OrderedDict((n.name, [self.graph.values[t].name for t in n.tops]) for n in self.graph.nodes)

    @property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """Names of every layer's bottoms, by layer."""
        return OrderedDict((n.name, [self.graph.values[b].name for b in n.bottoms]) for n in self.graph.nodes)

    # -- forward and backward -----------------------------------------------------------------------------------------
    def forward(
        self, blobs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: ArrayLike
    ) -> dict[str, np.ndarray]:
        """Run layers start..end (names, both included; default: all). Keyword arguments are arrays for every input.

        Returns views of the outputs (or of the tops of `end`) and of the blobs named in `blobs`; see `Blob` for how
        long a view is good. Raises UsageError for keywords that are not exactly the inputs or have another first
        dimension, and where `end` comes before `start`; ArrayError for values that do not fit; MissingName for names
        that are not there.
        """
        first = 0 if start is None else self.layer_index(start)
        last = len(self.graph.nodes) - 1 if end is None else self.layer_index(end)
        _check_order(start, end, first, last, "forward(start, end)")
        names = self._known_blobs(self.outputs if end is None else self.top_names[end], blobs)
        if kwargs:
            if set(kwargs) != set(self.inputs):
                raise UsageError("Input blob arguments do not match net inputs.", fix=f"give exactly {self.inputs}")
            for name, values in kwargs.items():
                self._fill(name, values, "data", "Input is not batch sized")
        self.forward_range(first, last)
        found = {name: self.blobs[name].data for name in names}
        self.findings.say()
        return found

    def backward(
        self, diffs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: ArrayLike
    ) -> dict[str, np.ndarray]:
        """Run backward from layer start down to end. Keyword arguments are gradients for every output.

        Returns views of the gradients of the inputs (or of the bottoms of `end`) and of the blobs named in `diffs`.
        Parameter gradients add up until `clear_param_diffs`. Raises: as `forward`.
        """
        first = len(self.graph.nodes) - 1 if start is None else self.layer_index(start)
        last = 0 if end is None else self.layer_index(end)
        _check_order(start, end, last, first, "backward(start, end) goes down: it")
        names = self._known_blobs(self.inputs if end is None else self.bottom_names[end], diffs)
        if kwargs:
            if set(kwargs) != set(self.outputs):
                raise UsageError("Top diff arguments do not match net outputs.", fix=f"give exactly {self.outputs}")
            for name, values in kwargs.items():
                self._fill(name, values, "diff", "Diff is not batch sized")
        self.backward_range(first, last)
        return {name: self.blobs[name].diff for name in names}

    def _known_blobs(self, those: Iterable[str], wanted: Iterable[str] | None) -> list[str]:
        if isinstance(wanted, str):
            raise UsageError(f"{wanted!r} is one name, not a list of them", fix=f"give a list: [{wanted!r}]")
        names = list(dict.fromkeys([*those, *(wanted or ())]))
        for name in names:
            self.check_blob(name)
        return names

    def _fill(self, name: str, values, which: str, complaint: str) -> None:
        values, blob = np.asarray(values), self.blobs[name]
        if values.shape[:1] != blob.shape[:1] and (blob.shape or values.size != 1):
            raise UsageError(complaint, fix=f'give an array of shape {blob.shape} for "{name}", not {values.shape}')
        if values.size == blob.count:
            values = values.reshape(blob.shape)
        setattr(blob, which, values)

    # -- Large Model Support ------------------------------------------------------------------------------------------
    @property
    def lms(self) -> NetLMS:
        """What Large Model Support does with the net: `stats()`, `plan`, `report()`."""
        return NetLMS(self)

    # -- callbacks ----------------------------------------------------------------------------------------------------
    def before_forward(self, function: LayerCallback) -> None:
        """Call function(layer index) before the forward of every layer, also in a solver's iterations and tests.

        It may read and write any blob. While a net has such functions its layers run one by one, which costs speed,
        and host memory under Large Model Support: see `net/run/callbacks.py`.
        Raises UsageError for what is no function.
        """
        self.callbacks.before_forward.append(_function(function))

    def after_forward(self, function: LayerCallback) -> None:
        """Call function(layer index) after the forward of every layer. See `before_forward`."""
        self.callbacks.after_forward.append(_function(function))

    def before_backward(self, function: LayerCallback) -> None:
        """Call function(layer index) before the backward of every layer, also of those that have none. See
        `before_forward`."""
        self.callbacks.before_backward.append(_function(function))

    def after_backward(self, function: LayerCallback | DataParallel) -> None:
        """Call function(layer index) after the backward of every layer, also of those that have none. See
        `before_forward`. Or give `caffe.NCCL(...)`: gradients are averaged layer by layer, beside the backward."""
        if isinstance(function, DataParallel):
            function.join(layer_wise=True)
            return
        self.callbacks.after_backward.append(_function(function))

    # -- arrays of any length -----------------------------------------------------------------------------------------
    def forward_all(self, blobs: Iterable[str] | None = None, **kwargs: ArrayLike) -> dict[str, np.ndarray]:
        """`forward` for arrays of any number of items: batch by batch, the last one filled up with zeros.

        Returns copies, joined along the first axis, of the outputs and of the blobs named in `blobs`, without what
        belongs to filled-up items. What is not one value per item (a loss) comes once per batch.
        Raises: as `forward`; UsageError where the arrays have different numbers of items.
        """
        _check_items("forward_all", kwargs)
        found = Collected(self._batch_size, _items(kwargs))
        for batch in self._batch(kwargs):
            found.add(self.forward(blobs=blobs, **batch))
        return found.joined()

    def forward_backward_all(
        self, blobs: Iterable[str] | None = None, diffs: Iterable[str] | None = None, **kwargs: ArrayLike
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """`forward` and `backward` batch by batch: keyword arguments are arrays for every input, and gradients for
        every output where wanted. Returns (blobs, diffs), joined as `forward_all` does. Raises: as that."""
        unknown = kwargs.keys() - {*self.inputs, *self.outputs}
        if unknown:
            raise UsageError("Input blob arguments do not match net inputs.", fix=f"give exactly {self.inputs}")
        _check_items("forward_backward_all", kwargs)
        size, items = self._batch_size, _items(kwargs)
        outs, grads = Collected(size, items), Collected(size, items)
        ins = self._batch({name: kwargs[name] for name in self.inputs if name in kwargs})
        tops = self._batch({name: kwargs[name] for name in self.outputs if name in kwargs})
        for batch, top_diffs in zip_longest(ins, tops, fillvalue={}):
            outs.add(self.forward(blobs=blobs, **batch))
            grads.add(self.backward(diffs=diffs, **top_diffs))
        return outs.joined(), grads.joined()

    @property
    def _batch_size(self) -> int:
        return next(iter(self.blobs.values())).num

    def _batch(self, blobs: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """Arrays in batches of the first blob's first dimension, the last filled up with zeros."""
        return batches(blobs, self._batch_size)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Let the first layer, a MemoryData, deliver these arrays: data (n, c, h, w), labels (n) or (n, 1, 1, 1).

        They are used as they are, without a copy. Raises UsageError where the first layer is another, DataError for
        arrays that do not fit it."""
        layer = self.graph.nodes[0].layer
        if not hasattr(layer, "set_input_arrays"):
            raise UsageError(
                "set_input_arrays may only be called if the first layer is a MemoryData layer",
                fix="write to net.blobs[...].data, or call it on the layer itself",
            )
        layer.set_input_arrays(data, labels)

    # -- weights ------------------------------------------------------------------------------------------------------
    def copy_from(self, path: str | os.PathLike) -> None:
        """Load weights (.caffemodel, binary or HDF5) by layer name. Raises WeightsError naming file and layer."""
        weights.copy_from(self, path)

    def load_hdf5(self, path: str | os.PathLike) -> None:
        """Load weights by layer name; the file's content says of which form they are."""
        weights.copy_from(self, path)

    def save(self, path: str | os.PathLike) -> None:
        """Write a .caffemodel, whole or not at all."""
        weights.save(self, path)

    def save_hdf5(self, path: str | os.PathLike) -> None:
        """Write the weights as HDF5, whole or not at all."""
        write_hdf5_weights(path, weights.hdf5_arrays(self))

    # -- for people ---------------------------------------------------------------------------------------------------
    def _table_rows(self) -> list[table.LayerRow]:
        return table.rows(self.graph, self.dtype.itemsize)

    def __repr__(self) -> str:
        return table.short(self.name, self._table_rows())

    def __str__(self) -> str:
        """A table: every layer's type, tops and their shapes, parameters, and bytes (values, not gradients)."""
        return table.text(self._title(), self._table_rows())

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        return table.html(self._title(), self._table_rows())

    def _title(self) -> str:
        return f'Net "{self.name}", {"TEST" if self.phase else "TRAIN"}, on {self.device.describe()}'

    # -- what third-party code reaches for ----------------------------------------------------------------------------
    def _forward(self, start: int, end: int) -> float:
        """Run layers start..end by index; returns their weighted loss."""
        return self.forward_range(*self._indices(start, end))

    def _backward(self, start: int, end: int) -> None:
        """Run backward of layers start down to end by index."""
        end, start = self._indices(end, start)
        self.backward_range(start, end)

    def _indices(self, low: int, high: int) -> tuple[int, int]:
        n = len(self.graph.nodes)
        if not 0 <= low <= high < n:
            raise UsageError(f"layers {low} to {high} are out of range", fix=f"the net has layers 0 to {n - 1}")
        return low, high

    @property
    def _blobs(self) -> NetBlobVec:
        return NetBlobVec(self.blobs.values())

    @property
    def _blob_names(self) -> StringVec:
        return StringVec(self.blobs)

    @property
    def _blob_loss_weights(self) -> DtypeVec:
        return DtypeVec(self.blob_loss_weights.values())

    @property
    def _layer_names(self) -> StringVec:
        return StringVec(node.name for node in self.graph.nodes)

    @property
    def _inputs(self) -> IntVec:
        return self._ids(self.inputs)

    @property
    def _outputs(self) -> IntVec:
        return self._ids(self.outputs)

    def _top_ids(self, layer: int) -> IntVec:
        """Indices (in `_blobs`) of the tops of layer `layer`."""
        return self._ids(self.graph.values[t].name for t in self.graph.nodes[layer].tops)

    def _bottom_ids(self, layer: int) -> IntVec:
        """Indices (in `_blobs`) of the bottoms of layer `layer`."""
        return self._ids(self.graph.values[b].name for b in self.graph.nodes[layer].bottoms)

    def _ids(self, names: Iterable[str]) -> IntVec:
        place = {name: i for i, name in enumerate(self.blobs)}
        return IntVec(place[name] for name in names)

    def _set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        self.set_input_arrays(data, labels)


def _check_order(start: str | None, end: str | None, first: int, last: int, what: str) -> None:
    if start is not None and end is not None and first > last:
        raise UsageError(
            f'{what} has nothing to run from layer "{start}" to layer "{end}"', fix="swap them: both are included"
        )


def _check_items(what: str, arrays: Mapping[str, ArrayLike]) -> None:
    if not arrays or _items(arrays) == 0:
        raise UsageError(
            f"{what} was given no items",
            fix=f"give arrays of one item or more, net.{what}(data=images); or call forward()",
        )


def _items(arrays: Mapping[str, np.ndarray]) -> int | None:
    return next((len(values) for values in arrays.values() if np.ndim(values)), None)


def _function(given) -> LayerCallback:
    if not callable(given):
        raise UsageError(f"a callback is {given!r}", fix="give a function of one argument, the layer's index")
    return given
