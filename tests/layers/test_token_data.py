"""TokenData: tops, resuming, wrong parameters, training the same with Large Model Support."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import DataError, LayerParamError
from tests.data.test_token_windows import write
from tests.solvers.helpers import PLACES, bits, make

from .cases import Case
from .harness import LayerBench

HOST_CASES: list[Case] = [
    Case("TokenData", f'token_data_param {{ source: "SOURCE" sequence_length: 4 {fields} }} {more}', (), n_top=n)
    for fields, more, n in (
        ("batch_size: 1", "", 2),
        ("batch_size: 3 token_type: UINT16 vocab_size: 31", "data_param { prefetch: 1 }", 1),
        ("batch_size: 5 shuffle: true", "", 2),
    )
]


@pytest.fixture
def source(tmp_path):
    return write(tmp_path)


def bench(text, source="", n_top=2, **kwargs):
    return LayerBench("TokenData", text.replace("SOURCE", source), (), n_top=n_top, **kwargs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_windows_and_resuming(case, dtype, source):
    first, second = (bench(case.text, source, case.n_top, dtype=dtype) for _ in range(2))
    try:
        seen = [first.forward([]) for _ in range(7)]
        for tops in seen:
            assert [t.shape for t in tops] == first.top_shapes and all(t.dtype == dtype for t in tops)
            for k, top in enumerate(tops):
                np.testing.assert_array_equal(top, tops[0][:, :1] + k + np.arange(4))
        batch = first.top_shapes[0][0]
        assert first.layer.state() == {"batches": 7, "seed": 0, "records": 7 * batch}
        assert first.layer.records == (6 if "shuffle" in case.text else 7)
        second.layer.set_state({"batches": 3, "seed": 0})
        for expected in seen[3:]:
            for a, b in zip(second.forward([]), expected, strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        first.layer.close()
        second.layer.close()


@pytest.mark.parametrize(
    "text, words",
    [
        ("token_data_param { batch_size: 1 sequence_length: 4 }", "source is not set"),
        ('token_data_param { source: "SOURCE" sequence_length: 4 }', "batch_size is not set"),
        ('token_data_param { source: "SOURCE" batch_size: 1 }', "sequence_length is not set"),
        ('token_data_param { source: "SOURCE" batch_size: 1 } transform_param { }', "has a transform_param"),
    ],
)
def test_impossible_parameters(text, words, source):
    with pytest.raises(LayerParamError, match=f'layer "l" \\(TokenData\\).*{words}') as caught:
        bench(text, source)
    assert caught.value.fix


def test_an_id_outside_the_vocabulary_names_layer_and_place(source):
    subject = bench('token_data_param { source: "SOURCE" batch_size: 2 sequence_length: 4 vocab_size: 6 }', source)
    try:
        with pytest.raises(DataError, match=r"t\.bin.*token 6 is 6, not an id from 0 to 5"):
            subject.forward([])
    finally:
        subject.layer.close()


# -- in nets ------------------------------------------------------------------------------------------------------
def _net(source):
    return f"""
layer {{ name: "data" type: "TokenData" top: "data" top: "label"
  token_data_param {{ source: "{source}" batch_size: 4 sequence_length: 4 shuffle: true vocab_size: 31 }} }}
layer {{ name: "embed" type: "Embed" bottom: "data" top: "embed"
  embed_param {{ input_dim: 31 num_output: 8 weight_filler {{ type: "gaussian" std: 0.5 }} }} }}
layer {{ name: "mixed" type: "Attention" bottom: "embed" bottom: "embed" bottom: "embed" top: "mixed"
  attention_param {{ heads: 2 causal: true }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "mixed" top: "ip"
  inner_product_param {{ num_output: 31 axis: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" softmax_param {{ axis: 2 }} }}
"""


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_solver_equals_an_uninterrupted_one(place, source, tmp_path):
    """In every place: without Large Model Support, and with all of its memory given back."""
    net, prefix = _net(source), f'"{tmp_path}/r"'
    whole, first, second = (make(net, place, snapshot_prefix=prefix, momentum=0.9, random_seed=s) for s in (3, 3, 8))
    try:
        whole.step(7)
        first.step(4)
        first.snapshot()
        second.restore(f"{tmp_path}/r_iter_4.solverstate")
        second.step(3)
        assert bits(second) == bits(whole)
    finally:
        for solver in (whole, first, second):
            solver.close()
