"""Convolve on a GPU: through cuDNN where it is installed and can do it, else through column matrices and cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ....backend.bfloat16 import BFLOAT16
from ... import WORKSPACE_LIMIT, NotBuilt
from ...column_plan import ColumnPlan
from ...geometry import ConvGeometry
from ...records import Grid
from .. import bias_relu
from . import conv_add, few_channels, im2col
from .channel_bias import conv_bias_gradient

__all__ = [
    "conv_ahead_plan",
    "conv_add_backward_data",
    "conv_add_backward_data_plan",
    "conv_add_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_beside_plan",
    "conv_bias_gradient",
    "conv_bias_relu_backward",
    "conv_channels_last_plan",
    "conv_forward",
    "conv_half_plan",
    "conv_plan",
]

_Answer = TypeVar("_Answer")
_FILLS = 1 << 14  # positions of all images from which a gradient's blocks fill the GPU


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """Hold the plan of one of two engines: `cudnn` (an object of `cuda/cudnn/convolution.py`) or `columns`.

    few: beside cuDNN, what computes the weights' gradient in its place.
    """

    geometry: ConvGeometry
    workspace_bytes: int
    cudnn: Any = None
    columns: ColumnPlan | None = None
    few: few_channels.FewChannelsPlan | None = None


def conv_channels_last_plan(geometry: ConvGeometry, dtype: DTypeLike) -> bool:
    """Return whether this device convolves channels-last: there are direct kernels, or cuDNN does all directions."""
    g = replace(geometry, batch=max(1, geometry.batch), channels_last=True)
    return g.depthwise or _cudnn_convolves(g, dtype)


def conv_half_plan(geometry: ConvGeometry, dtype: DTypeLike) -> bool:
    """Return whether this device convolves bfloat16 arrays.

    It must know the type, and cuDNN must do all three directions, unless there are direct kernels.
    """
    if np.dtype(dtype) != np.float32 or not cuda.knows_bfloat16() or cuda.math() != "tf32":
        return False
    if geometry.depthwise:
        return True
    return bool(geometry.batch) and 1 <= geometry.axes <= 3 and _cudnn_convolves(geometry, BFLOAT16)


def _cudnn_convolves(geometry: ConvGeometry, dtype: DTypeLike) -> bool:
    """Return whether cuDNN does all three directions of a convolution."""
    from ..cudnn import convolution  # imported late: a machine without cuDNN's packages can import the operations

    try:
        convolution.plan(geometry, dtype, WORKSPACE_LIMIT["cuda"], seldom=convolution.DIRECTIONS)
    except convolution.CudnnUnsupported:
        return False
    except NotBuilt:
        pass  # within `conv_ahead_plan`, which asks again
    return True


def conv_ahead_plan(ask: Callable[[], _Answer]) -> _Answer:
    """Return `ask()`, while processes build the engines of its plans that take long."""
    from ..cudnn import ahead, build, convolution

    if build.is_collecting() or not convolution.available():
        return ask()
    with build.collecting() as wanted:
        try:
            answer = ask()
            if not wanted:
                return answer
        except NotBuilt:
            pass
    with ahead.building(wanted):
        return ask()


def conv_plan(
    geometry: ConvGeometry,
    dtype: DTypeLike,
    workspace_limit: int,
    bias: bool = False,
    relu: bool = False,
    half: bool = False,
    seldom: Collection[str] = (),
) -> ConvPlan:
    """Choose an engine and its algorithms.

    Args:
        bias, relu: what `conv_forward` will be asked for.
        half: images and weights are bfloat16; the gradient of the weights is of `dtype` all the same.
        seldom: what runs so seldom that no time is spent on the choice: "forward", "backward_data", "backward_filter",
            "ending" (bias and ReLU).

    Raises:
        CudnnUnsupported: cuDNN cannot convolve these channels-last or bfloat16 arrays; others fall back to columns.
    """
    from ..cudnn import convolution  # imported late: a machine without cuDNN's packages can import the operations

    dtype = BFLOAT16 if half else np.dtype(dtype)
    if half or geometry.batch and (geometry.channels_last or (1 <= geometry.axes <= 3 and convolution.available())):
        try:
            few = few_channels.plan(geometry, dtype, workspace_limit)
            ending = convolution.Fused(bool(bias), bool(relu)) if "ending" not in seldom else convolution.Fused()
            unused = {*seldom, "backward_filter"} if few is not None else seldom
            plan = convolution.plan(geometry, dtype, workspace_limit, fused=ending, seldom=unused)
            return ConvPlan(geometry, max(plan.workspace_bytes, few.workspace_bytes if few else 0), cudnn=plan, few=few)
        except convolution.CudnnUnsupported:
            if geometry.channels_last or half:
                raise
            # column matrices can do it
    columns = im2col.plan(geometry, dtype.itemsize, workspace_limit)
    return ConvPlan(geometry, columns.workspace_bytes, columns=columns)


def conv_forward(
    plan: ConvPlan, x: AnyArray, w: AnyArray, b: AnyArray | None, y: AnyArray, work: AnyArray | None, relu: bool = False
) -> None:
    """Compute y = w * x (+ b), and set negative values to 0 if `relu`."""
    if plan.cudnn is not None:
        plan.cudnn.forward(x, w, b, y, work, relu)
        return
    im2col.forward(plan.columns, x, w, y, work)
    if b is not None or relu:
        bias_relu.forward(y, b, relu, plan.geometry.grid)


def conv_backward_data(plan: ConvPlan, dy: AnyArray, w: AnyArray, dx: AnyArray, work: AnyArray | None) -> None:
    """Compute dx from dy, the transpose of `conv_forward`; every element of dx is written."""
    if plan.cudnn is not None:
        plan.cudnn.backward_data(dy, w, dx, work)
    else:
        im2col.backward_data(plan.columns, dy, w, dx, work)


def conv_add_backward_data_plan(plan: ConvPlan) -> int | None:
    """Return the bytes of workspace that `conv_add_backward_data` takes; None where it cannot do this convolution."""
    return conv_add.workspace_bytes(plan.geometry, plan.cudnn.dtype.itemsize) if plan.cudnn is not None else None


def conv_add_backward_data(plan: ConvPlan, dy: AnyArray, w: AnyArray, dx: AnyArray, work: AnyArray | None) -> None:
    """Add to dx what `conv_backward_data` would write."""
    conv_add.add(plan.geometry, dy, w, dx, work)


def conv_backward_filter(
    plan: ConvPlan, x: AnyArray, dy: AnyArray, dw: AnyArray, work: AnyArray | None, accumulate: bool
) -> None:
    """Write to dw (or add, if `accumulate`) the gradient of the weights, summed over images and positions."""
    if plan.few is not None:
        few_channels.backward_filter(plan.few, x, dy, dw, work, accumulate)
    elif plan.cudnn is not None:
        plan.cudnn.backward_filter(x, dy, dw, work, accumulate)
    else:
        im2col.backward_filter(plan.columns, x, dy, dw, work, accumulate)


def conv_beside_plan(plan: ConvPlan) -> int | None:
    """Return the bytes of workspace with which `conv_backward_filter` can run beside `conv_backward_data`.

    None: it cannot, or it does not pay since either fills the GPU.
    """
    g = plan.geometry
    if plan.cudnn is None or g.batch * g.out_size > _FILLS:
        return None  # column matrices: products share one workspace
    return plan.cudnn.workspace_by_direction["backward_filter"]


def conv_add_bias(y: AnyArray, b: AnyArray, grid: Grid) -> None:
    """Add b (channels) to y."""
    bias_relu.forward(y, b, False, grid)


def conv_bias_relu_backward(
    y: AnyArray | None,
    dy: AnyArray,
    dy_out: AnyArray | None,
    db: AnyArray | None,
    accumulate: bool,
    work: AnyArray | None,
    grid: Grid,
    bits: AnyArray | None = None,
) -> None:
    """Compute the gradients of a bias and a ReLU."""
    bias_relu.backward(y, bits, dy, dy_out, db, accumulate, work, grid)
