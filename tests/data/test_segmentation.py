"""Fields of transform_param that act on pictures with labels alone: the other data layers say so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.helpers import numbered_lmdb
from tests.layers.harness import LayerBench

cv2 = pytest.importorskip("cv2")


@pytest.mark.parametrize("kind", ["Data", "ImageData", "MemoryData"])
def test_other_data_layers_say_that_a_field_has_no_effect(kind, tmp_path, caplog):
    assert cv2.imwrite(f"{tmp_path}/0.png", np.zeros((2, 3), np.uint8))
    (tmp_path / "list").write_text(f"{tmp_path}/0.png 1\n")
    text = {
        "Data": "data_param { source: 'PLACE/db' backend: LMDB batch_size: 1 }",
        "ImageData": "image_data_param { source: 'PLACE/list' label_type: NONE ignore_label: 3 }",
        "MemoryData": "memory_data_param { batch_size: 1 channels: 1 height: 2 width: 2 }",
    }[kind]
    numbered_lmdb(tmp_path / "db", 2)
    more = "transform_param { scale_factors: 2 crop_width: 3 crop_height: 4 }"
    bench = LayerBench(kind, f"{text.replace('PLACE', str(tmp_path))} {more}", (), n_top=2)
    bench.layer.close()
    for name in ("scale_factors", "crop_width", "crop_height"):
        assert f"({kind}): transform_param.{name} has no effect: it acts in ImageSegData alone" in caplog.text
    assert ("image_data_param.label_type has no effect" in caplog.text) == (kind == "ImageData")
