"""VideoData of temporal segment nets: which frames are read, crops of every kind, mirrored flow, wrong fields."""

from __future__ import annotations

import itertools
from contextlib import closing

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import DataError, LayerParamError

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")
RGB = "modality: RGB name_pattern: 'img_%03d.png'"
FLOW = "modality: FLOW name_pattern: 'flow_%c_%03d.png'"
# SOURCE stands for the list that the test writes: two folders of 12 frames.
HOST_CASES: list[Case] = [
    Case("VideoData", f'video_data_param {{ source: "SOURCE" {fields} }} {more}', (), n_top=2)
    for fields, more in (
        (f"{RGB} num_segments: 3 new_length: 2", ""),
        (f"{FLOW} batch_size: 2 num_segments: 2 new_length: 3 shuffle: true encoded: false", ""),
        (
            f"{FLOW} batch_size: 3 new_length: 2",
            "transform_param { crop_size: 8 mirror: true is_flow: true fix_crop: true more_fix_crop: true "
            "multi_scale: true scale_ratios: [1, 0.6] max_distort: 1 mean_value: 128 scale: 0.5 }",
        ),
        (f"{RGB} grayscale: true new_height: 6 new_width: 5 num_segments: 2", ""),
        (f"{RGB} length_first: true num_segments: 2 new_length: 3", "transform_param { crop_size: 8 }"),
    )
]
FRAMES, SIZE = 12, (12, 16)


def frame(k, n, axis=0):
    """The picture of frame n of video k, (H, W, 3): values tell the place."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    return np.stack([(10 * y + 3 * x + 7 * n + 50 * k + 90 * axis + c) % 256 for c in range(3)], axis=2).astype(
        np.uint8
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    for k in range(2):
        (folder / f"v{k}").mkdir()
        for n in range(1, FRAMES + 1):
            assert cv2.imwrite(str(folder / f"v{k}" / f"img_{n:03d}.png"), frame(k, n))
            for axis, name in enumerate("xy"):
                assert cv2.imwrite(str(folder / f"v{k}" / f"flow_{name}_{n:03d}.png"), frame(k, n, axis)[..., 0])
    return folder


def make(text, folder, frames=FRAMES, **kwargs):
    (folder / "list.txt").write_text("".join(f"{folder}/v{k} {frames} {k + 4}\n" for k in range(2)))
    return LayerBench("VideoData", text.replace("SOURCE", str(folder / "list.txt")), (), n_top=2, **kwargs)


def draws(text, folder, number, **kwargs):
    with closing(bench := make(text, folder, **kwargs)):
        return np.concatenate([bench.forward([])[0] for _ in range(number)])


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_the_same_seed_gives_the_same_batches(case, folder):
    with closing(make(case.text, folder)) as first, closing(make(case.text, folder)) as second:
        for _ in range(3):
            (data, labels), (again, _) = first.forward([]), second.forward([])
            np.testing.assert_array_equal(data, again)
            assert set(labels) <= {4, 5}


def planes_of(k, first, length, flow):
    """Channels of frames first + 1, ... of a video, in the order of the fork's files."""
    found = []
    for n in range(first + 1, first + 1 + length):
        pictures = [frame(k, n, axis)[..., :1] for axis in range(2)] if flow else [frame(k, n)]
        found += [p[..., c] for p in pictures for c in range(p.shape[2])]
    return np.array(found, float)


@pytest.mark.parametrize("flow", [False, True])
def test_a_test_reads_the_middle_of_each_part(flow, folder):
    """12 frames in 3 parts of 4: frames 2 and 3, 6 and 7, 10 and 11; of 5 frames, too few, the first ones."""
    fields = f"{FLOW if flow else RGB} num_segments: 3 new_length: 2 batch_size: 2"
    text = f'video_data_param {{ source: "SOURCE" {fields} }}'
    for frames, starts in ((12, (1, 5, 9)), (5, (0, 0, 0))):
        with closing(make(text, folder, frames, phase=1)) as bench:
            data, labels = bench.forward([])
        expected = [np.concatenate([planes_of(k, s, 2, flow) for s in starts]) for k in range(2)]
        np.testing.assert_array_equal(data, expected)
        assert data.shape[1] == (12 if flow else 18) and labels.tolist() == [4, 5]


def test_training_reads_every_start_of_each_part(folder):
    text = f'video_data_param {{ source: "SOURCE" {RGB} num_segments: 2 new_length: 4 }}'
    seen = set()
    for i, picture in enumerate(draws(text, folder, 60)):
        first = [
            next(s for s in range(12) if np.array_equal(part, planes_of(i % 2, s, 4, False)))
            for part in np.split(picture, 2)
        ]
        assert 0 <= first[0] <= 2 and 6 <= first[1] <= 8
        seen.add(tuple(first))
    assert len(seen) == 9


def _crops(planes, sizes, places, flip, flow):
    """Every crop, resized to 8 x 8 by OpenCV, as the fork writes it."""
    for (h, w), place, mirrored in itertools.product(sizes, places, (False, True) if flip else (False,)):
        room = SIZE[0] - h, SIZE[1] - w
        starts = itertools.product(*(range(r + 1) for r in room)) if place is None else [
            (place[0] * (room[0] // 4), place[1] * (room[1] // 4))
        ]  # fmt: skip
        for y, x in starts:
            found = []
            for c, plane in enumerate(planes):
                part = cv2.resize(plane[y : y + h, x : x + w].astype(np.uint8), (8, 8)).astype(float)
                part = part[:, ::-1] if mirrored else part
                found.append(255 - part if mirrored and flow and c % 2 == 0 else part)
            yield np.array(found)


FIVE = [(0, 0), (0, 4), (4, 0), (4, 4), (2, 2)]
MORE = [(0, 2), (4, 2), (2, 0), (2, 4), (1, 1), (1, 3), (3, 1), (3, 3)]


@pytest.mark.parametrize(
    "fields, sizes, places, flip",
    [
        ("fix_crop: true", [(8, 8)], FIVE, False),
        ("fix_crop: true more_fix_crop: true mirror: true", [(8, 8)], FIVE + MORE, True),
        # sides 12, 7 (which is near 8), 4; two of them that are next to each other in the list
        ("fix_crop: true multi_scale: true scale_ratios: [1, 0.6, 0.4]",
         [(12, 12), (12, 8), (8, 12), (8, 8), (8, 4), (4, 8), (4, 4)], FIVE, False),
        ("multi_scale: true scale_ratios: [1, 0.75] max_distort: 0", [(12, 12), (8, 8)], [None], False),
        ("", [(8, 8)], [None], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flow", [False, True])
def test_crops_are_those_of_the_fork(fields, sizes, places, flip, flow, folder):
    text = (
        f'video_data_param {{ source: "SOURCE" {FLOW if flow else RGB} new_length: 12 batch_size: 2 }} '
        f"transform_param {{ crop_size: 8 {fields} {'is_flow: true' if flow else ''} }}"
    )
    expected = [[c.tobytes() for c in _crops(planes_of(k, 0, 12, flow), sizes, places, flip, flow)] for k in range(2)]
    found = draws(text, folder, 40)
    seen = {expected[i % 2].index(picture.tobytes()) for i, picture in enumerate(found)}
    assert len(seen) >= min(20, 0.7 * len(set(expected[0])))
    if not fields:
        (y, x) = 2, 4
        with closing(make(text, folder, phase=1)) as bench:
            np.testing.assert_array_equal(
                bench.forward([])[0][0], planes_of(0, 0, 12, flow)[:, y : y + 8, x : x + 8], "the centre"
            )


def test_means_repeat_over_frames(folder):
    text = (
        f'video_data_param {{ source: "SOURCE" {RGB} new_length: 12 }} '
        "transform_param { mean_value: [1, 20, 100] scale: 0.5 }"
    )
    means = np.tile([1, 20, 100], 12)[:, None, None]
    np.testing.assert_array_equal(draws(text, folder, 1)[0], (planes_of(0, 0, 12, False) - means) / 2)


def test_grey_and_resized_frames(folder):
    text = f'video_data_param {{ source: "SOURCE" {RGB} grayscale: true new_height: 6 new_width: 5 new_length: 12 }}'
    grey = [cv2.cvtColor(frame(0, n), cv2.COLOR_BGR2GRAY) for n in range(1, 13)]
    expected = [cv2.resize(picture, (5, 6)) for picture in grey]
    np.testing.assert_allclose(draws(text, folder, 1)[0], expected, atol=1)


@pytest.mark.parametrize(
    "fields, transform, message",
    [
        ("num_segments: 0", "", "num_segments is 0"),
        (f"{RGB} use_image: true", "", "use_image does not go with"),
        ("modality: RGB name_pattern: 'a.jpg'", "", "name_pattern 'a.jpg' names no files"),
        ("name_pattern: 'flow_%04d.jpg'", "", "name_pattern .* names no files"),
        (RGB, "multi_scale: true", "multi_scale is without crop_size"),
        (RGB, "scale_ratios: 2", "scale_ratios are not"),
        (RGB, "mean_value: [1, 2]", "2 mean_value for 3 channels"),
        (RGB, "mean_file: 'm'", "transform_param.mean_file does not go"),
        (RGB, "crop_size: 13", "crop_size 13 is larger than frames of 12 x 16"),
        ("use_image: true", "fix_crop: true", "fix_crop acts in VideoData with num_segments"),
        ("grayscale: true", "", "grayscale is without num_segments"),
        ("length_first: true", "", "length_first is without num_segments"),
    ],
)
def test_wrong_fields(fields, transform, message, folder):
    with pytest.raises(LayerParamError, match=message):
        make(f'video_data_param {{ source: "SOURCE" {fields} }} transform_param {{ {transform} }}', folder)


@pytest.mark.parametrize("kind, channels", [(RGB, 3), (FLOW, 2)])
def test_frames_of_a_channel_after_each_other(kind, channels, folder):
    """yjxiong's Caffe, branch 3D, io.cpp, ReadSegmentRGBToDatum_length_first: segment, channel, frame."""
    texts = [
        f'video_data_param {{ source: "SOURCE" {kind} num_segments: 2 new_length: 3 {more} }}'
        for more in ("", "length_first: true")
    ]
    plain, turned = (draws(text, folder, 1, phase=1) for text in texts)
    assert plain.shape == turned.shape
    for segment, frame, channel in np.ndindex(2, 3, channels):
        ours, before = (segment * channels + channel) * 3 + frame, (segment * 3 + frame) * channels + channel
        np.testing.assert_array_equal(turned[:, ours], plain[:, before])
    assert (plain != turned).any()


def test_a_missing_frame_is_named(folder):
    text = f'video_data_param {{ source: "SOURCE" {RGB} num_segments: 13 new_length: 1 }}'
    with pytest.raises(DataError, match=r"list.txt:1: .*img_013.png"):
        make(text, folder, frames=13, phase=1)


def test_a_plan_needs_no_videos(tmp_path, capsys):
    """-shape takes the place of the data layer, whose crops are not judged then."""
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "data" type: "VideoData" top: "data" top: "label" '
        f'video_data_param {{ source: "nowhere" {FLOW} }} transform_param {{ crop_size: 8 fix_crop: true }} }} '
        'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 3 } } '
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    )
    assert main(["plan", "-model", str(tmp_path / "net.prototxt"), "-lms", "1", "-shape", "data=2,10,8,8"]) == 0
    assert "3 layers, batch 2" in capsys.readouterr().out
