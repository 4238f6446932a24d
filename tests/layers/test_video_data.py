"""VideoData: which frames are read from videos and folders, transforms of whole clips, resuming, wrong lists."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from pycaffe_lms import TEST, Net
from pycaffe_lms.errors import DataError, LayerParamError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.formats.weights.blobproto import array_to_blobproto
from pycaffe_lms.proto.caffe_pb2 import C3DBlob

from .cases import Case
from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

# SOURCE stands for the list that the test writes: two folders of 12 frames; frame n of folder k is of value 8 n + k.
FOLDERS = "use_image: true new_length: 3"
HOST_CASES: list[Case] = [
    Case("VideoData", f'video_data_param {{ source: "SOURCE" {fields} }} {more}', (), n_top=2)
    for fields, more in (
        (f"{FOLDERS}", "data_param { prefetch: 1 }"),
        (f"{FOLDERS} batch_size: 3 shuffle: true rand_skip: 2", ""),
        (f"{FOLDERS} batch_size: 2 sampling_rate: 2 is_color: false new_height: 4 new_width: 3", ""),
        (f"{FOLDERS} batch_size: 2 use_temporal_jitter: true", "transform_param { crop_size: 5 mirror: true }"),
        (f"{FOLDERS} batch_size: 4 use_sampling_rate_jitter: true max_sampling_rate: 3 show_data: false", ""),
        (f"{FOLDERS} use_multiple_label: true num_of_labels: 2", ""),
    )
]
FRAMES, SIZE = 12, (8, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for k in range(2):
        (folder / f"v{k}").mkdir()
        for n in range(1, FRAMES + 1):
            assert cv2.imwrite(str(folder / f"v{k}" / f"{n:06d}.jpg"), np.full((*SIZE, 3), 8 * n + k, np.uint8))
    video = cv2.VideoWriter(str(folder / "v.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, SIZE[::-1])
    for n in range(FRAMES):
        video.write(np.full((*SIZE, 3), 8 * n + 8, np.uint8))
    video.release()
    return folder


def make(text, folder, lines, **kwargs):
    (folder / "list.txt").write_text("".join(f"{folder}/{line}\n" for line in lines))
    text = text.replace("SOURCE", str(folder / "list.txt"))
    return LayerBench("VideoData", text, (), **{"n_top": 2, "dtype": np.float32, **kwargs})


def values(clips):
    """The value of each frame of each clip, all of whose pixels are nearly equal."""
    assert np.ptp(clips, axis=(1, 3, 4)).max() <= 4
    return clips.mean(axis=(1, 3, 4)).round(1)


def _lines(case):
    number = "12" if "use_temporal_jitter" in case.text else "2"
    return [f"v{k} {number} {k},{k + 5}" if "multiple" in case.text else f"v{k} {number} {k}" for k in range(2)]


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_clips_go_with_their_labels_and_resume(case, folder):
    first, second = make(case.text, folder, _lines(case)), make(case.text, folder, _lines(case))
    try:
        seen = [first.forward([]) for _ in range(5)]
        second.layer.set_state(first.layer.state() | {"batches": 2, "records": 2 * len(seen[0][1])})
        for batch in seen[2:]:
            assert all(map(np.array_equal, batch, second.forward([])))
        for clips, labels in seen:
            assert clips.shape[1:3] == (1 if "is_color: false" in case.text else 3, 3)
            of_first = labels[:, 0] if labels.ndim == 2 else labels
            assert np.abs(values(clips) % 8 - of_first[:, None]).max() < 1.5
            assert labels.ndim == 1 or (labels[:, 1] == labels[:, 0] + 5).all()
        assert {len(set(np.diff(values(clips), axis=1).round().ravel())) for clips, _ in seen} <= {1, 2, 3}
    finally:
        first.layer.close(), second.layer.close()


def test_frames_of_a_folder(folder):
    bench = make(HOST_CASES[2].text, folder, ["v0 2 7", "v1 5 8"])
    clips, labels = bench.forward([])
    assert bench.top_shapes == [(2, 1, 3, 4, 3), (2,)] and labels.tolist() == [7, 8]
    np.testing.assert_allclose(values(clips), [[16, 32, 48], [41, 57, 73]], atol=1.5)
    bench.layer.close()


@pytest.mark.parametrize("start, rate", [(0, 1), (3, 2), (2, 5)])
def test_frames_of_a_video_are_counted_from_0(folder, start, rate):
    text = f'video_data_param {{ source: "SOURCE" new_length: 2 sampling_rate: {rate} }}'
    bench = make(text, folder, [f"v.avi {start} 4"])
    clips, labels = bench.forward([])
    assert clips.shape == (1, 3, 2, *SIZE) and labels.tolist() == [4]
    np.testing.assert_allclose(values(clips), [[8 * start + 8, 8 * (start + rate) + 8]], atol=2)
    bench.layer.close()


def test_clips_of_a_video_begin_anywhere(folder):
    text = 'video_data_param { source: "SOURCE" new_length: 3 batch_size: 40 use_temporal_jitter: true }'
    bench = make(text, folder, ["v.avi 4"])
    clips, _ = bench.forward([])
    found = (values(clips) / 8).round() - 1
    assert (np.diff(found, axis=1) == 1).all() and set(found[:, 0]) == set(range(FRAMES - 2))
    bench.layer.close()


def test_a_folder_with_jitter_begins_with_its_first_frame_in_test(folder):
    bench = make(HOST_CASES[3].text, folder, ["v0 12 0", "v0 12 0"], phase=1)
    np.testing.assert_allclose(values(bench.forward([])[0]), [[8, 16, 24]] * 2, atol=1.5)
    bench.layer.close()


def test_all_frames_of_a_clip_are_cropped_and_mirrored_alike_and_means_are_subtracted(folder, tmp_path):
    ramp = np.add.outer(10 * np.arange(8), np.arange(10)).astype(np.uint8)
    frames = [np.stack([ramp + n] * 3, axis=2) for n in range(2)]
    (tmp_path / "r").mkdir()
    for n, frame in enumerate(frames, 1):
        cv2.imwrite(str(tmp_path / "r" / f"{n:06d}.jpg"), frame, [cv2.IMWRITE_JPEG_QUALITY, 100])
    mean = np.random.default_rng(1).uniform(0, 9, size=(3, 2, 8, 10)).astype(np.float32)
    (tmp_path / "mean.binaryproto").write_bytes(array_to_blobproto(mean[None]).SerializeToString())
    fields = "use_image: true new_length: 2 batch_size: 16"
    text = f'video_data_param {{ source: "SOURCE" {fields} }} transform_param {{ crop_size: 4 mirror: true %s }}'
    plain = make(text % "", tmp_path, ["r 1 0"], dtype=np.float64)
    clips, _ = plain.forward([])
    corners = clips[:, 0, 0, 0]
    assert {tuple(np.sign(row[1:] - row[:-1])) for row in corners} == {(1, 1, 1), (-1, -1, -1)}
    assert np.abs(clips[:, :, 1] - clips[:, :, 0] - 1).max() <= 2  # the same window of both frames
    for what, expected in (("mean_value: [1, 2, 4]", [1, 2, 4]), ("mean_value: 3 scale: 0.5", 3)):
        other, _ = make(text % what, tmp_path, ["r 1 0"], dtype=np.float64).forward([])
        shifted = (clips - np.reshape(expected, (1, -1, 1, 1, 1))) * (0.5 if "scale" in what else 1)
        np.testing.assert_allclose(other, shifted)
    whole = f'video_data_param {{ source: "SOURCE" {fields} }} transform_param {{ %s }}'
    without, _ = make(whole % "", tmp_path, ["r 1 0"], dtype=np.float64).forward([])
    c3d = C3DBlob(num=1, channels=3, length=2, height=8, width=10, data=mean.ravel())
    (tmp_path / "c3d.binaryproto").write_bytes(c3d.SerializeToString())
    for file in ("mean", "c3d"):
        of_file = f'mean_file: "{tmp_path}/{file}.binaryproto"'
        found, _ = make(whole % of_file, tmp_path, ["r 1 0"], dtype=np.float64).forward([])
        np.testing.assert_allclose(found, without - mean, rtol=1e-6)


@pytest.mark.parametrize(
    "fields, line, error, message",
    [
        ("new_length: 0", "v0 1 0", LayerParamError, "new_length is 0"),
        ("new_height: 3", "v0 1 0", LayerParamError, "one of new_height and new_width"),
        (FOLDERS, "v0 0 0", DataError, r"000000\.jpg"),
        (FOLDERS, "v0 x 0", DataError, "is not `path start label`"),
        (FOLDERS, "v0 1 0,1", DataError, "is not `path start label`"),
        (f"{FOLDERS} use_temporal_jitter: true", "v0 2 0", DataError, "has 2 frames, but a clip needs 3 x 1"),
        ("new_length: 4", "v.avi 10 0", DataError, "has no frame 12; it says that there are 12"),
        ("", "absent.avi 0 0", DataError, "cannot open the video"),
    ],
)
def test_refused(folder, fields, line, error, message):
    with pytest.raises(error, match=message):
        make(f'video_data_param {{ source: "SOURCE" {fields} }}', folder, [line])


@pytest.mark.parametrize("fields", ["resize_param { }", "noise_param { }", "force_gray: true", "mean_value: [1, 2]"])
def test_transforms_that_are_refused(folder, fields):
    with pytest.raises(LayerParamError, match='layer "l"'):
        make(f'video_data_param {{ source: "SOURCE" {FOLDERS} }} transform_param {{ {fields} }}', folder, ["v0 1 0"])


def test_c3ds_layer_of_the_second_generation(folder):
    """Its fields stand in image_data_param, and what it does to pictures moves to transform_param."""
    text = """layers { name: "d" type: VIDEO_DATA top: "data" top: "label" image_data_param {
      source: "L" use_image: true batch_size: 2
      crop_size: 6 mirror: true show_data: 0 new_length: 3 root_folder: "ROOT" } }"""
    (folder / "list.txt").write_text("v0 2 7\nv1 5 8\n")
    net = parse_net(text.replace('"L"', f'"{folder}/list.txt"').replace("ROOT", f"{folder}/")).message
    (layer,) = net.layer
    assert layer.type == "VideoData" and not layer.HasField("image_data_param")
    assert layer.transform_param.crop_size == 6 and layer.transform_param.mirror
    with closing(Net(net, TEST)) as running:
        running.forward()
        assert running.blobs["data"].data.shape == (2, 3, 3, 6, 6)
        assert running.blobs["label"].data.tolist() == [7, 8]
