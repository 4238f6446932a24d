"""Every case of the tests of layers with an open batch: values at another batch size, or a refusal that says why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from pycaffe_lms.errors import CaffeError
from tests.sampling import of_each_type

from .harness import Exported, agree, fill_params, one_layer
from .test_every_case import CASES

# A type that can be refused, and why; all other cases of it must pass.
REFUSED = {
    "ArgMax": "chooses among the items",
    "RNN": "time as its first axis",
    "LSTM": "time as its first axis",
    "Reshape": "do not fit into",
    "LSTMUnit": "not (1, N, D)",
    "GatedUnit": "cannot be halved",
    **dict.fromkeys(
        ("InnerProduct", "Reduction", "Scale", "Bias", "Slice", "Im2col", "LayerNorm", "RMSNorm", "MatMul"),
        "depends on the batch size",
    ),
}
NO_BATCH = ("has no axis for a batch", "the net has no inputs")


@pytest.mark.parametrize("case", of_each_type(CASES, every=6))
def test_another_batch(case, tmp_path):
    net = one_layer(case.type, case.text, case.shapes, case.n_top)
    fill_params(net)
    try:
        exported = Exported(net, tmp_path, dynamic_batch=True)
    except CaffeError as error:
        reasons = (*NO_BATCH, *(REFUSED[t] for t in (case.type,) if t in REFUSED))
        assert any(reason in str(error) for reason in reasons) and "dynamic_batch" in error.fix
        return
    batch = case.shapes[0][0]
    more = replace(case, shapes=tuple((batch + 2, *s[1:]) if s and s[0] == batch else s for s in case.shapes))
    for i, shape in enumerate(more.shapes):
        net.blobs[f"b{i}"].reshape(*shape)
    net.reshape()
    bottoms = more.make_bottoms(np.random.default_rng(case.seed))
    agree(net, exported, {f"b{i}": b for i, b in enumerate(bottoms)})
