"""VideoData: batches of clips of videos that a text file lists; a thread reads and transforms them ahead."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from ...data.feed.clips import ClipBatches, ClipList, Frames
from ...data.feed.segments import SegmentBatches, Segments
from ...data.transform.mean import load_mean
from ...data.transform.random_size import FIELDS as RANDOM_SIZE
from ...data.transform.transformer import SEGMENT_CROPS, DataTransformer
from ..base import TRAIN, Shapes, exactly
from ..registry import register_layer
from .data import ONLY_ANNOTATED, ONLY_SEGMENTED, DataLayer

_OF_CLIPS = (
    *("is_color", "use_image", "use_temporal_jitter", "sampling_rate", "max_sampling_rate"),
    *("use_sampling_rate_jitter", "use_multiple_label", "num_of_labels"),
)
_CHANGES = ("resize_param", "noise_param", *RANDOM_SIZE)


@register_layer("VideoData")
class VideoDataLayer(DataLayer):
    """Clips of the list video_data_param.source, again and again, as video-caffe and C3D train on them.

    Lines are `path start label`: a clip is the frames start, start + sampling_rate, ... of a video file, new_length of
    them; the first frame of a video is number 0. With use_image the path is a folder of 000001.jpg, 000002.jpg, ...
    With use_temporal_jitter a clip begins anywhere: lines are `path label`, or with use_image `path frames label`,
    where `frames` is how many there are (in TEST such a clip begins with the first). With use_sampling_rate_jitter the
    rate is drawn from 1 to max_sampling_rate. root_folder is put before paths unchanged.
    Top 0: (batch_size, 3 or 1 by is_color, new_length, height, width), each frame resized to new_height x new_width;
    then transform_param, which crops and mirrors all frames of a clip alike. mean_value has one value, or one per
    colour; mean_file is of a whole clip, (3, new_length, height, width) before the crop.
    Top 1: labels, (batch_size); with use_multiple_label (batch_size, num_of_labels), from numbers with commas between.
    With num_segments, modality or name_pattern (temporal segment nets) paths are folders of pictures, and lines are
    `path frames label`. Each of num_segments equal parts of a video gives new_length frames, from anywhere in it while
    training, else from its middle; a video that is too short gives its first ones. Frame n, from 1 on, is the picture
    name_pattern % n (default image_%04d.jpg), or with modality FLOW (default) the two of name_pattern % ("x", n) and
    ("y", n) (flow_%c_%04d.jpg). Top 0: (batch_size, channels of all frames, height, width): 3 of each, or 1 by
    grayscale, or 2 of FLOW. With length_first each segment has all frames of a channel, then those of the next one:
    seen as (num_segments, channels of a frame, new_length), for convolutions over time. transform_param:
    multi_scale crops, while training, sides of scale_ratios times the shorter one, whose places in that list are
    max_distort apart at most, and resizes to crop_size; fix_crop crops at corners and centre alone, more_fix_crop
    also between. With is_flow mirroring makes 255 - x of the pictures of x. mean_value: one, or as many as repeat
    over all channels.
    All else is as for ImageData: order, ranks, resuming, prefetch.
    Raises: LayerParamError for impossible fields; DataError for a list or video that cannot be read or is too short
    (with the line; C3D skips such a clip while it trains); MissingDependency without OpenCV.
    Source: yjxiong/caffe, facebook/C3D, C3D-v1.1, and chuckcho/video-caffe, src/caffe/layers/video_data_layer.cpp (the
    latter counts frames from 1, and reads image_0001.jpg where the path is a folder).
    """

    declares = replace(DataLayer.declares, tops=exactly(2))
    _label_shape: tuple[int, ...] = ()

    def setup(self, bottom_shapes: Shapes) -> None:
        p, transform = self.param.video_data_param, self.param.transform_param
        self._check_source("video_data_param", "the file that lists the videos")
        for field in ("new_length", "sampling_rate", "max_sampling_rate", "num_of_labels"):
            if not getattr(p, field):
                raise self.error(f"{field} is 0", fix="give 1 or more")
        if (p.new_height > 0) != (p.new_width > 0):
            raise self.error("has one of new_height and new_width", fix="give both, or none")
        given = {field.name for field, _ in transform.ListFields()}
        self._segments = any(map(p.HasField, ("num_segments", "modality", "name_pattern")))
        for field in filter(given.__contains__, _CHANGES):
            raise self.error(f"transform_param.{field} does not change clips", fix=f"remove {field}")
        for field in filter(given.__contains__, ("force_color", "force_gray")):
            raise self.error(f"transform_param.{field} has no effect on clips", fix="use video_data_param.is_color")
        if self._segments:
            self._check_segments()
        elif p.HasField("grayscale"):
            raise self.error("grayscale is without num_segments or modality", fix="write is_color: false")
        elif p.length_first:
            raise self.error("length_first is without num_segments or modality", fix="remove it: clips are always so")
        colours = 3 if p.is_color else 1
        if not self._segments and len(transform.mean_value) not in (0, 1, colours):
            raise self.error(f"{len(transform.mean_value)} mean_value for {colours} colours", fix="give one for each")
        self._warn_of_unused("video_data_param", "scale", "mean_file", "crop_size", "mirror", "show_data", "encoded")
        self._warn_of_unused("transform_param", *ONLY_ANNOTATED, *ONLY_SEGMENTED)
        self._start()

    def _check_segments(self) -> None:
        """Raise LayerParamError for fields that segments of videos do not have."""
        p, transform = self.param.video_data_param, self.param.transform_param
        if not p.num_segments:
            raise self.error("num_segments is 0", fix="give 1 or more")
        given = {field.name for field, _ in p.ListFields()}
        for field in filter(given.__contains__, _OF_CLIPS):
            raise self.error(f"{field} does not go with num_segments, modality or name_pattern", fix=f"remove {field}")
        for field in ("mean_file", "crop_h", "crop_w"):
            if getattr(transform, field):
                raise self.error(f"transform_param.{field} does not go with segments", fix=f"remove {field}")
        if transform.multi_scale and not transform.crop_size:
            raise self.error("multi_scale is without crop_size", fix="add transform_param { crop_size: 224 }")
        if any(not 0 < ratio <= 1 for ratio in transform.scale_ratios):
            raise self.error("scale_ratios are not above 0 and at most 1", fix="give shares of the shorter side")
        self._seen = self._segments_seen()
        if self.channels % max(1, len(transform.mean_value)):
            values = len(transform.mean_value)
            raise self.error(f"{values} mean_value for {self.channels} channels", fix="give one, or one per colour")

    def _segments_seen(self) -> Segments:
        """Return what is read of each video. Raises LayerParamError for an impossible name_pattern."""
        p = self.param.video_data_param
        flow = p.modality == p.FLOW
        pattern = p.name_pattern or ("flow_%c_%04d.jpg" if flow else "image_%04d.jpg")
        found = Segments(p.num_segments, p.new_length, flow, pattern, p.grayscale, p.length_first)
        try:
            found.files(1)
        except (TypeError, ValueError) as error:
            fix = "write it as flow_%c_%05d.jpg" if flow else "write it as img_%05d.jpg"
            raise self.error(f"name_pattern {pattern!r} names no files: {error}", fix=fix) from None
        self.channels = p.num_segments * p.new_length * (2 if flow else 1 if p.grayscale else 3)
        return found

    def _segment_batches(self) -> SegmentBatches:
        p, crops = self.param.video_data_param, self.param.transform_param
        transform = copy.deepcopy(crops)
        for field in ("crop_size", "mirror", *SEGMENT_CROPS):
            transform.ClearField(field)
        if values := list(transform.mean_value):
            transform.mean_value[:] = values * (self.channels // len(values))
        return SegmentBatches(
            ClipList(p.source, p.root_folder, starts=True, labels=0),
            p.batch_size,
            DataTransformer(transform, self.phase, source=p.source),
            self._seen,
            crops,
            self.phase == TRAIN,
            **self._order(),
        )

    def _order(self) -> dict[str, Any]:
        """Return what all batches of listed things are told."""
        p = self.param.video_data_param
        return {
            "size": (p.new_height, p.new_width) if p.new_height else None,
            "shuffle": p.shuffle,
            "rand_skip": p.rand_skip,
            "dtype": self.dtype,
            "rank": self.context.solver_rank if self.phase == TRAIN else 0,
            "seed": self._seed,
        }

    def _open(self) -> None:
        p = self.param.video_data_param
        if self._segments:
            segments = self._segment_batches()
            self._shape = segments.shape
            self._prefetch(segments)
            return
        frames = Frames(
            p.new_length,
            p.sampling_rate,
            p.max_sampling_rate if p.use_sampling_rate_jitter else 0,
            p.use_temporal_jitter,
            p.use_image,
        )
        labels = p.num_of_labels if p.use_multiple_label else 0
        batches = ClipBatches(
            ClipList(p.source, p.root_folder, starts=frames.starts_given, labels=labels),
            p.batch_size,
            self._transformer(),
            frames,
            self.phase == TRAIN,
            is_color=p.is_color,
            **self._order(),
        )
        self._shape, self._label_shape = batches.clip_shape, (labels,) if labels else ()
        self._prefetch(batches)

    def _transformer(self) -> DataTransformer:
        """Return the transformer of a picture whose channels are those of all frames: of colour 0, of colour 1, ..."""
        transform, length = copy.deepcopy(self.param.transform_param), self.param.video_data_param.new_length
        values, mean = list(transform.mean_value), None
        if len(values) > 1:
            transform.mean_value[:] = [value for value in values for _ in range(length)]
        if transform.mean_file:
            mean = load_mean(transform.mean_file, axes=4)
            mean = mean.reshape(-1, *mean.shape[2:])
        return DataTransformer(transform, self.phase, source=self.param.video_data_param.source, mean=mean)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        super().infer_shapes(bottom_shapes)
        return [self._shape, (self._shape[0], *self._label_shape)]
