"""docs/add_a_layer.md: its code, in place as its files would be, passes the checks of every layer."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pycaffe_lms import ops
from pycaffe_lms.backend import cuda_available
from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.lms.config import LMSConfig
from tests.layers import test_every_case, test_every_gradient, test_every_remat, test_needs
from tests.layers.harness import CudaArrays
from tests.lms import test_every_layer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add_a_layer.md"
FILES = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.S)


@pytest.fixture
def made(monkeypatch):
    """The modules of the page by path, imported as if the files were there."""
    modules = {}
    for path, code in FILES:
        name = path.removesuffix(".py").replace("/", ".")
        modules[path] = module = ModuleType(name)
        module.__package__ = name.rpartition(".")[0]
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(code, path, "exec"), vars(module))
    monkeypatch.setattr(ops, "FAMILIES", (*ops.FAMILIES, "activation.softsign"))
    yield modules
    del LAYERS["Softsign"]


@pytest.fixture(params=[0, 1])
def case(request, made):
    return made["tests/layers/test_softsign.py"].CASES[request.param]


def test_the_page_is_short_and_whole(made):
    assert len(FILES) == 4 and len([line for line in PAGE.read_text().splitlines() if line]) <= 60
    made["tests/layers/test_softsign.py"].test_forward_is_the_formula()
    assert ops.load_ops("cpu").signatures() == ops.load_ops("cuda").signatures()


def test_gradients_and_needs(case):
    test_every_gradient.test_backward_is_the_slope_of_forward(case)
    test_needs.test_backward_reads_nothing_else(case)
    test_needs.test_forward_reads_nothing_else(case)


def test_what_every_layer_keeps_to(case):
    test_every_case.test_forward_writes_every_element_of_the_inferred_shapes(case)
    test_every_case.test_a_layer_s_own_attributes_hide_none_that_the_net_asks_for(case)
    test_every_case.test_float32_agrees_with_float64(case)
    test_every_case.test_in_place_gives_the_same_numbers(case)
    test_every_case.test_passes_change_nothing_but_their_results(case)
    if not case.in_place:
        test_every_remat.test_rematerializing_makes_the_same(case, np.float32)


def test_large_model_support_changes_no_bit(case, monkeypatch):
    monkeypatch.setattr(LMSConfig, "min_bytes", property(lambda config: 0))
    test_every_layer.test_lms_changes_no_bit(case, range(3))
    test_every_layer.test_layers_that_run_again_change_no_bit(case, range(3), monkeypatch)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_a_gpu_gives_the_same(case):
    (x,) = case.make_bottoms(np.random.default_rng(1))
    here, there = case.bench(np.float32), case.bench(np.float32, CudaArrays())
    for one, other in zip(here.forward([x]), there.forward([x]), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    for one, other in zip(here.backward([x])[0], there.backward([x])[0], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)
