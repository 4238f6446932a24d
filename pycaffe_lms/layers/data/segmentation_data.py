"""ImageSegData, DenseImageData: batches of pictures with a label for each pixel, which a thread reads ahead."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from ...data.feed.segmentation import (
    LabelledPictures,
    NumberedPictures,
    PairChange,
    Pictures,
    SegmentationBatches,
)
from ...data.transform.random_size import FIELDS as RANDOM_SIZE
from ...data.transform.transformer import DataTransformer
from ...proto.caffe_pb2 import ImageDataParameter
from ..base import TRAIN, Shapes, between, exactly
from ..registry import register_layer
from .data import ONLY_ANNOTATED, DataLayer

_CHANGES = ("resize_param", "noise_param", *ONLY_ANNOTATED, *RANDOM_SIZE)


class _SegmentationLayer(DataLayer):
    """Read pictures and labels."""

    _message: str  # the field with the list
    _change: PairChange
    _divide = 1  # sides of pictures by those of labels

    def _check(self) -> None:
        """Raise LayerParamError for fields that both layers refuse."""
        p, transform = getattr(self.param, self._message), self.param.transform_param
        self._check_source(self._message, "the file that lists the pictures")
        if (p.new_height > 0) != (p.new_width > 0):
            raise self.error("has one of new_height and new_width", fix="give both, or none")
        wrong = "force_gray" if p.is_color else "force_color"
        if getattr(transform, wrong):
            raise self.error(
                f"transform_param.{wrong} contradicts is_color: {str(p.is_color).lower()}", fix="keep is_color alone"
            )
        given = {field.name for field, _ in transform.ListFields()}
        for field in _CHANGES:
            if field in given:
                raise self.error(f"transform_param.{field} would not change the labels", fix=f"remove {field}")

    def _listed(self) -> LabelledPictures:
        p = getattr(self.param, self._message)
        return LabelledPictures(p.source, p.root_folder)

    def _open(self) -> None:
        p = getattr(self.param, self._message)
        values = copy.deepcopy(self.param.transform_param)  # what changes only the pictures' values
        for field in ("crop_size", "crop_h", "crop_w", "mirror"):
            values.ClearField(field)
        batches = SegmentationBatches(
            self._listed(),
            p.batch_size,
            DataTransformer(values, self.phase, source=p.source),
            change=self._change,
            root_folder=p.root_folder,
            divide=self._divide,
            fill=self.param.image_data_param.ignore_label,
            is_color=p.is_color,
            size=(p.new_height, p.new_width) if p.new_height else None,
            shuffle=p.shuffle,
            rand_skip=p.rand_skip,
            dtype=self.dtype,
            rank=self.context.solver_rank if self.phase == TRAIN else 0,
            seed=self._seed,
        )
        self._shape = batches.shape
        self._prefetch(batches)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        super().infer_shapes(bottom_shapes)
        count, _, height, width = self._shape
        return [self._shape, (count, 1, height // self._divide, width // self._divide), (count, 1, 1, 2)][
            : len(self.param.top)
        ]


@register_layer("ImageSegData")
class ImageSegDataLayer(_SegmentationLayer):
    """Pictures of the list image_data_param.source with a label for each pixel, as DeepLab and PSPNet are trained.

    Lines are `picture labels` by image_data_param.label_type. PIXEL: labels is a picture, of which the grey values are
    the labels. IMAGE (the default): labels is a number from 0 to 255, the label of all pixels. NONE: only the first
    word counts, and all labels are image_data_param.ignore_label (default 255). root_folder is put before paths
    unchanged.
    Each picture and its labels are resized to new_height x new_width, then by one of transform_param.scale_factors at
    random, then cropped to crop_size, or crop_height x crop_width: at random in TRAIN, in the centre in TEST. Where
    they are smaller, pixels with the value of mean_value and the label ignore_label are added right and below. mirror
    flips at random. At last the picture gets mean_value and scale. Labels take the value of the nearest pixel.
    Top 0: (batch_size, 3 or 1 by is_color, height, width). Top 1: labels, (batch_size, 1, height, width). Top 2
    (optional): (batch_size, 1, 1, 2), height and width of each picture before scale_factors, at most those of top 0.
    All else is as for ImageData: order, ranks, resuming, prefetch.
    Raises: LayerParamError for impossible fields; DataError for a list or picture that cannot be read, or labels of
    another size than their picture (with the line); MissingDependency without OpenCV.
    Source: xmyqsh/deeplab-v2, image_seg_data_layer.cpp, data_transformer.cpp. There new_height blends labels.
    """

    declares = replace(DataLayer.declares, tops=between(2, 3))
    _message = "image_data_param"

    def setup(self, bottom_shapes: Shapes) -> None:
        p, transform = self.param.image_data_param, self.param.transform_param
        self._check()
        self._warn_of_unused("image_data_param", "scale", "mean_file", "crop_size", "mirror")
        if transform.mean_file:
            raise self.error("mean_file does not fit pictures of many sizes", fix="use transform_param.mean_value")
        if not 0 <= p.ignore_label <= 255:
            raise self.error(
                f"ignore_label is {p.ignore_label}", fix="use 0 to 255, which a picture of labels can hold"
            )
        if any(not 0 < factor < 1000 for factor in transform.scale_factors):
            raise self.error("a scale_factors is not above 0 and below 1000", fix="give factors such as 0.5 and 1.25")
        self._change = PairChange(
            tuple(transform.scale_factors), self._crop(), p.ignore_label, self.phase == TRAIN, transform.mirror
        )
        self._start()

    def _crop(self) -> tuple[int, int]:
        """Return height and width of the crop, (0, 0) for none; it has three spellings."""
        transform = self.param.transform_param
        crops = [
            (transform.crop_size, transform.crop_size),
            (transform.crop_height, transform.crop_width),
            (transform.crop_h, transform.crop_w),
        ]
        given = [crop for crop in crops if any(crop)]
        if len(given) > 1 or (given and not all(given[0])):
            raise self.error(
                "transform_param does not have one crop", fix="give crop_size alone, or crop_height and crop_width"
            )
        return given[0] if given else (0, 0)

    def _listed(self) -> LabelledPictures:
        p = self.param.image_data_param
        kinds: dict[Any, type[LabelledPictures]] = {
            ImageDataParameter.PIXEL: LabelledPictures,
            ImageDataParameter.IMAGE: NumberedPictures,
            ImageDataParameter.NONE: Pictures,
        }
        return kinds[p.label_type](p.source, p.root_folder)


@register_layer("DenseImageData")
class DenseImageDataLayer(_SegmentationLayer):
    """Pictures of the list dense_image_data_param.source with a label for each pixel, as SegNet is trained.

    Lines are `picture labels`; labels is a picture, of which the grey values are the labels. root_folder is put before
    both paths unchanged. Each picture and its labels are resized to new_height x new_width (labels take the value of
    the nearest pixel), flipped at random with mirror, and cropped at random, in TEST too, to crop_height x crop_width;
    then the picture gets mean and scale of transform_param.
    Top 0: (batch_size, 3 or 1 by is_color, height, width). Top 1: labels, (batch_size, 1, height, width), both sides
    divided by label_divide_factor (ENet's, default 1) and rounded down; labels are resized to that size where
    new_height is given, and must have it otherwise. It cannot be used with a crop.
    All else is as for ImageData: order, ranks, resuming, prefetch.
    Raises: LayerParamError for impossible fields, such as a crop or mirror in transform_param; DataError for a list or
    picture that cannot be read, or labels of another size than their picture (with the line); MissingDependency without
    OpenCV.
    Source: alexgkendall/caffe-segnet, dense_image_data_layer.cpp; TimoSaemann/caffe-enet.
    """

    declares = replace(DataLayer.declares, tops=exactly(2))
    _message = "dense_image_data_param"

    def setup(self, bottom_shapes: Shapes) -> None:
        p, transform = self.param.dense_image_data_param, self.param.transform_param
        self._check()
        self._warn_of_unused("dense_image_data_param", "mean_file")
        if (p.crop_height > 0) != (p.crop_width > 0):
            raise self.error("has one of crop_height and crop_width", fix="give both, or none")
        self._divide = p.label_divide_factor
        if self._divide == 0 or (self._divide > 1 and p.crop_height):
            raise self.error(
                f"label_divide_factor is {self._divide}" + (", with a crop" if self._divide else ""),
                fix="use 1, or remove crop_height and crop_width" if self._divide else "use 1 or more",
            )
        if p.new_height and min(p.new_height, p.new_width) < self._divide:
            raise self.error(f"label_divide_factor is {self._divide}, which leaves no label", fix="lower it")
        for field in ("mirror", "crop_size", "crop_h", "crop_w", "crop_height", "crop_width"):
            if getattr(transform, field):
                there = "mirror" if field == "mirror" else "crop_height and crop_width"
                raise self.error(
                    f"transform_param.{field} would not change the labels",
                    fix=f"write dense_image_data_param {{ {there} }}",
                )
        if transform.scale_factors:
            raise self.error("scale_factors would not change the labels", fix="remove it")
        self._change = PairChange(crop=(p.crop_height, p.crop_width), mirror=p.mirror)
        self._start()
