"""VGG-16 (configuration D) with the layer names of the public weights."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .parts import XAVIER, ZEROS, classifier_end, dummy_layers, dummy_solver, lmdb_layers, weight_and_bias
from .text import net_text, solver_text

TITLE = "VGG_ILSVRC_16_layers"
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
FILLED = {"param": weight_and_bias(decay=(1, 0)), "weight_filler": XAVIER, "bias_filler": ZEROS}


def body(n: NetSpec):
    """conv1_1 .. fc8 after n.data; returns the scores."""
    x = n.data
    for i, widths in enumerate(STAGES, 1):
        for j, width in enumerate(widths, 1):
            n[f"conv{i}_{j}"] = L.Convolution(x, num_output=width, pad=1, kernel_size=3, **FILLED)
            n[f"relu{i}_{j}"] = x = L.ReLU(n[f"conv{i}_{j}"], in_place=True)
        n[f"pool{i}"] = x = L.Pooling(x, pool="MAX", kernel_size=2, stride=2)
    for i in (6, 7):
        n[f"fc{i}"] = L.InnerProduct(x, num_output=4096, **FILLED)
        n[f"relu{i}"] = L.ReLU(n[f"fc{i}"], in_place=True)
        n[f"drop{i}"] = x = L.Dropout(n[f"relu{i}"], dropout_ratio=0.5, in_place=True)
    n.fc8 = L.InnerProduct(x, num_output=1000, **FILLED)
    return n.fc8


def train_val() -> NetSpec:
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
    classifier_end(n, body(n), top5=True)
    return n


def train_dummy() -> NetSpec:
    n = NetSpec()
    dummy_layers(n, 32, 224)
    n.loss = L.SoftmaxWithLoss(body(n), n.label)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [10, 3, 224, 224]})
    n.prob = L.Softmax(body(n))
    return n


def files() -> dict[str, str]:
    solver = solver_text(
        "vgg",
        "256 pictures an iteration (64 x iter_size 4), 0.01 divided by ten three times, 370,000 iterations.",
        net="models/vgg-16/train_val.prototxt",
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
        snapshot_prefix="models/vgg-16/vgg-16",
    )
    return {
        "vgg-16/train_val.prototxt": net_text("vgg", TITLE, train_val()),
        "vgg-16/train_dummy.prototxt": net_text("vgg", TITLE, train_dummy()),
        "vgg-16/deploy.prototxt": net_text("vgg", TITLE, deploy()),
        "vgg-16/solver.prototxt": solver,
        "vgg-16/solver_dummy.prototxt": dummy_solver("vgg", "vgg-16", weight_decay=0.0005),
    }
