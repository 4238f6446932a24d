"""Gives a net pycaffe's methods, for `caffe.Net` and the nets of solvers.

The order is: names and vectors, forward and backward by keyword, callbacks, arrays of any length, weights in and out,
and what third-party code calls (`_forward`, `_top_ids`). The constructor of `caffe.Net` is in `classes.py`.
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

from ..arrays import HostArray
from ..errors import UsageError
from ..formats.weights.hdf5_weights import write_hdf5_weights
from ..net import net as core
from ..net import weights
from ..net.inspect import table
from ..net.inspect.named import Named
from ..net.inspect.summary import NetSummary, summarize
from ..net.run.callbacks import LayerCallback
from ..parallel.data_parallel import DataParallel
from ..proto.caffe_pb2 import NetParameter
from ..vectors import DtypeVec, IntVec, LayerVec, NetBlobVec, StringVec
from .batches import Collected, batches
from .lms import NetLMS
from .mode import solver_count, solver_rank


class PycaffeNet(core.Net):
    """Add pycaffe's methods to a net. `blobs` and `params` are ordered: blob name -> Blob, layer name -> parameters.

    One net belongs to one thread at a time; different nets may run in different threads: see `mode.py`.
    """

    optimised = False  # whether whole forwards run fused, and compute hidden blobs only where they are asked for

    def __init__(self, source: str | os.PathLike[str] | NetParameter, phase: int | None = None, **options: Any) -> None:
        options.setdefault("solver_count", solver_count())
        options.setdefault("solver_rank", solver_rank())
        super().__init__(source, phase, **options)

    # -- names and vectors --------------------------------------------------------------------------------------------
    @property
    def layers(self) -> LayerVec[Any]:
        """Return all layers in order, with inserted Split layers and inputs; each has `type` and `blobs`. A Python
        layer is the object of the user's class."""
        return LayerVec(super().layers)

    @property
    def layer_dict(self) -> OrderedDict[str, Any]:
        """Return the layers by name."""
        return Named(((node.name, node.layer.public_object) for node in self.graph.nodes), net=self.name, kind="layer")

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """Return every blob's loss weight by name."""
        values = self.graph.values
        return OrderedDict((name, values[v].loss_weight) for name, v in self.graph.last.items())

    @property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """Return the names of every layer's tops, by layer."""
        return OrderedDict((n.name, [self.graph.values[t].name for t in n.tops]) for n in self.graph.nodes)

    @property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """Return the names of every layer's bottoms, by layer."""
        return OrderedDict((n.name, [self.graph.values[b].name for b in n.bottoms]) for n in self.graph.nodes)

    # -- forward and backward -----------------------------------------------------------------------------------------
    def forward(
        self, blobs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: ArrayLike
    ) -> dict[str, HostArray]:
        """Run layers start..end (names, both included; default: all). Keyword arguments are arrays for every input.

        Returns:
            Views of the outputs (or of the tops of `end`) and of the blobs named in `blobs`; see `Blob` for how long a
            view is valid.

        Raises:
            UsageError: keywords are not exactly the inputs or have another first dimension; `end` is before `start`.
            ArrayError: values do not fit.
            MissingName: a layer or blob is not in the net.
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
        if self.optimised and start is None and end is None:
            self._keep_hidden(names)
            self.test_forward()
        else:
            self.forward_range(first, last)
        found = {name: self.blobs[name].data for name in names}
        self.device_errors.log()
        return found

    def backward(
        self, diffs: Iterable[str] | None = None, start: str | None = None, end: str | None = None, **kwargs: ArrayLike
    ) -> dict[str, HostArray]:
        """Run backward from layer start down to end. Keyword arguments are gradients for every output.

        Returns views of the gradients of the inputs (or of the bottoms of `end`) and of the blobs named in `diffs`.
        Parameter gradients add up until `clear_param_diffs`. Raises what `forward` raises.
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

    def _keep_hidden(self, names: Iterable[str]) -> None:
        """Let the hidden blobs among these be computed in every forward from now on."""
        hidden = set(names) - {*self.inputs, *self.outputs} - self.arrangement.kept.data
        if hidden:
            self.keep(*sorted(hidden))

    def _fill(self, name: str, given: ArrayLike, which: str, complaint: str) -> None:
        values, blob = np.asarray(given), self.blobs[name]
        if values.shape[:1] != blob.shape[:1] and (blob.shape or values.size != 1):
            raise UsageError(complaint, fix=f'give an array of shape {blob.shape} for "{name}", not {values.shape}')
        if values.size == blob.count:
            values = values.reshape(blob.shape)
        setattr(blob, which, values)

    # -- Large Model Support ------------------------------------------------------------------------------------------
    @property
    def lms(self) -> NetLMS:
        """Return what Large Model Support does with the net, with `stats()`, `plan` and `report()`."""
        return NetLMS(self)

    # -- callbacks ----------------------------------------------------------------------------------------------------
    def before_forward(self, function: LayerCallback) -> None:
        """Call function(layer index) before the forward of every layer, also in a solver's iterations and tests.

        It may read and write any blob. A net that has such functions runs its layers one by one, which costs speed, and
        host memory under Large Model Support: see `net/run/callbacks.py`.
        Raises UsageError for what cannot be called.
        """
        self.callbacks.before_forward.append(_function(function))

    def after_forward(self, function: LayerCallback) -> None:
        """Call function(layer index) after the forward of every layer. See `before_forward`."""
        self.callbacks.after_forward.append(_function(function))

    def before_backward(self, function: LayerCallback) -> None:
        """Call function(layer index) before the backward of every layer, even where it has none. See
        `before_forward`."""
        self.callbacks.before_backward.append(_function(function))

    def after_backward(self, function: LayerCallback | DataParallel) -> None:
        """Call function(layer index) after the backward of every layer, even where it has none. See `before_forward`.

        Given `caffe.NCCL(...)`, average gradients over ranks layer by layer, beside the backward."""
        if isinstance(function, DataParallel):
            function.join(layer_wise=True)
            return
        self.callbacks.after_backward.append(_function(function))

    # -- arrays of any length -----------------------------------------------------------------------------------------
    def forward_all(self, blobs: Iterable[str] | None = None, **kwargs: ArrayLike) -> dict[str, HostArray]:
        """Run `forward` on arrays of any number of items, batch by batch, the last batch padded with zeros.

        Returns copies, joined along the first axis, of the outputs and of the blobs named in `blobs`, without those of
        padded items. A blob without a value per item, such as a loss, gets one value per batch.
        Raises what `forward` raises, and UsageError where the arrays have different numbers of items.
        """
        _check_items("forward_all", kwargs)
        found = Collected(self._batch_size, _items(kwargs))
        for batch in self._batch(kwargs):
            found.add(self.forward(blobs=blobs, **batch))
        return found.joined()

    def forward_backward_all(
        self, blobs: Iterable[str] | None = None, diffs: Iterable[str] | None = None, **kwargs: ArrayLike
    ) -> tuple[dict[str, HostArray], dict[str, HostArray]]:
        """Run `forward` and `backward` batch by batch. Keyword arguments are arrays for every input and, where wanted,
        gradients for every output. Returns (blobs, diffs), joined as by `forward_all`. Raises what that raises."""
        unknown = kwargs.keys() - {*self.inputs, *self.outputs}
        if unknown:
            raise UsageError("Input blob arguments do not match net inputs.", fix=f"give exactly {self.inputs}")
        _check_items("forward_backward_all", kwargs)
        size, items = self._batch_size, _items(kwargs)
        outs, grads = Collected(size, items), Collected(size, items)
        ins = self._batch({name: kwargs[name] for name in self.inputs if name in kwargs})
        tops = self._batch({name: kwargs[name] for name in self.outputs if name in kwargs})
        none: dict[str, Any] = {}
        for batch, top_diffs in zip_longest(ins, tops, fillvalue=none):
            outs.add(self.forward(blobs=blobs, **batch))
            grads.add(self.backward(diffs=diffs, **top_diffs))
        return outs.joined(), grads.joined()

    @property
    def _batch_size(self) -> int:
        return next(iter(self.blobs.values())).num

    def _batch(self, blobs: Mapping[str, ArrayLike]) -> Iterator[dict[str, Any]]:
        """Return the arrays in batches of the first blob's first dimension, the last one padded with zeros."""
        return batches(blobs, self._batch_size)

    def set_input_arrays(self, data: HostArray, labels: HostArray) -> None:
        """Let the first layer, a MemoryData, read these arrays: data (n, c, h, w), labels (n) or (n, 1, 1, 1).

        They are not copied. Raises UsageError where the first layer is of another type, DataError for arrays that do
        not fit it."""
        layer = self.graph.nodes[0].layer
        if not hasattr(layer, "set_input_arrays"):
            raise UsageError(
                "set_input_arrays may only be called if the first layer is a MemoryData layer",
                fix="write to net.blobs[...].data, or call it on the layer itself",
            )
        layer.set_input_arrays(data, labels)

    # -- weights ------------------------------------------------------------------------------------------------------
    def copy_from(self, path: str | os.PathLike[str]) -> None:
        """Load weights by layer name: a .caffemodel, binary or HDF5, or a .safetensors file (or index of several) of a
        public transformer. Raises WeightsError naming file and layer."""
        self._check_unfolded()
        weights.copy_from(self, path)

    def share_with(self, other: core.Net) -> None:
        """Use the parameter data of another net for layers of the same name. Raises UsageError, WeightsError."""
        for net in (self, other):
            if isinstance(net, PycaffeNet):
                net._check_unfolded()
        super().share_with(other)

    def _check_unfolded(self) -> None:
        if self.optimised:
            raise UsageError(
                "parameters of a net with optimise=True are folded into others when it is built",
                fix="build the net anew, with these weights: Net(file, TEST, weights=..., optimise=True)",
            )

    def load_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Load weights by layer name, as `copy_from` does, which finds the form from the file's content."""
        self.copy_from(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .caffemodel; a path that ends in .safetensors: a file like those of public transformers, of a net of
        such a family. If writing fails, no incomplete file is left."""
        weights.save(self, path)

    def save_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as HDF5. If writing fails, no incomplete file is left."""
        write_hdf5_weights(path, weights.hdf5_arrays(self))

    # -- tables ------------------------------------------------------------------------------------------------------
    def _table_rows(self) -> list[table.LayerRow]:
        return table.rows(self.graph, self.dtype.itemsize)

    def __repr__(self) -> str:
        return table.short(self.name, self._table_rows())

    def __str__(self) -> str:
        """Return a table: every layer's type, tops and their shapes, parameters, and bytes (values, not gradients)."""
        return table.text(self._title(), self._table_rows())

    def _repr_html_(self) -> str:
        """Return the table as HTML, for notebooks."""
        return table.html(self._title(), self._table_rows())

    def summary(self) -> NetSummary:
        """Return a table of the layers of the prototxt: settings, tops, parameters, floating-point operations of a
        forward, and bytes (values and parameters, not gradients). It prints as text and is a table in a notebook."""
        return NetSummary(self._title(), tuple(summarize(self.graph, self.dtype.itemsize)))

    def _title(self) -> str:
        return f'Net "{self.name}", {"TEST" if self.phase else "TRAIN"}, on {self.device.describe()}'

    # -- what third-party code calls ----------------------------------------------------------------------------------
    def _forward(self, start: int, end: int) -> float:
        """Run layers start..end by index; return their weighted loss."""
        return self.forward_range(*self._indices(start, end))

    def _backward(self, start: int, end: int) -> None:
        """Run the backward of layers start down to end by index."""
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
        """Return the indices (in `_blobs`) of the tops of layer `layer`."""
        return self._ids(self.graph.values[t].name for t in self.graph.nodes[layer].tops)

    def _bottom_ids(self, layer: int) -> IntVec:
        """Return the indices (in `_blobs`) of the bottoms of layer `layer`."""
        return self._ids(self.graph.values[b].name for b in self.graph.nodes[layer].bottoms)

    def _ids(self, names: Iterable[str]) -> IntVec:
        place = {name: i for i, name in enumerate(self.blobs)}
        return IntVec(place[name] for name in names)

    def _set_input_arrays(self, data: HostArray, labels: HostArray) -> None:
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


def _items(arrays: Mapping[str, ArrayLike]) -> int | None:
    return next((len(np.asarray(values)) for values in arrays.values() if np.ndim(values)), None)


def _function(given: LayerCallback) -> LayerCallback:
    if not callable(given):
        raise UsageError(f"a callback is {given!r}", fix="give a function of one argument, the layer's index")
    return given
