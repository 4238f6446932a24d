"""Every field of transform_param on every source that has it, against plain loops; draws depend on the seed alone."""

from __future__ import annotations

import time
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum, encode_picture_datum, parse_datum
from pycaffe_lms.data.database.leveldb_writer import write_leveldb
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.transform.mean import save_mean
from pycaffe_lms.errors import LayerParamError
from tests.data.test_transformer import candidates
from tests.data.test_window_batches import write_windows

from .harness import LayerBench

cv2 = pytest.importorskip("cv2")

TRAIN, TEST = 0, 1
SIZE, BATCH = (7, 9), 6
RNG = np.random.default_rng(5)
PICTURES = [RNG.integers(0, 256, (3, *SIZE), np.uint8) for _ in range(BATCH)]


def png(picture):
    done, data = cv2.imencode(".png", picture.transpose(1, 2, 0) if len(picture) == 3 else picture[0])
    assert done
    return data.tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the same pictures as databases, raw and encoded, and as files with a list."""
    path = tmp_path_factory.mktemp("transform")
    raw = [(b"%02d" % k, encode_datum(p, k)) for k, p in enumerate(PICTURES)]
    write_lmdb(path / "lmdb", raw)
    if "LevelDB" in SOURCES:
        write_leveldb(path / "leveldb", raw)
    write_lmdb(path / "encoded", [(b"%02d" % k, encode_picture_datum(png(p), k)) for k, p in enumerate(PICTURES)])
    write_lmdb(path / "gray", [(b"%02d" % k, encode_picture_datum(png(p[:1]), k)) for k, p in enumerate(PICTURES)])
    for k, picture in enumerate(PICTURES):
        (path / f"{k}.png").write_bytes(png(picture))
    (path / "list").write_text("".join(f"{path}/{k}.png {k}\n" for k in range(BATCH)))
    save_mean(path / "mean", RNG.normal(100, 30, (3, *SIZE)).astype(np.float32))
    (path / "windows").mkdir()
    write_windows(path / "windows")
    return path


SOURCES = {
    "LMDB": 'data_param { source: "FOLDER/lmdb" backend: LMDB batch_size: 6 prefetch: DEPTH }',
    "LevelDB": 'data_param { source: "FOLDER/leveldb" batch_size: 6 prefetch: DEPTH }',
    "encoded": 'data_param { source: "FOLDER/encoded" backend: LMDB batch_size: 6 prefetch: DEPTH }',
    "ImageData": 'image_data_param { source: "FOLDER/list" batch_size: 6 } data_param { prefetch: DEPTH }',
    "images": "memory_data_param { batch_size: 6 channels: CHANNELS height: HEIGHT width: WIDTH }",
    "datums": "memory_data_param { batch_size: 6 channels: CHANNELS height: HEIGHT width: WIDTH }",
    "WindowData": 'window_data_param { source: "FOLDER/windows/windows.txt" root_folder: "FOLDER/windows/" '
    "batch_size: 6 bg_threshold: 0.3 context_pad: 1 } data_param { prefetch: DEPTH }",
}
if find_spec("plyvel") is None:
    del SOURCES["LevelDB"]
TYPES = {"LMDB": "Data", "LevelDB": "Data", "encoded": "Data", "images": "MemoryData", "datums": "MemoryData"}
WHOLE_PICTURES = [s for s in SOURCES if s != "WindowData"]


def run(kind, transform, folder, phase=TRAIN, batches=1, depth=4, seed=0, out=(3, *SIZE), pause=0.0, pictures=PICTURES):
    """Return [(data, labels)] of some batches."""
    text = SOURCES[kind].replace("FOLDER", str(folder)).replace("DEPTH", str(depth))
    for name, size in zip(("CHANNELS", "HEIGHT", "WIDTH"), out, strict=True):
        text = text.replace(name, str(size))
    text += f" transform_param {{ {transform.replace('FOLDER', str(folder))} }}"
    bench = LayerBench(TYPES.get(kind, kind), text, (), n_top=2, phase=phase, dtype=np.float32)
    try:
        bench.layer.set_state({**bench.layer.state(), "seed": seed})
        seen = []
        for _ in range(batches):
            if kind == "images":
                bench.layer.add_images([p.transpose(1, 2, 0) for p in pictures], range(BATCH))
            elif kind == "datums":
                bench.layer.add_datums([parse_datum(encode_datum(p, k), source="") for k, p in enumerate(pictures)])
            time.sleep(pause)
            seen.append(bench.forward([]))
        return seen
    finally:
        bench.layer.close()


MEANS = {
    "": lambda folder: np.zeros((3, *SIZE), np.float32),
    "mean_value: 10.5": lambda folder: np.full((3, *SIZE), 10.5, np.float32),
    "mean_value: 1.25 mean_value: 200.1 mean_value: 3": lambda folder: np.broadcast_to(
        np.array([1.25, 200.1, 3], np.float32)[:, None, None], (3, *SIZE)
    ),
    'mean_file: "FOLDER/mean"': lambda folder: _file_mean(folder),
}


def _file_mean(folder):
    from pycaffe_lms.proto.caffe_pb2 import BlobProto

    proto = BlobProto()
    proto.ParseFromString((folder / "mean").read_bytes())
    return np.array(proto.data, np.float32).reshape(3, *SIZE)


@pytest.mark.parametrize("phase", [TRAIN, TEST], ids=["train", "test"])
@pytest.mark.parametrize("mean", MEANS, ids=["none", "one", "channels", "file"])
@pytest.mark.parametrize("kind", WHOLE_PICTURES)
def test_every_field_against_plain_loops(kind, mean, phase, folder):
    for crop, mirror, scale in ((0, False, 1), (0, True, 0.017), (4, False, 0.25), (4, True, 1)):
        text = f"{mean} mirror: {str(mirror).lower()} crop_size: {crop} scale: {scale}"
        out = (3, crop, crop) if crop else (3, *SIZE)
        ((data, labels),) = run(kind, text, folder, phase, out=out)
        assert data.shape == (BATCH, *out) and labels.tolist() == list(range(BATCH))
        for picture, found in zip(PICTURES, data, strict=True):
            allowed = candidates(picture, crop, mirror, phase, MEANS[mean](folder), scale)
            assert any(np.array_equal(found, one) for one in allowed)


@pytest.mark.parametrize("kind", WHOLE_PICTURES)
def test_fields_of_ssds_fork_against_opencv(kind, folder):
    """Resized, inverted, cropped in the centre, then mean and scale."""
    text = (
        "resize_param { height: 11 width: 13 interp_mode: CUBIC } noise_param { inverse: true } crop_h: 5 crop_w: 8 "
        "mean_value: 3 scale: 0.5"
    )
    ((data, labels),) = run(kind, text, folder, TEST, out=(3, 5, 8))
    assert labels.tolist() == list(range(BATCH))
    for picture, found in zip(PICTURES, data, strict=True):
        large = 255 - cv2.resize(picture.transpose(1, 2, 0), (13, 11), interpolation=cv2.INTER_CUBIC)
        np.testing.assert_array_equal(found, (large[3:8, 2:10].transpose(2, 0, 1).astype(np.float32) - 3) * 0.5)


@pytest.mark.parametrize("kind", WHOLE_PICTURES)
def test_draws_of_size_and_noise_repeat_by_the_seed_alone(kind, folder):
    text = (
        "resize_param { height: 5 width: 6 interp_mode: AREA interp_mode: NEAREST interp_mode: CUBIC } "
        "noise_param { saltpepper: true saltpepper_param { fraction: 0.2 value: 0 } }"
    )
    seen = [d for d, _ in run(kind, text, folder, batches=3, out=(3, 5, 6))]
    again = [d for d, _ in run(kind, text, folder, batches=3, depth=1, out=(3, 5, 6))]
    other = [d for d, _ in run(kind, text, folder, batches=3, seed=1, out=(3, 5, 6))]
    assert all(np.array_equal(a, b) for a, b in zip(seen, again, strict=True))
    assert all((a != b).any() for a, b in zip(seen, other, strict=True)) and (seen[0] != seen[1]).any()


@pytest.mark.parametrize(
    "field", ["resize_param { height: 3 width: 3 }", "noise_param { }", "crop_h: 3 crop_w: 3", "distort_param { }"]
)
def test_windows_refuse_the_fields_of_ssds_fork(field, folder):
    with pytest.raises(LayerParamError, match=f"{field.split(' ')[0].rstrip(':')} has no effect on windows"):
        run("WindowData", f"crop_size: 5 {field}", folder)


@pytest.mark.parametrize("kind", SOURCES)
def test_draws_repeat_by_the_seed_alone(kind, folder):
    """Crops and mirrors do not depend on the batches read ahead, the threads' speed, mean or scale."""
    text, out = "crop_size: 5 mirror: true", (3, 5, 5)
    seen = [d for d, _ in run(kind, text, folder, batches=5, out=out)]
    assert len({d.tobytes() for d in seen}) == 5, "every batch is drawn anew"
    for depth, pause in product((1, 8), (0.0, 0.01)):
        again = run(kind, text, folder, batches=5, depth=depth, pause=pause, out=out)
        assert all(np.array_equal(a, b) for (a, _), b in zip(again, seen, strict=True))
    other = run(kind, text, folder, batches=5, seed=1, out=out)
    assert all((a != b).any() for (a, _), b in zip(other, seen, strict=True))
    if kind != "WindowData":  # there, what lies outside the picture stays zero whatever the mean
        scaled = run(kind, text + " mean_value: 2 scale: 0.5", folder, batches=5, out=out)
        assert all(np.array_equal(a, (b - 2) * 0.5) for (a, _), b in zip(scaled, seen, strict=True))


def test_sources_of_the_same_pictures_agree(folder):
    """The draws of the first batch are the same wherever the pictures come from."""
    results = [run(kind, "crop_size: 5 mirror: true", folder, out=(3, 5, 5))[0][0] for kind in WHOLE_PICTURES]
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("field, channels", [("force_color: true", 3), ("force_gray: true", 1)])
def test_forced_colours_of_encoded_records(field, channels, folder):
    """Encoded databases; raw records and pictures are what they are."""
    expected = [p if channels == 3 else cv2.imdecode(np.frombuffer(png(p), np.uint8), 0)[None] for p in PICTURES]
    np.testing.assert_array_equal(run("encoded", field, folder)[0][0], expected)
    weights = np.array([0.114, 0.587, 0.299])[:, None, None]
    assert channels == 3 or np.abs(expected[0] - (PICTURES[0] * weights).sum(0)).max() < 1
    datums = [parse_datum(encode_picture_datum(png(p), k), source="") for k, p in enumerate(PICTURES)]
    size = f"batch_size: 6 channels: {channels} height: 7 width: 9"
    bench = LayerBench("MemoryData", f"memory_data_param {{ {size} }} transform_param {{ {field} }}", (), n_top=2)
    bench.layer.add_datums(datums)
    np.testing.assert_array_equal(bench.forward([])[0], expected)
    for kind in ("LMDB", "images", "datums"):
        np.testing.assert_array_equal(run(kind, field, folder)[0][0], PICTURES)


def test_gray_pictures_can_become_colour(folder):
    text = 'data_param { source: "FOLDER/gray" backend: LMDB batch_size: 6 }'.replace("FOLDER", str(folder))
    for field, channels in (("", 1), ("transform_param { force_color: true }", 3)):
        bench = LayerBench("Data", f"{text} {field}", (), n_top=2)
        try:
            found = bench.forward([])[0]
        finally:
            bench.layer.close()
        assert found.shape == (6, channels, *SIZE)
        np.testing.assert_array_equal(found, np.broadcast_to(np.stack(PICTURES)[:, :1], found.shape))


@pytest.mark.parametrize("kind", WHOLE_PICTURES)
@pytest.mark.parametrize(
    "text, words",
    [
        ("crop_size: 8", "crop_size 8 is larger"),
        ("mean_value: 1 mean_value: 2", "2 mean_value for 3 channels"),
        ('mean_value: 1 mean_file: "FOLDER/mean"', "mean_file and mean_value are both set"),
        ("force_color: true force_gray: true", "force_gray"),
        ("resize_param { height: 3 }", "height 3 and width 0"),
        ("crop_h: 3", "crop_h but no crop_w"),
        ("crop_h: 3 crop_w: 10", "crop_h 3, crop_w 10 is larger than an item of 7 x 9"),
        ("resize_param { height: 3 width: 4 } crop_size: 5", "crop_size 5 is larger than an item of 3 x 4"),
    ],
)
def test_impossible_fields_name_the_layer(kind, text, words, folder):
    with pytest.raises(LayerParamError, match=words) as caught:
        run(kind, text, folder)
    assert 'layer "l"' in str(caught.value) and caught.value.fix


@pytest.mark.parametrize("fields", ["force_gray: true", "force_color: true"])
def test_image_data_has_is_color_instead(fields, folder):
    colour = fields.startswith("force_gray")
    text = f'image_data_param {{ source: "{folder}/list" is_color: {str(colour).lower()} }}'
    with pytest.raises(LayerParamError, match="contradicts is_color"):
        LayerBench("ImageData", f"{text} transform_param {{ {fields} }}", (), n_top=2)
