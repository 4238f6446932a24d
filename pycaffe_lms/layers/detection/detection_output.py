"""DetectionOutput: detections from SSD's predictions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ...arrays import HostArray
from ...ops.cpu.detection import box_codes, nms
from ...ops.cpu.threads import parallel
from ..base import Declaration, Layer, Lives, Needs, Ops, Pass, Reads, Runs, Shapes, ShapesChanged, at_least, count
from ..registry import register_layer
from .boxes import decode, priors_of
from .heads import heads_of
from .saved import SavedDetections, saved_detections

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@register_layer("DetectionOutput")
class DetectionOutputLayer(Layer):
    """Detections, image by image: rows of (image, class, score, xmin, ymin, xmax, ymax), in fractions of the picture;
    not cut to it.

    For P default boxes and C = num_classes classes: bottom 0: predicted locations, (N, P * 4), or without
    share_location (N, P * C * 4). Bottom 1: scores, (N, P * C). Bottom 2: the default boxes with their variances, (1,
    2, P * 4), of PriorBox. A fourth bottom alone, without objectness_score, is not read (the fork draws on it). Bottoms
    of scores and locations may have further axes of length 1.
    Top 0: (1, 1, K, 7). K is known after forward only: the number of detections, or if there is none N, one row (image,
    -1, -1, -1, -1, -1, -1) each. It is 1 before the first forward. Where it changes, the net takes memory anew. Rows
    are sorted by image, class, score.
    For each class but background_label_id: the boxes with scores above confidence_threshold, of these the top_k best,
    of these the ones that overlap no better one that remains by more than nms_threshold; then the keep_top_k best of
    all classes. With eta below 1 a threshold above 0.5 is multiplied by it after every box that remains. Among equal
    scores the first default box, and the first class, is best (in the fork that is undefined). code_type is how
    locations are coded: CORNER: offsets of the corners; CENTER_SIZE: of the centre in sizes of the default box, and
    logarithms of the ratios of sizes; CORNER_SIZE: of the corners, in these sizes; all of them are multiplied by the
    variances unless variance_encoded_in_target.
    RefineDet: bottom 3: scores of background and object, (N, P * 2); a box whose latter score is below objectness_score
    is of class 0, with score 1. Bottom 4: predicted locations, (N, P * 4), of the boxes that serve as default boxes.
    Synopsys: with as many bottoms as nbottom, M, or more: the scores of M maps, their locations, the default boxes of
    all, (1, 2, P * 4), or of each; maps are flattened as for one Concat. no_permute: they are as convolutions write
    them, R boxes at each place: scores (N, C, R, H * W), locations (N, R * 4, H, W), and boxes count by map, then kind,
    then place. Each image has its own (in the fork, every one has those of the first).
    save_output_param: see `SavedDetections`. visualize has no effect, with a warning.
    Runs on the host. On a GPU boxes are decoded and chosen there, and the rows alone are copied to the host, if these
    are fewer bytes than locations and scores (keep_top_k), and there is neither RefineDet's objectness nor nbottom; the
    same bits. No gradient.
    Raises: LayerParamError for num_classes, a threshold or eta out of range; ShapeError for bottoms that do not belong
    together; DataError for files of save_output_param.
    Source: weiliu89/caffe (SSD), sfzhang15/RefineDet and foss-for-synopsys-dwc-arc-processors/synopsys-caffe,
    src/caffe/layers/detection_output_layer.cpp.
    """

    declares = Declaration(
        bottoms=at_least(3),
        runs_on=Runs.HOST,
        no_backward=None,
        backward_reads=Reads.NONE,
    )
    saved: SavedDetections | None = None
    prepares = False  # whether boxes are chosen on the device, see `prepare`

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.detection_output_param
        self.classes = check_classes(self, p.num_classes, "detection_output_param")
        if p.nms_param.nms_threshold < 0:
            raise self.error("nms_threshold is below 0", fix="give a share, such as 0.45")
        if not 0 < p.nms_param.eta <= 1:
            raise self.error(f"eta is {p.nms_param.eta:g}", fix="give a factor above 0, and at most 1")
        self.locations = 1 if p.share_location else self.classes
        self.top_k = p.nms_param.top_k if p.nms_param.HasField("top_k") else -1
        self.least = p.confidence_threshold if p.HasField("confidence_threshold") else float(np.finfo(np.float32).min)
        self._rows = 1
        # values of the bottoms, and their rows, which wait for a top of their number
        self._known: tuple[list[HostArray], HostArray] | None = None
        given = len(self.param.bottom)
        self.heads = heads_of(self, self.locations, self.classes)
        self.refines = self.heads is None and (p.HasField("objectness_score") or given == 5)
        self._refined = range(3, given) if self.refines else range(0)
        self.declares = replace(self.declares, ignores_force_backward=frozenset(range(given)))
        if p.visualize:
            _log.warning('layer "%s": visualize has no effect here; draw what the top holds', self.name)
        self.saved = saved_detections(self, p.save_output_param)
        if self.saved is not None:
            self.declares = replace(self.declares, tests_alone=True)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shapes = bottom_shapes if self.heads is None else self.heads.read(bottom_shapes)
        check_predictions(self, shapes, self.locations, self.classes)
        check_refinement(self, bottom_shapes, self._refined)
        self._images: int = shapes[0][0]
        return [(1, 1, self._rows, 7)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.prepares = False
        if ops.device == "cpu" or self.heads is not None or self.refines:
            return
        images, boxes = bottom_shapes[0][0], count(bottom_shapes[2], 2) // 4
        sizes = self._sizes(images, boxes)
        crossing = sum(count(shape) for shape in bottom_shapes[:2])
        self.prepares = 0 < count(sizes["rows"]) < crossing
        for name, shape in sizes.items() if self.prepares else ():
            lives = Lives.PREPARED if name in ("rows", "found") else Lives.CALL
            dtype = self.dtype if name in ("boxes", "rows") else np.int32
            self.scratch(name, shape, dtype=dtype, lives=lives, backward=False)

    def _sizes(self, images: int, boxes: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what the operations write, for so many default boxes."""
        kept = (images, self.classes, boxes if self.top_k < 0 else min(self.top_k, boxes))
        most, keep = count(kept, 1), self.options.keep_top_k
        return {
            "boxes": (images, boxes, self.locations, 4),
            "kept": kept,
            "numbers": (images, self.classes),
            "rows": (images, most if keep < 0 else min(keep, most), 7),
            "found": (images,),
        }

    def prepare_needs(self) -> Needs | None:
        return Needs(bottoms=frozenset(range(3))) if self.prepares else None

    def prepare(self, io: Pass) -> None:
        own = io.scratch
        io.ops.decode_boxes(io.bottom[0], io.bottom[2], own["boxes"], *self._code)
        chosen = own["boxes"], own["kept"], own["numbers"]
        io.ops.batched_nms(io.bottom[1], *chosen, *self._limits)
        io.ops.detection_rows(io.bottom[1], *chosen, own["rows"], own["found"])

    def forward_needs(self) -> Needs:
        if self.prepares:
            return Needs()
        if self.heads is not None:
            return Needs(bottoms=frozenset(range(len(self.param.bottom))))
        return Needs(bottoms=frozenset((*range(3), *self._refined)))

    def forward(self, io: Pass) -> None:
        if self.prepares:
            self._show(io, _joined(io.scratch["rows"], io.scratch["found"]))
            return
        if self.heads is not None:
            values = self.heads.joined(io.bottom)
        else:
            values = [*io.bottom[:3], *(io.bottom[i] for i in self._refined)]
        known, self._known = self._known, None
        if known is not None and all(map(np.array_equal, known[0], values)):
            rows = known[1]
        else:
            rows = self._found(*values)
        try:
            self._show(io, rows)
        except ShapesChanged:
            self._known = [value.copy() for value in values], rows
            raise

    def _show(self, io: Pass, rows: HostArray) -> None:
        """Write the rows of all images, (K, 7), to the top. Raises ShapesChanged where it has not as many."""
        images = self._images
        if not len(rows):
            shown = np.full((images, 7), -1, self.dtype)
            shown[:, 0] = np.arange(images)
        else:
            shown = rows
        if len(shown) != io.top[0].shape[2]:
            self._rows = len(shown)
            raise ShapesChanged
        io.top[0][...] = shown
        if self.saved is not None:
            self.saved.add(rows, images)

    def _found(
        self,
        locations: HostArray,
        scores: HostArray,
        defaults: HostArray,
        objectness: HostArray | None = None,
        refinement: HostArray | None = None,
    ) -> HostArray:
        """Return the rows of all images, (K, 7)."""
        p, (priors, variances) = self.options, priors_of(defaults)
        made = self._sizes(len(locations), len(variances))
        boxes, rows = (np.empty(made[name], self.dtype) for name in ("boxes", "rows"))
        kept, numbers, found = (np.empty(made[name], np.int32) for name in ("kept", "numbers", "found"))
        if refinement is None:
            box_codes.decode_boxes(locations, defaults, boxes, *self._code)
        else:
            scale = np.ones_like(variances) if p.variance_encoded_in_target else variances
            shape = len(locations), 1, len(variances), 4
            priors = decode(p.code_type, priors, scale, refinement.reshape(shape))
            predicted = locations.reshape(boxes.shape).transpose(0, 2, 1, 3)
            boxes[...] = decode(p.code_type, priors, scale, predicted).transpose(0, 2, 1, 3)
        if objectness is not None:
            background = objectness.reshape(*objectness.shape[:1], -1, 2)[..., 1] < p.objectness_score
            nothing = (np.arange(self.classes) == 0).astype(scores.dtype)
            by_box = scores.reshape(*background.shape, self.classes)
            scores = np.where(background[..., None], nothing, by_box)
        nms.batched_nms(scores, boxes, kept, numbers, *self._limits)
        nms.detection_rows(scores, boxes, kept, numbers, rows, found)
        return _joined(rows, found)

    @property
    def _code(self) -> tuple[int, bool]:
        """Return what `decode_boxes` is told of the code of locations."""
        return self.options.code_type, not self.options.variance_encoded_in_target

    @property
    def _limits(self) -> tuple[float, float, float, int]:
        """Return what `batched_nms` is told beside arrays."""
        p = self.options
        return self.least, p.nms_param.nms_threshold, p.nms_param.eta, p.background_label_id


def _joined(rows: HostArray, found: HostArray) -> HostArray:
    """Return the rows of all images, (K, 7), of which each has its first `found` of (M, 7)."""
    return np.concatenate([np.empty((0, 7), rows.dtype), *(own[:n] for own, n in zip(rows, found, strict=True))])


def for_images(work: Callable[[int], _T], images: int) -> list[_T]:
    """Return [work(0), ..., work(images - 1)], computed in the CPU's threads."""
    made: dict[int, _T] = {}

    def some(first: int, last: int) -> None:
        made.update((n, work(n)) for n in range(first, last))

    parallel(some, images)
    return [made[n] for n in range(images)]


def best_first(scores: HostArray, chosen: HostArray, most: int) -> HostArray:
    """Return those of the `chosen` positions with the `most` highest scores, best first; -1: all of them."""
    order = np.argsort(-scores[chosen], kind="stable")
    return np.asarray(chosen[order if most < 0 else order[:most]])


def check_classes(layer: Layer, classes: int, message: str) -> int:
    """Return num_classes. Raises LayerParamError where it is not given."""
    if classes < 1:
        raise layer.error(f"{message}.num_classes is not given", fix="give the number of classes with the background")
    return classes


def check_refinement(layer: Layer, bottom_shapes: Shapes, bottoms: range) -> None:
    """Raise ShapeError unless these bottoms hold what refines default boxes: scores (N, P * 2), locations (N, P *
    4)."""
    images, boxes = bottom_shapes[0][0], count(bottom_shapes[2], 2) // 4
    for i, each in zip(bottoms, (2, 4), strict=False):
        shape = tuple(bottom_shapes[i])
        if len(shape) < 2 or (shape[0], count(shape, 1)) != (images, boxes * each):
            raise layer.shape_error(f"has shape {shape}", bottom=i, fix=f"give a blob ({images}, {boxes * each})")


def check_predictions(layer: Layer, bottom_shapes: Shapes, locations: int, classes: int) -> tuple[int, int]:
    """Return (N, P) of bottoms with locations (N, P * locations * 4), scores (N, P * classes) and default boxes
    (1, 2, P * 4). Raises ShapeError."""
    priors = tuple(bottom_shapes[2])
    if len(priors) < 3 or priors[1] != 2 or count(priors, 2) % 4:
        raise layer.shape_error(f"has shape {priors}", bottom=2, fix="give default boxes (1, 2, P * 4), of PriorBox")
    boxes = count(priors, 2) // 4
    for i, (what, each) in enumerate((("locations", locations * 4), ("scores", classes))):
        shape = tuple(bottom_shapes[i])
        layer.check_axes(shape, 2, bottom=i)
        if count(shape, 1) != boxes * each:
            raise layer.shape_error(
                f"has {count(shape, 1)} numbers per image, but {boxes} default boxes have {boxes * each} {what}, "
                f"{each} each",
                bottom=i,
                fix="check num_classes and share_location, and the layers that make the bottoms",
            )
        if shape[0] != bottom_shapes[0][0]:
            raise layer.shape_error(
                f"has {shape[0]} images, but bottom 0 has {bottom_shapes[0][0]}", bottom=i, fix="give both one batch"
            )
    return bottom_shapes[0][0], boxes
