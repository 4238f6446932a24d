"""Rates per parameter (NVIDIA's LARC, Intel's LARS) against their formulas, with the gradients of a net by itself."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import SolverError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.solvers.local_rates import local_rate

from .helpers import CONSTANT, PLACES, bits, inner, loss, make, solver_text

NET = CONSTANT + inner(outputs=6) + inner("ip2", "ip", params="param { lr_mult: 3 } param { lr_mult: 0 }") + loss("ip2")
RATE, MOMENTUM, DECAY = 0.5, 0.75, 0.0078125  # as float32
BLOCKS = {"blocks": lambda: {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=0, ahead=1, split_outputs=2)}}
LARC = {"larc": "true", "larc_eta": 0.0625}
LARS = {"local_lr_auto": "true", "local_gw_ratio": 0.0625}
WAYS = {
    "scale": (LARC, lambda w, g: RATE * (1 - MOMENTUM) * 0.0625 * w / g),
    "clip": (LARC | {"larc_policy": '"clip"'}, lambda w, g: min(RATE, (1 - MOMENTUM) * 0.0625 * w / g)),
    "clip, all above": ({"larc": "true", "larc_eta": 1e6, "larc_policy": '"clip"'}, lambda w, g: RATE),
    "LARS": (LARS, lambda w, g: RATE * 0.0625 * w / (g + DECAY * w)),
}


def _gradients(solver) -> dict[tuple[str, int], np.ndarray]:
    solver.net.clear_param_diffs()
    solver.net.forward_range()
    solver.net.backward_range()
    return {(n, j): b.read_diff().copy() for n, blobs in solver.net.params.items() for j, b in enumerate(blobs)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [*PLACES, "blocks"])
def test_updates_follow_the_formula(way, place):
    options, formula = WAYS[way]
    options = options | {"base_lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    solver = make(NET, BLOCKS.get(place, place), dtype="float64", iter_size=2, **options)
    alone = make(NET, dtype="float64")
    keys = [(n, j) for n, blobs in solver.net.params.items() for j in range(len(blobs))]
    history = dict.fromkeys(keys, 0.0)
    for _ in range(3):
        before = {(n, j): solver.net.params[n][j].read_data().copy() for n, j in keys}
        for n, j in keys:
            alone.net.params[n][j].data[...] = before[n, j]
        gradients = _gradients(alone)  # both batches of iter_size are the same, so their mean is this
        solver.step(1)
        for n, j in keys:
            w, g = before[n, j], gradients[n, j]
            rate = 0 if (n, j) == ("ip2", 1) else formula(np.sqrt((w**2).sum()), np.sqrt((g**2).sum()))
            history[n, j] = MOMENTUM * history[n, j] + rate * (g + DECAY * w)
            expected = w if rate == 0 else w - history[n, j]
            np.testing.assert_allclose(solver.net.params[n][j].read_data(), expected, rtol=1e-9, atol=1e-12)


def test_clipped_gradients_have_smaller_norms():
    """Global clipping comes first: the norms are those of the clipped gradient."""
    alone = make(NET, dtype="float64")
    gradients = _gradients(alone)
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    clip = float(np.float32(norm / 4))
    solver = make(NET, dtype="float64", clip_gradients=clip, base_lr=RATE, **LARC)
    w = solver.net.params["ip"][0].read_data().copy()
    solver.step(1)
    g = gradients["ip", 0] * clip / norm
    rate = RATE * 0.0625 * np.sqrt((w**2).sum()) / np.sqrt((g**2).sum())
    np.testing.assert_allclose(solver.net.params["ip"][0].read_data(), w - rate * g, rtol=1e-6)


@pytest.mark.parametrize("options", [LARC, LARS], ids=["LARC", "LARS"])
def test_large_model_support_keeps_the_bits(options):
    runs = [make(NET, place, base_lr=RATE, momentum=0.9, **options) for place in ("sim", "sim with LMS")]
    for solver in runs:
        solver.step(4)
    assert bits(runs[0]) == bits(runs[1])


def test_it_can_be_switched_on_between_steps():
    one, other = make(NET, larc="false"), make(NET)
    for solver in (one, other):
        solver.step(1)
    assert bits(one) == bits(other)
    one.param.larc = True
    for solver in (one, other):
        solver.step(1)
    assert bits(one) != bits(other)


def test_zero_norms_leave_the_rate():
    param = make(NET, **LARC).param
    assert local_rate(param, 0.5, 0.0, 1.0, 0.0, 2.0) == local_rate(param, 0.5, 0.0, 1.0, 2.0, 0.0) == 0.5
    assert local_rate(param, 0.5, 0.0, 0.0, 1.0, 1.0) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (LARC | {"type": '"Adam"'}, 'larc needs type "SGD", not "Adam"'),
        (LARS | {"type": '"Nesterov"'}, 'local_lr_auto needs type "SGD", not "Nesterov"'),
        (LARC | LARS, "both larc and local_lr_auto"),
        (LARC | {"larc_policy": '"cut"'}, 'larc_policy "cut" is unknown'),
        (LARC | {"larc_eta": "nan"}, "larc_eta nan is not finite"),
    ],
)
def test_what_does_not_fit(options, said):
    with pytest.raises(SolverError) as caught:
        make(NET, file="s.prototxt", **options)
    assert caught.value.message == said and caught.value.fix
    name = said.split()[1] if said.startswith("both") else said.split()[0]
    text = solver_text(NET, **options).splitlines()
    assert caught.value.where.line == next(i for i, line in enumerate(text, 1) if line.startswith(f"{name}:"))
