"""The Python layer, which runs a class that a user wrote; `user_layer.py` is the interface for such classes.

Source: BVLC/caffe, include/caffe/layers/python_layer.hpp, layer_factory.cpp (behaviour).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

from ..arrays import HostArray
from ..errors import ReadOnlyValue
from ..vectors import BoolVec, RawBlobVec
from .base import Declaration, InPlace, Layer, Pass, Runs, Shape, Shapes, ShapesChanged, at_least
from .registry import register_layer
from .user_layer import BlobVec, HostBlob, UserLayer, UserPhase

_stand_ins: ContextVar[Mapping[str, tuple[int, ...]] | None] = ContextVar("stand_ins", default=None)


@contextmanager
def stand_ins(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[None]:
    """Build nets without users' Python code in this context: tops of Python layers get these shapes, by name."""
    token = _stand_ins.set(shapes)
    try:
        yield
    finally:
        _stand_ins.reset(token)


class StandIn(UserLayer):
    """A replacement for a user's layer in a net that will not run: it gives its tops known shapes."""

    shapes: Mapping[str, tuple[int, ...]]

    def reshape(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        for blob in top:
            if blob.name in self.shapes:  # else it is in place and has its bottom's shape
                blob.reshape(*self.shapes[blob.name])


@register_layer("Python")
class PythonLayer(Layer):
    """Runs the user's class python_param.layer of module python_param.module, with python_param.param_str.

    Bottoms, tops and parameters: any, the class decides. Forward and backward run on the host; the net copies the
    values there and back. The class may change its tops' shapes in `reshape`, and even in `forward`. Its exceptions are
    passed on unchanged. In place, top and bottom are the same memory. Backward reads all bottoms, tops and parameters.
    `share_in_parallel` has no effect, as in Caffe.
    Raises: LayerParamError if the module or the class does not exist; ReadOnlyValue for a write to bottom[i].data, or
    to top[i].data in backward.
    """

    # these must hold for any class
    declares = Declaration(
        bottoms=at_least(0),
        tops=at_least(0),
        in_place=InPlace.MUST,
        runs_on=Runs.HOST,
        overwrites_top_diffs=True,
        gradients_without_top_diffs=True,
        tests_alone=True,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        self.user = self._make()
        if not isinstance(getattr(self.user, "blobs", None), BlobVec):
            self.user.blobs = BlobVec()
        self.user.blobs.dtype = self.dtype
        self.user.param_str = self.param.python_param.param_str
        self.user.phase = UserPhase(self.phase)
        self._bottom = RawBlobVec(HostBlob(name, self.dtype) for name in self.param.bottom)
        self._top = RawBlobVec(HostBlob(name, self.dtype) for name in self.param.top)
        self._same = {j for j, (b, t) in enumerate(zip(self._bottom, self._top, strict=False)) if b.name == t.name}
        for j in self._same:  # in place: one blob, as in Caffe
            self._top[j] = self._bottom[j]
        self._show_bottoms(bottom_shapes)
        self._reshaped = self._ran = False  # which methods already ran when forward is called again with new memory
        self._known: list[Shape] | None = None
        # gradients that the user's forward wrote, as some layers do
        self._written_early: list[HostArray | None] = [None] * len(self._bottom)
        self.user.setup(self._bottom, self._top)
        for blob in self.user.blobs:
            self.add_param(blob.shape, 0, values=np.array(blob.data))

    def _make(self) -> UserLayer:
        shapes = _stand_ins.get()
        return self._load() if shapes is None else self._stand_in(shapes)

    def _stand_in(self, shapes: Mapping[str, tuple[int, ...]]) -> StandIn:
        unknown = [t for t in self.param.top if t not in shapes and t not in self.param.bottom]
        if unknown:
            raise self.error(
                f'is written in Python (module "{self.param.python_param.module}"), and its code is not run here, so '
                f'the shape of its top "{unknown[0]}" is not known',
                fix=f"give it, such as -shape {unknown[0]}=32,10, or let the module's code run: -python on",
            )
        made = StandIn(self.param)
        made.shapes = shapes
        return made

    def _load(self) -> UserLayer:
        p = self.param.python_param
        if not p.module or not p.layer:
            missing = "module" if not p.module else "layer"
            raise self.error(f"python_param.{missing} is not set", fix='write module: "file" layer: "Class"')
        try:
            module = importlib.import_module(p.module)
        except ModuleNotFoundError as failure:
            if failure.name is None or not f"{p.module}.".startswith(f"{failure.name}."):
                raise  # the module exists, but one that it imports does not
            raise self.error(
                f'no Python module "{p.module}"', fix=f"put the folder of {p.module}.py on PYTHONPATH"
            ) from failure
        cls = getattr(module, p.layer, None)
        if not isinstance(cls, type):
            raise self.error(
                f'module "{p.module}" ({getattr(module, "__file__", "built in")}) has no class "{p.layer}"',
                fix="name a class of the module in python_param.layer",
            )
        if not issubclass(cls, UserLayer):  # a prototxt could name any class of any module, even subprocess.Popen
            raise self.error(
                f'class "{p.layer}" of module "{p.module}" is no caffe.Layer',
                fix=f"write class {p.layer}(caffe.Layer):",
            )
        return cls(self.param)

    def _show_bottoms(self, shapes: Shapes) -> None:
        for blob, shape in zip(self._bottom, shapes, strict=True):
            blob.set_shape(shape)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shapes = [tuple(s) for s in bottom_shapes]
        if shapes != self._known:
            self._show_bottoms(shapes)
            self.user.reshape(self._bottom, self._top)
            self._known = shapes
        return [blob.shape for blob in self._top]

    def forward_updates(self) -> frozenset[int]:
        return frozenset(range(len(self.params)))

    def forward(self, io: Pass) -> None:
        try:
            self._forward(io)
        except ShapesChanged:
            raise
        except BaseException:
            self._reshaped = self._ran = False
            raise

    def _forward(self, io: Pass) -> None:
        """Run the user's `reshape` and `forward`. Raise ShapesChanged after one that changed a top's shape; the next
        call, with new memory, continues there."""
        made = [blob.data for blob in self._top] if self._ran else None
        self._bind_params(io.param, [None] * len(io.param))
        for j, (blob, array) in enumerate(zip(self._bottom, io.bottom, strict=True)):
            if j not in self._same:
                blob.bind(_read_only(array))
        if made is None:
            for j, (blob, array) in enumerate(zip(self._top, io.top, strict=True)):
                blob.set_shape(array.shape)
                if j not in self._same:
                    array.fill(0)
                blob.bind(array)
            if not self._reshaped:
                self.user.reshape(self._bottom, self._top)
                self._reshaped = True
                self._follow(io.top)
            with self._explain_writes():
                self.user.forward(self._bottom, self._top)
            self._ran = True
            self._follow(io.top)
        for i, (blob, array) in enumerate(zip(self._top, io.top, strict=True)):
            values = blob.data if made is None else made[i]
            if not np.shares_memory(values, array):
                np.copyto(array, values)
        self._reshaped = self._ran = False
        self._written_early = [blob.early_diff() for blob in self._bottom]
        self._release()

    def _follow(self, tops: Sequence[HostArray]) -> None:
        """Raise ShapesChanged if the user's code changed a top's shape. The blobs keep what forward computed so far."""
        if all(blob.shape == array.shape for blob, array in zip(self._top, tops, strict=True)):
            return
        for blob, array in zip(self._top, tops, strict=True):
            if self._ran and np.shares_memory(blob.data, array):
                blob.bind(np.array(blob.data))
            elif not self._ran:
                blob.bind()
        for blob in (*self._bottom, *self._own_params()):
            blob.bind()
        raise ShapesChanged

    def backward(self, io: Pass) -> None:
        self._bind_params(io.param, io.param_diff, io.accumulate)
        for blob, data, diff in zip(self._top, io.top, io.top_diff, strict=True):
            blob.bind(_read_only(data), np.zeros(blob.shape, self.dtype) if diff is None else diff)
        for k, (blob, data, diff) in enumerate(zip(self._bottom, io.bottom, io.bottom_diff, strict=True)):
            if k in self._same:
                if io.top_diff[k] is None and diff is not None:
                    diff.fill(0)
                    blob.bind(_read_only(data), diff)
                continue
            if diff is not None:
                diff[...] = 0 if self._written_early[k] is None else self._written_early[k]
            blob.bind(_read_only(data), diff)
        propagate_down = BoolVec(diff is not None for diff in io.bottom_diff)
        try:
            with self._explain_writes():
                self.user.backward(self._top, propagate_down, self._bottom)
        finally:
            self._release()

    @contextmanager
    def _explain_writes(self) -> Iterator[None]:
        """Turn NumPy's error for a write to a read-only array into one that names the layer and the fix."""
        try:
            yield
        except ValueError as failure:
            if "read-only" not in str(failure):
                raise
            raise self.error(
                f"wrote to a read-only array ({failure}); bottom[i].data, and in backward top[i].data, must not be "
                "changed, because other layers may read them later, or on the GPU",
                kind=ReadOnlyValue,
                fix="write to top[i].data, or put the layer in place (top: and bottom: of one name) to change a bottom",
            ) from failure

    def _bind_params(
        self, datas: Sequence[HostArray], diffs: Sequence[HostArray | None], accumulate: Sequence[bool] = ()
    ) -> None:
        for i, (blob, data, diff) in enumerate(zip(self._own_params(), datas, diffs, strict=True)):
            if diff is not None and not accumulate[i]:
                diff.fill(0)
            blob.bind(data, diff if diff is not None else np.zeros(blob.shape, self.dtype))

    def _own_params(self) -> Sequence[HostBlob]:
        """Return the parameters' blobs that the user's code sees."""
        return cast("Sequence[HostBlob]", self.user.blobs)

    def _release(self) -> None:
        for blob in (*self._bottom, *self._top, *self._own_params()):
            blob.bind()

    @property
    def public_object(self) -> Any:
        """Return the user's object, which `net.layers` shows."""
        return self.user

    @property
    def blobs(self) -> Any:
        """Return the net's parameter blobs."""
        return self._blobs

    @blobs.setter
    def blobs(self, blobs: Any) -> None:
        self._blobs = blobs
        for mine, theirs in zip(self._own_params(), blobs, strict=True):
            mine.parameter = theirs
            mine.bind()


def _read_only(array: HostArray | None) -> HostArray | None:
    if array is None:
        return None
    view = array.view()
    view.flags.writeable = False
    return view
