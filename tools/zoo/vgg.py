"""VGG-16 and VGG-19 (configurations D and E) with the layer names of the public weights."""

from collections.abc import Mapping

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import XAVIER, ZEROS, classifier_end, dummy_layers, dummy_solver, lmdb_layers, weight_and_bias
from .text import net_text, solver_text

STAGES = {  # by depth: the widths of the convolutions between two poolings
    16: ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
    19: ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4),
}
FILLED = {"param": weight_and_bias(decay=(1, 0)), "weight_filler": XAVIER, "bias_filler": ZEROS}


HALVE = {"kernel_size": 2, "stride": 2}


def convolutions(n: NetSpec, depth: int, first_pad: int = 1, pool5: Mapping[str, int] = HALVE):
    """conv1_1 .. pool5 after n.data. first_pad: of conv1_1; nets for pixels pad more. pool5: its window."""
    x = n.data
    for i, widths in enumerate(STAGES[depth], 1):
        for j, width in enumerate(widths, 1):
            pad = first_pad if (i, j) == (1, 1) else 1
            n[f"conv{i}_{j}"] = L.Convolution(x, num_output=width, pad=pad, kernel_size=3, **FILLED)
            n[f"relu{i}_{j}"] = x = L.ReLU(n[f"conv{i}_{j}"], in_place=True)
        n[f"pool{i}"] = x = L.Pooling(x, pool="MAX", **(pool5 if i == 5 else HALVE))
    return x


def body(n: NetSpec, depth: int):
    """conv1_1 .. fc8 after n.data; returns the scores."""
    x = convolutions(n, depth)
    for i in (6, 7):
        n[f"fc{i}"] = L.InnerProduct(x, num_output=4096, **FILLED)
        n[f"relu{i}"] = L.ReLU(n[f"fc{i}"], in_place=True)
        n[f"drop{i}"] = x = L.Dropout(n[f"relu{i}"], dropout_ratio=0.5, in_place=True)
    n.fc8 = L.InnerProduct(x, num_output=1000, **FILLED)
    return n.fc8


def train_val(depth: int) -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n,
        "data",
        "data/ilsvrc12",
        train="ilsvrc12_train_lmdb",
        test="ilsvrc12_val_lmdb",
        batches=(64, 50),
        mirror=True,
        crop_size=224,
        mean_value=[103.939, 116.779, 123.68],
    )
    classifier_end(n, body(n, depth), top5=True)
    return n


def train_dummy(depth: int) -> NetSpec:
    n = NetSpec()
    dummy_layers(n, 32, 224)
    n.loss = L.SoftmaxWithLoss(body(n, depth), n.label)
    return n


def deploy(depth: int) -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [10, 3, 224, 224]})
    n.prob = L.Softmax(body(n, depth))
    return n


def solver(depth: int) -> str:
    return solver_text(
        "vgg",
        "256 pictures an iteration (64 x iter_size 4), 0.01 divided by ten three times, 370,000 iterations.",
        net=f"models/vgg-{depth}/train_val.prototxt",
        test_iter=1000,
        test_interval=5000,
        test_initialization=False,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        momentum=0.9,
        weight_decay=0.0005,
        iter_size=4,
        display=20,
        max_iter=370000,
        snapshot=10000,
        snapshot_prefix=f"models/vgg-{depth}/vgg-{depth}",
    )


MODELS = tuple(image_net(f"vgg-{depth}", 64, 224, 32, narrow=("fc6", "fc7")) for depth in STAGES)


def files() -> dict[str, str]:
    out = {}
    for depth in STAGES:
        title = f"VGG_ILSVRC_{depth}_layers"
        out |= {
            f"vgg-{depth}/train_val.prototxt": net_text("vgg", title, train_val(depth)),
            f"vgg-{depth}/train_dummy.prototxt": net_text("vgg", title, train_dummy(depth)),
            f"vgg-{depth}/deploy.prototxt": net_text("vgg", title, deploy(depth)),
            f"vgg-{depth}/solver.prototxt": solver(depth),
            f"vgg-{depth}/solver_dummy.prototxt": dummy_solver("vgg", f"vgg-{depth}", weight_decay=0.0005),
        }
    return out
