"""Models under Large Model Support: every plan at full size, and a volume net that trains the same in less memory."""

from __future__ import annotations

import re

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.proto.caffe_pb2 import SolverParameter
from pycaffe_lms.solvers.sgd import SGDSolver

from .nets import ALL, MODELS, SOME, tiny

# deep ones, those with a long search, and twins of AlexNet and VGG
LONG = ("densenet-121/train_val", "inception-v3/train_val", "cifar10_resnet-56/train_val", "caffenet/train_val")
LONG += ("flickr_style/train_val", "rcnn_ilsvrc13/train_val", "vgg-16/train_val", "vgg-19/train_val")
LONG += ("gpt2/train_val", "llama-1.3b/train_val", "llama-7b/train_val", "vit-b-16/train_val", "vit-l-16/train_val")
LONG += ("alexnet/train_val", "googlenet/train_val", "resnet-34/train_val", "squeezenet-1.0/train_val")
LONG += ("mobilenet-v2/train_val", "resnet-50/train_val")


@pytest.mark.parametrize(
    "name", [pytest.param(*p.values, marks=pytest.mark.thorough) if p.values[0] in LONG else p for p in SOME]
)
def test_plan_at_full_size(name, capsys):
    """From the prototxt as it is; data layers need only shapes. The model's README has the figures that are printed."""
    model = ALL[name]
    ahead = ["-lms_ahead", "0"] if "1001" in name else []  # to look ahead takes twice as long
    shapes = [a for top, s in model.data.items() for a in ("-shape", f"{top}={','.join(map(str, s))}")]
    assert main(["plan", "-model", str(MODELS / model.path), *shapes, "-lms", "1000", *ahead, "-summary"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 50 and max(map(len, out.splitlines())) <= 100
    in_core = re.search(r"^without LMS +([^ ]+ \w+) ", out, re.M).group(1)
    least = re.search(r"^Least budget with layers whole: ([^ ]+ \w+)", out, re.M).group(1)
    batch = str(model.batch) if model.file == "train_val" else f"{model.file}, {model.batch}"
    assert f"| {batch} | {in_core} | {least} | " in (MODELS / model.folder / "README.md").read_text()


def solver(capacity: int, lms: LMSConfig | None = None) -> SGDSolver:
    """Of the volume net with a quarter of its channels."""
    net = tiny(ALL["unet-3d/train_val"])
    for layer in net.layer:
        if layer.convolution_param.num_output > 3:
            layer.convolution_param.num_output //= 4
    param = SolverParameter(
        base_lr=0.01,
        momentum=0.9,
        lr_policy="fixed",
        max_iter=2,
        random_seed=7,
        snapshot_after_train=False,
        net_param=net,
    )
    return SGDSolver(param, device=SimDevice(capacity), lms=lms)


def train(trained: SGDSolver) -> list[bytes]:
    trained.step(2)
    return [blob.read_data().tobytes() for blob in trained.net.learnable_params]


def test_the_volume_net_trains_to_the_same_bits_in_less_memory():
    """Its weights, gradients and momentum stay out too: three times 4.6 MiB do not fit into this device."""
    whole, small = 1 << 30, 10 << 20
    with pytest.raises(OutOfDeviceMemory):
        train(solver(small))
    managed = solver(small, LMSConfig(threshold_kb=1, budget=small))
    assert train(managed) == train(solver(whole))
    assert managed.net.device.bytes_in > 0 and managed.net.device.bytes_out > 0
