"""Convert layers that find objects and that pool regions.

DetectionOutput becomes NonMaxSuppression, around which the best of each class, and of each image, are chosen. So does
Proposal, whose regions other layers read.
"""

from __future__ import annotations

import numpy as np

from ..layers.detection.boxes import CENTER_SIZE, CORNER, CORNER_SIZE
from .site import Precision, Site, converts

_FAMILY = "vision"
_FAR = 2.0**20  # as in ops/cpu/pooling/roi.py
_LEAST = float(np.finfo(np.float32).min)
_BEHIND = 1 << 40  # above all numbers of image and class


@converts(
    "ROIPooling",
    family=_FAMILY,
    ops="MaxRoiPool Reshape Slice Sub Add Mul Concat",
    note="float32 only; regions of images in the batch",
    precision=Precision.SINGLE,
)
def roi_pooling(site: Site) -> str:
    regions = site.bottoms[1]
    if len(site.bottom_shapes[1]) != 2:
        regions = site.reshape(regions, (0, 5))
    p = site.param.roi_pooling_param
    if p.pad_ratio:
        low, high = _columns(site, regions, 1, 3), _columns(site, regions, 3, 5)
        more = site.op("Add", site.op("Sub", high, low), site.number(1))
        more = site.op("Mul", more, site.number(p.pad_ratio))
        ends = site.op("Sub", low, more), site.op("Add", high, more)
        regions = site.op("Concat", _columns(site, regions, 0, 1), *ends, axis=1)
    return site.op("MaxRoiPool", site.x, regions, pooled_shape=[p.pooled_h, p.pooled_w], spatial_scale=p.spatial_scale)


@converts(
    "PSROIPooling",
    family=_FAMILY,
    ops="Reshape Transpose Clip Cast Mul Add Sub Max Div Slice Floor Ceil Less Not And Unsqueeze Shape Range Squeeze "
    "Equal MatMul ReduceSum",
    note="regions of finite numbers",
    precision=Precision.SINGLE,
)
def psroi_pooling(site: Site) -> str:
    """Write the sum over each cell as two products, with masks of rows and of columns, divided by the cell's size."""
    layer, (_, _, height, width) = site.layer, site.shape
    g, d, scale = layer.cells, layer.outputs, layer.scale
    regions = site.reshape(site.bottoms[1], (-1, 5))
    corners = site.op("Clip", _columns(site, regions, 1, 5), site.number(-_FAR), site.number(_FAR))
    whole = _cut(site, corners)
    whole = site.op("Add", whole, _cut(site, site.affine(site.op("Sub", corners, whole), 2, 0)))
    near = site.affine(_columns(site, whole, 0, 2), scale, 0)
    far = site.affine(site.affine(_columns(site, whole, 2, 4), 1, 1), scale, 0)
    step = site.op("Div", site.op("Max", site.op("Sub", far, near), site.number(0.1)), site.number(g))
    rows, columns = (_cells(site, near, step, axis, g, size) for axis, size in ((1, height), (0, width)))
    images = site.op("Range", site.const(0), _size(site, site.x, 0), site.const(1))
    own = site.op("Equal", site.cast(_columns(site, regions, 0, 1), np.int64), images)  # (R, N)
    planes = site.op("Mul", site.unsqueeze(rows, [2]), site.unsqueeze(site.cast(own, site.dtype), [2]))  # (g, R, N, H)
    planes = site.unsqueeze(site.reshape(planes, (0, 0, -1)), [1])
    x = site.op("Transpose", site.reshape(site.x, (0, d, g, g, height, width)), perm=[2, 3, 0, 4, 1, 5])
    sums = site.op("MatMul", planes, site.reshape(x, (g, g, -1, d * width)))  # (g, g, R, d * W)
    sums = site.op("Mul", site.reshape(sums, (0, 0, 0, d, width)), site.unsqueeze(columns, [0, 3]))
    total = site.reduce("ReduceSum", sums, [4], keep=False)  # (g, g, R, d)
    high, wide = (site.reduce("ReduceSum", mask, [2], keep=False) for mask in (rows, columns))  # (g, R)
    area = site.op("Mul", site.unsqueeze(high, [1]), site.unsqueeze(wide, [0]))
    area = site.unsqueeze(site.op("Max", area, site.number(1)), [3])
    return site.op("Transpose", site.op("Div", total, area), perm=[2, 3, 0, 1])


def _columns(site: Site, x: str, first: int, last: int) -> str:
    """Cut x along its last axis."""
    return site.op("Slice", x, site.const([first]), site.const([last]), site.const([-1]))


def _cut(site: Site, x: str) -> str:
    """Cut numbers to whole ones, towards 0."""
    return site.cast(site.cast(x, np.int64), site.dtype)


def _size(site: Site, x: str, axis: int) -> str:
    """Write the size of an axis as a number without axes."""
    found = site.op("Slice", site.op("Shape", x), site.const([axis]), site.const([axis + 1]), site.const([0]))
    return site.squeeze(found, [0])


def _cells(site: Site, near: str, step: str, axis: int, cells: int, size: int) -> str:
    """Write masks (cells, R, size) of the rows, or columns, that belong to each cell."""
    near, step = (_columns(site, x, axis, axis + 1) for x in (near, step))
    edges = site.op("Add", site.op("Mul", step, site.const(np.arange(cells + 1), site.dtype)), near)  # (R, cells + 1)
    starts, ends = (
        site.unsqueeze(site.op("Transpose", site.op(op, _columns(site, edges, i, cells + i)), perm=[1, 0]), [2])
        for i, op in enumerate(("Floor", "Ceil"))
    )
    places = site.const(np.arange(size), site.dtype)
    inside = site.op("And", site.op("Not", site.op("Less", places, starts)), site.op("Less", places, ends))
    return site.cast(inside, site.dtype)


@converts(
    "DetectionOutput",
    family=_FAMILY,
    ops="Reshape Transpose Gather Slice Mul Add Sub Div Exp Max Concat Less Unsqueeze Where TopK Shape Expand "
    "ScatterElements NonMaxSuppression Squeeze Mod GatherND Range OneHot CumSum ReduceSum Cast Equal",
    note="(1, 1, K, 7) as in Caffe and OpenCV, rows by image, class, score; K is known only after a run; eta below 1 "
    "has no counterpart; save_output_param has no effect",
    precision=Precision.SINGLE,
)
def detection_output(site: Site) -> str:
    p, layer = site.param.detection_output_param, site.layer
    if layer.options.nms_param.eta < 1 and p.nms_param.nms_threshold > 0.5:
        site.refuse("has eta below 1, which changes the threshold on the way", "delete eta")
    classes = [c for c in range(layer.classes) if c != p.background_label_id]
    if not classes:
        site.refuse("has no class but the background", "check num_classes and background_label_id")
    bottoms = _joined(site)
    boxes, scores = _boxes(site, bottoms), _scores(site, bottoms, classes)
    if layer.locations > 1:  # as many images as there are pairs of image and class, with one class each
        boxes = site.reshape(site.op("Gather", boxes, site.const(classes), axis=1), (-1, _priors(site), 4))
        scores = site.reshape(scores, (-1, 1, _priors(site)))
    else:
        boxes = site.reshape(boxes, (-1, _priors(site), 4))
    # A row for nothing comes behind the K rows found: OpenCV 5.0.0 crashes where a size is 0.
    found = site.op("Concat", _suppressed(site, boxes, scores), site.const([[0, 0, 0]]), axis=0)  # (K + 1, 3)
    first, second, place = (site.squeeze(_columns(site, found, i, i + 1), [1]) for i in range(3))
    number = _size(site, found, 0)
    every = site.op("Range", site.const(0), number, site.const(1))
    nothing = site.op("Equal", every, site.op("Sub", number, site.const(1)))
    score = site.op("Where", nothing, site.number(_LEAST), site.op("GatherND", scores, found))
    corners = site.op("GatherND", boxes, site.op("Concat", *(site.unsqueeze(v, [1]) for v in (first, place)), axis=1))
    if layer.locations > 1:
        many = site.const(len(classes))
        first, second = site.op("Div", first, many), site.op("Mod", first, many)
    images = _size(site, site.x, 0)
    order = _order(site, first, second, score, images, nothing)
    label = site.op("Gather", site.const(classes, site.dtype), second)
    parts = [site.unsqueeze(v, [1]) for v in (site.cast(first, site.dtype), label, score)]
    rows = site.op("Gather", site.op("Concat", *parts, corners, axis=1), order, axis=0)
    site.open(0, 2)
    return site.reshape(_shown(site, rows, images), (1, 1, -1, 7))


def _priors(site: Site) -> int:
    heads, shapes = site.layer.heads, site.bottom_shapes
    defaults = shapes[2:3] if heads is None else shapes[2 * heads.maps :]
    return sum(int(np.prod(shape[2:])) for shape in defaults) // 4


def _joined(site: Site) -> list[str]:
    """Write what `layers.detection.heads.Heads.joined` computes; the bottoms themselves where there is one of each."""
    heads = site.layer.heads
    if heads is None:
        return list(site.bottoms)
    scores, places = list(site.bottoms[: heads.maps]), list(site.bottoms[heads.maps : 2 * heads.maps])
    defaults = site.bottoms[2 * heads.maps :]
    if heads.order is not None:
        shapes = site.bottom_shapes[heads.maps :]
        for m, (_, channels, height, width) in enumerate(shapes[: heads.maps]):
            four, cells = 4 * heads.locations, height * width
            apart = site.reshape(places[m], (0, channels // four, four, cells))
            places[m] = site.op("Transpose", apart, perm=[0, 1, 3, 2])
            apart = site.reshape(scores[m], (0, heads.classes, -1))
            scores[m] = site.op("Transpose", apart, perm=[0, 2, 1])
    joined = [
        _concat(site, [site.reshape(one, shape) for one in part], axis)
        for part, shape, axis in ((places, (0, -1), 1), (scores, (0, -1), 1), (defaults, (1, 2, -1), 2))
    ]
    if heads.order is not None:
        boxes = site.reshape(joined[2], (2, -1, 4))
        joined[2] = site.op("Gather", boxes, site.const(heads.order), axis=1)
    return joined


def _concat(site: Site, parts: list[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else site.op("Concat", *parts, axis=axis)


def _boxes(site: Site, bottoms: list[str]) -> str:
    """Write the boxes that the locations mean, (N, P, 4), or (N, C, P, 4) where each class has its own."""
    n = _priors(site)
    both = site.reshape(bottoms[2], (2, n, 4))
    priors, variances = (site.op("Gather", both, site.const(i), axis=0) for i in (0, 1))
    one = site.layer.locations == 1
    if len(bottoms) == 5:
        priors = _decoded(site, priors, variances, site.reshape(bottoms[4], (0, n, 4)))
        priors = priors if one else site.unsqueeze(priors, [1])
    if one:
        return _decoded(site, priors, variances, site.reshape(bottoms[0], (0, n, 4)))
    own = site.reshape(bottoms[0], (0, n, site.layer.locations, 4))
    return _decoded(site, priors, variances, site.op("Transpose", own, perm=[0, 2, 1, 3]))


def _decoded(site: Site, priors: str, variances: str, predicted: str) -> str:
    """Write what `layers.detection.boxes.decode` computes."""
    p = site.param.detection_output_param
    steps = predicted if p.variance_encoded_in_target else site.op("Mul", predicted, variances)
    if p.code_type == CORNER:
        return site.op("Add", priors, steps)
    low, high = _columns(site, priors, 0, 2), _columns(site, priors, 2, 4)
    size = site.op("Sub", high, low)
    if p.code_type == CORNER_SIZE:
        return site.op("Add", priors, site.op("Mul", steps, site.op("Concat", size, size, axis=-1)))
    middle = site.op("Div", site.op("Add", low, high), site.number(2))
    centre = site.op("Add", site.op("Mul", _columns(site, steps, 0, 2), size), middle)
    half = site.op("Div", site.op("Mul", site.op("Exp", _columns(site, steps, 2, 4)), size), site.number(2))
    return site.op("Concat", site.op("Sub", centre, half), site.op("Add", centre, half), axis=-1)


def _scores(site: Site, bottoms: list[str], classes: list[int]) -> str:
    """Write the scores (N, classes, P) of these classes, those of background first changed as RefineDet does."""
    n, p = _priors(site), site.param.detection_output_param
    scores = site.op("Transpose", site.reshape(bottoms[1], (0, n, site.layer.classes)), perm=[0, 2, 1])
    if site.layer.refines:
        objects = site.op("Transpose", _columns(site, site.reshape(bottoms[3], (0, n, 2)), 1, 2), perm=[0, 2, 1])
        background = site.op("Less", objects, site.number(p.objectness_score))
        nothing = site.const(np.arange(site.layer.classes)[:, None] == 0, site.dtype)
        scores = site.op("Where", background, nothing, scores)
    return scores if len(classes) == site.layer.classes else site.op("Gather", scores, site.const(classes), axis=1)


def _suppressed(site: Site, boxes: str, scores: str) -> str:
    """Write (K, 3): image, class and place of the boxes that remain, of the top_k best of each class."""
    layer, n, options = site.layer, _priors(site), site.param.detection_output_param.nms_param
    if 0 < layer.top_k < n:
        best, places = site.ops("TopK", scores, site.const([layer.top_k]), outputs=2, axis=2)
        none = site.op("Expand", site.number(_LEAST), site.op("Shape", scores))
        scores = site.op("ScatterElements", none, places, best, axis=2)
    if site.param.detection_output_param.code_type != CENTER_SIZE:
        # A box that ends before it begins overlaps none; the operator would turn it round.
        low, high = _columns(site, boxes, 0, 2), _columns(site, boxes, 2, 4)
        boxes = site.op("Concat", low, site.op("Max", low, high), axis=-1)
    boxes, scores = (site.cast(x, np.float32) if site.dtype != np.float32 else x for x in (boxes, scores))
    most = site.const([0 if layer.top_k == 0 else n])
    limits = [min(options.nms_threshold, 1)]
    if site.param.detection_output_param.HasField("confidence_threshold") or 0 < layer.top_k < n:
        limits.append(layer.least)
    return site.op("NonMaxSuppression", boxes, scores, most, *(site.const([v], np.float32) for v in limits))


def _order(site: Site, image: str, label: str, score: str, images: str, nothing: str) -> str:
    """Write the places of the keep_top_k best rows of each image, in the order of image, class and score; the row for
    nothing is the last."""
    keep, count = site.param.detection_output_param.keep_top_k, site.op("Shape", score)
    order = site.ops("TopK", score, count, outputs=2, axis=0)[1]
    if keep > -1:
        mine = site.op("OneHot", site.op("Gather", image, order), images, site.const([0, 1], site.dtype), axis=-1)
        before = site.op("Mul", mine, site.op("CumSum", mine, site.const(0), exclusive=1))
        rank = site.reduce("ReduceSum", before, [1], keep=False)
        best = site.cast(site.op("Less", rank, site.number(keep)), site.dtype)
        kept = site.op("Max", best, site.op("Gather", site.cast(nothing, site.dtype), order))
        many = site.cast(site.reduce("ReduceSum", kept, [0], keep=True), np.int64)
        order = site.op("Gather", order, site.ops("TopK", kept, many, outputs=2, axis=0)[1])
    group = site.op("Add", site.op("Mul", image, site.const(site.layer.classes)), label)
    group = site.op("Add", group, site.op("Mul", site.cast(nothing, np.int64), site.const(_BEHIND)))
    group = site.op("Gather", group, order)
    return site.op("Gather", order, site.ops("TopK", group, site.op("Shape", group), outputs=2, axis=0, largest=0)[1])


def _shown(site: Site, rows: str, images: str) -> str:
    """Write the rows without the last, that for nothing; if there are none, (image, -1, ...) for each image."""
    numbers = site.op("Range", site.const(0), images, site.const(1))
    numbers = site.unsqueeze(site.cast(numbers, site.dtype), [1])
    shape = site.op("Concat", site.unsqueeze(images, [0]), site.const([6]), axis=0)
    default = site.op("Concat", numbers, site.op("Expand", site.number(-1), shape), axis=1)
    found = site.op("Sub", _size(site, rows, 0), site.const(1))
    empty = site.cast(site.op("Equal", found, site.const(0)), np.int64)
    end = site.op("Add", found, site.op("Mul", empty, site.op("Add", images, site.const(1))))
    ends = (site.unsqueeze(v, [0]) for v in (empty, end))
    return site.op("Slice", site.op("Concat", rows, default, axis=0), *ends, site.const([0]))


@converts(
    "Proposal",
    family=_FAMILY,
    ops="Reshape Gather Transpose Slice Mul Add Sub Div Exp Max Min Less ReduceMax Where TopK Unsqueeze Expand "
    "GatherElements NonMaxSuppression Squeeze Shape Cast Concat",
    note="the number of regions is known only after a run; those less than a pixel apart count as overlapping",
    precision=Precision.SINGLE,
)
def proposal(site: Site) -> list[str]:
    p, (_, _, height, width) = site.param.proposal_param, site.shape
    anchors = len(site.layer.anchors)
    many = height * width * anchors
    numbers = site.reshape(site.bottoms[2], (0, -1))
    boxes = site.op("Transpose", site.reshape(site.bottoms[1], (0, anchors, 4, height, width)), perm=[0, 3, 4, 1, 2])
    boxes = _regions(site, site.reshape(boxes, (0, many, 4)), numbers)
    scores = site.op("Gather", site.reshape(site.x, (0, 2, anchors, height, width)), site.const(1), axis=1)
    scores = site.reshape(site.op("Transpose", scores, perm=[0, 2, 3, 1]), (0, many))
    side = 3 if np.prod(site.bottom_shapes[2][1:]) > 3 else 2
    least = site.affine(site.op("Gather", numbers, site.const([side, 2]), axis=1), p.min_size, 0)
    sizes = site.op("Sub", _columns(site, boxes, 2, 4), _columns(site, boxes, 0, 2))
    small = site.cast(site.op("Less", site.affine(sizes, 1, 1), site.unsqueeze(least, [1])), site.dtype)
    small = site.cast(site.reduce("ReduceMax", small, [2], keep=False), np.bool_)
    scores = site.op("Where", small, site.number(0), scores)
    best = min(p.pre_nms_topn, many)
    scores, places = site.ops("TopK", scores, site.const([best]), outputs=2, axis=1)
    four = site.op("Concat", site.op("Shape", places), site.const([4]), axis=0)
    boxes = site.op("GatherElements", boxes, site.op("Expand", site.unsqueeze(places, [2]), four), axis=1)
    ends = site.op("Concat", _columns(site, boxes, 0, 2), site.affine(_columns(site, boxes, 2, 4), 1, 1), axis=2)
    given = (ends, site.unsqueeze(scores, [1]))
    ends, values = (site.cast(x, np.float32) if site.dtype != np.float32 else x for x in given)
    share = site.const([min(max(p.nms_thresh, 0), 1)], np.float32)
    found = site.op("NonMaxSuppression", ends, values, site.const([p.post_nms_topn]), share)  # (R, 3)
    image, place = (site.squeeze(_columns(site, found, i, i + 1), [1]) for i in (0, 2))
    rows = site.op("Add", site.op("Mul", image, site.const(best)), place)
    rows, order = site.ops("TopK", rows, site.op("Shape", rows), outputs=2, axis=0, largest=0)
    image = site.unsqueeze(site.cast(site.op("Gather", image, order), site.dtype), [1])
    regions = site.op("Gather", site.reshape(boxes, (-1, 4)), rows, axis=0)
    tops = [site.op("Concat", image, regions, axis=1)]
    if len(site.top_shapes) > 1:
        tops.append(site.op("Gather", site.reshape(scores, (-1,)), rows))
    return tops


def _regions(site: Site, moves: str, numbers: str) -> str:
    """Write the anchors (N, H W A, 4), moved and cut to the pictures."""
    anchors = site.layer.placed(*site.shape[2:]).reshape(-1, 4)
    size = anchors[:, 2:] - anchors[:, :2] + 1
    wide = site.const(size, site.dtype)
    centre = site.op("Mul", _columns(site, moves, 0, 2), wide)
    centre = site.op("Add", centre, site.const(anchors[:, :2] + size / 2, site.dtype))
    half = site.op("Div", site.op("Mul", site.op("Exp", _columns(site, moves, 2, 4)), wide), site.number(2))
    boxes = site.op("Concat", site.op("Sub", centre, half), site.op("Add", centre, half), axis=2)
    ends = site.affine(site.op("Gather", numbers, site.const([1, 0, 1, 0]), axis=1), 1, -1)
    return site.op("Min", site.op("Max", boxes, site.number(0)), site.unsqueeze(ends, [1]))
