"""For which convolutions of a net no time is spent on the choice of an algorithm."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.ops import ops_of

from .nets import conv, inputs, relu

TEXT = (
    inputs(x=(2, 3, 8, 8))
    + conv("chain", "x", 4)
    + relu("r", "chain")
    + conv("alone", "chain", 5)
    + 'layer { name: "up" type: "Deconvolution" bottom: "alone" top: "up" convolution_param { num_output: 2 '
    "kernel_size: 2 stride: 2 } }"
)
BACKWARD = {"backward_data", "backward_filter"}


def asked(**options):
    """(net, what was said of each plan by channels of the bottom of the convolution, which types were asked about)."""
    device, plans, types = SimDevice(1 << 22), {}, []
    ops = ops_of(device)
    plan = ops.conv.plan

    def conv_plan(geometry, dtype, limit, **how):
        plans.setdefault(geometry.channels, []).append((how["relu"], set(how["seldom"])))
        return plan(geometry, dtype, limit, **how)

    ops.bind("conv_plan", conv_plan)
    ops.bind("conv_channels_last_plan", lambda g, dtype: types.append("float32") or True)
    ops.bind("conv_half_plan", lambda g, dtype: types.append("bfloat16") or True)
    net = Net(parse_net(TEXT).message, device=device, **options)
    return net, plans, types


@pytest.mark.parametrize("phase, backward", [(0, [set(), set()]), (1, [BACKWARD, {"forward", "backward_filter"}])])
def test_in_a_solvers_net(phase, backward):
    """The layers of a chain run by hand only, the gradients of a TEST net too; a Deconvolution's are others."""
    net, plans, _ = asked(phase=phase, tuning=Tuning(fuse=True))
    assert plans[3] == [(False, {"ending"} | backward[0]), (True, backward[0])]
    assert plans[4] == [(False, backward[0])] and plans[2] == [(False, backward[1])]
    net.reshape()
    assert plans[3][2:] == [(True, backward[0])], "a chain that is made anew is no less for it"
    net.keep("chain")  # now the chain is not fused
    assert plans[3][3:] == [(False, backward[0])]


def test_in_a_net_by_hand():
    _, plans, _ = asked(phase=0, tuning=Tuning(fuse=False))
    assert set(map(str, sum(plans.values(), []))) == {"(False, set())"}


@pytest.mark.parametrize("half", [False, True])
def test_one_type_is_asked_about(half):
    _, _, types = asked(phase=0, tuning=Tuning(half=half, channels_last=True))
    assert set(types) == {"bfloat16" if half else "float32"}
