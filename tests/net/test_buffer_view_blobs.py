"""Blobs stored as buffer views, as users see them: reads, writes, exported views, shapes, `keep`."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.errors import DiscardedRead
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net import arrangement

from ..lms.nets import train
from .view_nets import NETS, PLACES, copying, data, solver, steps_of

INPUTS = "".join(
    f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'
    for name, dims in {"data": "dim: 1 dim: 3 dim: 16 dim: 16", "label": "dim: 1"}.items()
)


def test_shapes_change_and_come_back(monkeypatch):
    """With two images the bottoms are no stretches; whichever shape comes next, nothing of another one is left."""
    text = INPUTS + NETS["u-net"][0].replace(data(), "")
    found = []
    for make in (solver, lambda text: copying(monkeypatch, text)):
        s, rng = make(text), np.random.default_rng(0)
        for batch in (1, 2, 1, 3, 1):
            s.net.blobs["data"].reshape(batch, 3, 16, 16)
            s.net.blobs["label"].reshape(batch)
            s.net.blobs["data"].data[...] = rng.normal(size=(batch, 3, 16, 16))
            s.net.blobs["label"].data[...] = rng.integers(0, 5, batch)
            with monkeypatch.context() as here:
                if make is not solver:
                    here.setattr(arrangement, "choose_views", lambda *args, **more: {})
                found.append(train(s, 2))
            assert bool(s.net.run_graph.views) == (batch == 1 and make is solver)
    assert found[:5] == found[5:]


@pytest.mark.parametrize("place", ["cpu", "sim", "all managed"])
def test_passes_by_hand_know_every_blob(place, monkeypatch):
    make, lms = PLACES[place]
    views = solver(NETS["u-net"][0], make(), lms)
    without_views = copying(monkeypatch, NETS["u-net"][0], make())
    for s in (views, without_views):
        s.step(1)
        s.net.forward_range()
        s.net.blobs["d0"].data[0, 1] = 3  # and what is written counts
        s.net.forward_range(s.net.layer_index("cat"))
        s.net.clear_param_diffs()  # with pack, a solver's step drops them
        s.net.backward_range()
    for name, blob in without_views.net.blobs.items():
        np.testing.assert_array_equal(views.net.blobs[name].data, blob.data, err_msg=name)
        np.testing.assert_array_equal(views.net.blobs[name].diff, blob.diff, err_msg=name)
    assert (views.net.blobs["cat"].data[0, 1] == 3).all()
    assert train(views, 2) == train(without_views, 2)


@pytest.mark.parametrize("place", ["cpu", "sim", "all managed"])
def test_what_an_iteration_does_not_make_is_refused(place):
    """After it a value of its own is no older one, nor is a view of it; a kept blob lies in none."""
    make, lms = PLACES[place]
    s = solver(NETS["u-net"][0], make(), lms)
    s.net.forward_range()
    view = s.net.blobs["up"].data
    assert np.isfinite(view).all()
    s.step(1)
    assert np.isnan(view).all()
    with pytest.raises(DiscardedRead, match=r'net\.keep\("up"\)'):
        s.net.blobs["up"].data  # noqa: B018
    s.net.keep("up", "cat")
    s.step(1)
    assert steps_of(s.net, "Concat") == {"forward": ["cat"], "backward": ["cat"]}
    np.testing.assert_array_equal(s.net.blobs["up"].data, s.net.blobs["cat"].data[:, 4:])
    np.testing.assert_array_equal(s.net.blobs["up"].diff, s.net.blobs["cat"].diff[:, 4:])


def test_a_solver_that_keeps_values_copies():
    """Neither packed nor managed: every blob is there after an iteration."""
    s = solver(NETS["u-net"][0], get_device("cpu"), pack=False)
    s.step(1)
    assert not s.net.run_graph.views
    np.testing.assert_array_equal(s.net.blobs["d0"].data, s.net.blobs["cat"].data[:, :4])


def test_layers_with_a_wish_keep_to_themselves():
    wish = NETS["nested"][0].replace('name: "c" type', 'name: "c" lms_param { policy: RECOMPUTE } type')
    s = solver(wish, lms=LMSConfig(threshold_kb=1, recompute=True))
    names = {s.net.memory.buffers[b].name for b in s.net.run_graph.views}
    assert "a.data" in names and "c.data" not in names
    assert train(s, 3) == train(solver(NETS["nested"][0]), 3)


def test_in_parts_of_the_batch(monkeypatch):
    """Convolutions write some images of a value that is a stretch of another."""
    text = NETS["first axis"][0]
    lms = LMSConfig(threshold_kb=1, split=2)
    views, without_views = solver(text, lms=lms), copying(monkeypatch, text, lms=lms)
    assert views.net.arrangement.micro_batched.starts and views.net.run_graph.views
    assert train(views, 3) == train(without_views, 3)


def test_a_test_net_lays_its_values_too(monkeypatch):
    text = NETS["u-net"][0]
    results = []
    for make in (solver, lambda text: copying(monkeypatch, text)):
        s = make(text)
        s.net.test_forward()
        results.append(s.net.blobs["loss"].data.tobytes())
        names = [step.step.name for step in s.net.memory.steps("test")]
        assert ("forward:cat" in names) == (make is not solver)
    assert results[0] == results[1]
