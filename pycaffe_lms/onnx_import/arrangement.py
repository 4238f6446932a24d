"""Convert what moves, joins and cuts values, and Resize."""

from __future__ import annotations

import numpy as np

from .elementwise import spread
from .site import ImportSite, converts


@converts("Concat")
def concat(site: ImportSite) -> str:
    axis = site.axis(site.attr("axis", 1), len(site.out_shape()))
    full = [i for i in range(len(site.inputs)) if 0 not in site.shape(i)]
    blobs = [site.blob(i) for i in full]
    if len(blobs) == 1:
        return blobs[0]
    return site.layer("Concat", blobs, site.out_shape(), concat_param={} if axis == 1 else {"axis": axis})


def _every(site: ImportSite, x: str, axis: int, places: range) -> str:
    """Write the layers that keep these places of an axis: it is cut into groups, of which each keeps one."""
    shape, many, step = site.shape_of(x), len(places), places.step
    out = (*shape[:axis], many, *shape[axis + 1 :])
    missing = max(0, many * step - shape[axis])
    if missing:
        paddings = [n for k in range(len(shape)) for n in (0, missing * (k == axis))]
        longer = (*shape[:axis], many * step, *shape[axis + 1 :])
        x = site.layer("Pad", [x], longer, pad_param={"paddings": paddings}, suffix=f"/whole{axis}")
    first = min(places[0], shape[axis] + missing - many * step)
    if many * step != shape[axis] + missing:
        x = site.cut(x, axis, first, first + many * step)
    x = site.reshape(x, (*shape[:axis], many, step, *shape[axis + 1 :]), suffix=f"/groups{axis}")
    one = places[0] - first
    return site.reshape(site.cut(x, axis + 1, one, one + 1), out, suffix=f"/kept{axis}")


@converts("Split")
def split(site: ImportSite) -> None:
    axis = site.axis(site.attr("axis", 0), len(site.shape()))
    sizes = [site.out_shape(i)[axis] for i in range(len(site.node.output))]
    for i, part in enumerate(site.split(site.blob(), axis, sizes)):
        if site.node.output[i]:
            site.put(i, part)


@converts("Slice")
def slice_(site: ImportSite) -> str:
    shape = site.shape()
    starts, ends = site.numbers(1, "starts") or [], site.numbers(2, "ends") or []
    axes = site.numbers(3, "axes") or list(range(len(starts)))
    steps = site.numbers(4, "steps") or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        site.refuse("its starts, ends, axes and steps differ in number", "export the model again")
    y = site.blob()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = site.axis(axis, len(shape))
        places = range(shape[at])[start:end:step] if step else range(0)
        if not places:
            site.refuse(f"it keeps nothing of axis {at}", "export the model without it")
        if step == -1 and len(places) == shape[at]:
            y = site.layer("Reverse", [y], site.shape_of(y), reverse_param={"axis": at})
        elif step > 1:
            y = _every(site, y, at, places)
        elif step < 1:
            site.refuse(f"it has a step of {step}", "use a step above 0, or one of -1 for the whole axis")
        elif len(places) != shape[at]:
            y = site.cut(y, at, places[0], places[-1] + 1)
    return y


@converts("Flatten", "Reshape", "Squeeze", "Unsqueeze")
def reshape(site: ImportSite) -> str:
    out = site.out_shape()
    if site.op == "Flatten" and site.axis(site.attr("axis", 1), len(site.shape()) + 1) == 1 and len(site.shape()) > 1:
        return site.layer("Flatten", [site.blob()], out)
    return site.reshape(site.blob(), out)


@converts("Transpose")
def transpose(site: ImportSite) -> str:
    ndim = len(site.shape())
    return site.permute(site.blob(), list(site.attr("perm", range(ndim)[::-1])))


@converts("Expand", "Tile")
def expand(site: ImportSite) -> str:
    out = site.out_shape()
    if site.op == "Expand":
        return spread(site, site.blob(), out)
    y = site.blob()
    for axis, (n, o) in enumerate(zip(site.shape(), out, strict=True)):
        y = y if n == o else site.tile(y, axis, o // n)
    return y


@converts("DepthToSpace")
def depth_to_space(site: ImportSite) -> str:
    (n, c, h, w), b = site.shape(), site.attr("blocksize", 1)
    first = site.attr("mode", "DCR") == "DCR"
    shape, order = (
        ((n, b, b, c // b // b, h, w), [0, 3, 4, 1, 5, 2])
        if first
        else ((n, c // b // b, b, b, h, w), [0, 1, 4, 2, 5, 3])
    )
    y = site.reshape(site.blob(), shape, suffix="/blocks")
    return site.reshape(site.permute(y, order, suffix="/order"), site.out_shape())


@converts("SpaceToDepth")
def space_to_depth(site: ImportSite) -> str:
    (n, c, h, w), b = site.shape(), site.attr("blocksize", 1)
    y = site.reshape(site.blob(), (n, c, h // b, b, w // b, b), suffix="/blocks")
    return site.reshape(site.permute(y, [0, 3, 5, 1, 2, 4], suffix="/order"), site.out_shape())


@converts("Pad")
def pad(site: ImportSite) -> str:
    """Write a Pad layer; a convolution or a pooling behind it has taken up the padding, if it can (patterns.py)."""
    pads, axes = [int(n) for n in site.numbers(1, "pads") or []], len(site.shape())
    if not any(pads):
        return site.blob()
    value = site.attr("value", 0.0) if site.opset < 11 else site.const(2, "value").reshape(-1)[0] if site.has(2) else 0
    if site.attr("mode", "constant") != "constant" or value or min(pads) < 0:
        site.refuse("it pads with other values than 0, or cuts off", "pad with zeros, and export the model again")
    if len(pads) != 2 * axes:
        site.refuse("it pads some axes alone", "give pads for every axis, and export the model again")
    paddings = [n for pair in zip(pads[:axes], pads[axes:], strict=True) for n in pair]
    return site.layer("Pad", [site.blob()], site.out_shape(), pad_param={"paddings": paddings})


@converts("Resize", "Upsample")
def resize(site: ImportSite) -> str:
    """Write Upsample for repetition, and otherwise a product with a matrix for each axis, whose numbers are onnx's."""
    shape, out, y = site.shape(), site.out_shape(), site.blob()
    mode, place = site.attr("mode", "nearest"), site.attr("coordinate_transformation_mode", "half_pixel")
    if site.op == "Upsample" or (site.opset < 11 and site.op == "Resize"):
        place = "asymmetric"
    if place == "tf_crop_and_resize":
        site.refuse("it cuts regions out of the input", "export the model without tf_crop_and_resize")
    changed = [axis for axis, (n, o) in enumerate(zip(shape, out, strict=True)) if n != o]
    whole = all(out[axis] % shape[axis] == 0 for axis in changed)
    if mode in ("linear", "bilinear") and place == "align_corners" and len(shape) == 4 and not {0, 1} & set(changed):
        return site.layer("Interp", [y], out, interp_param={"height": out[2], "width": out[3]})
    matrices = {axis: _matrix(site, axis, shape[axis], out[axis], mode, place) for axis in changed}
    if len(shape) == 4 and changed and changed[0] >= 2 and whole and mode == "nearest":
        factors = [out[axis] // shape[axis] for axis in (2, 3)]
        repeats = all(
            np.array_equal(m, np.repeat(np.eye(shape[axis]), out[axis] // shape[axis], axis=0))
            for axis, m in matrices.items()
        )
        if repeats:
            fields = (
                {"scale": factors[0]} if factors[0] == factors[1] else {"scale_h": factors[0], "scale_w": factors[1]}
            )
            return site.layer("Upsample", [y], out, upsample_param=fields)
    for axis, matrix in matrices.items():
        full = list(site.shape_of(y))
        full[axis] = out[axis]
        if axis == len(shape) - 1:
            fields = {"num_output": out[axis], "bias_term": False, "axis": axis}
            y = site.layer(
                "InnerProduct", [y], full, [matrix], fixed=True, suffix=f"/axis{axis}", inner_product_param=fields
            )
            continue
        rows = site.parameter(matrix, f"{site.name}/matrix{axis}")
        rest = int(np.prod(full[axis + 1 :]))
        x = site.reshape(y, (*full[:axis], shape[axis], rest), suffix=f"/rows{axis}")
        x = site.layer("MatMul", [rows, x], (*full[:axis], out[axis], rest), suffix=f"/axis{axis}")
        y = site.reshape(x, full, suffix=f"/shape{axis}")
    return y


def _matrix(site: ImportSite, axis: int, n: int, o: int, mode: str, place: str) -> np.ndarray:
    """Return the matrix of one axis of a Resize: onnx's reference implementation, applied to unit vectors."""
    onnx, helper = site.model.onnx, site.model.onnx.helper
    names = ("cubic_coeff_a", "exclude_outside", "nearest_mode", "antialias")
    attributes = {name: site.attr(name) for name in names if site.attr(name) is not None}
    if site.op == "Upsample" or site.opset < 11:
        attributes = {"nearest_mode": "floor"}
    scales = site.attr("scales")
    if scales is None:
        i = 1 if site.opset < 11 or site.op == "Upsample" else 2
        scales = site.const(i, "scales").reshape(-1) if site.has(i) else ()
    inputs = {"x": np.eye(n, dtype=np.float32)}
    sized = len(scales) == 0
    picked = site.attr("axes")
    if not sized:
        at = list(picked).index(axis) if picked is not None else axis
        inputs["scales"] = np.array([scales[at]], np.float32)
    else:
        inputs["sizes"] = np.array([o], np.int64)
    # Each unit vector is a tensor of one axis: the implementation takes all axes at once, in time exponential in them.
    node = helper.make_node(
        "Resize", ["x", "", "" if sized else "scales", *(["sizes"] if sized else [])], ["y"],
        mode="linear" if mode == "bilinear" else mode, coordinate_transformation_mode=place, **attributes,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "one",
        [onnx.ValueInfoProto(name=name) for name in inputs],
        [onnx.ValueInfoProto(name="y")],
    )
    run = onnx.reference.ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]))
    columns = [run.run(None, {**inputs, "x": row})[0] for row in inputs["x"]]
    return np.stack(columns, axis=1).astype(np.float32)
