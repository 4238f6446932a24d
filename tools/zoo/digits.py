"""A small net for 8x8 handwritten digits that trains in seconds: the demo of Large Model Support.

Sizes are chosen for a device of 2 MiB (`-lms 1000 -lms_frac 0.4 -lms_budget 2MB`): conv1's two buffers of 1024 KiB
are managed and never needed at once, because pooling comes before ReLU; everything else stays on the device.
models/digits/README.md has the sums.
"""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import XAVIER, ZEROS, classifier_end, lmdb_layers, weight_and_bias
from .text import net_text, solver_text

FILLED = {"param": weight_and_bias(), "weight_filler": XAVIER, "bias_filler": ZEROS}


def body(n: NetSpec):
    """conv1 (32x8x8) -> pool1 (32x3x3) -> conv2 (40x1x1) -> ip (10); returns the scores."""
    n.conv1 = L.Convolution(n.data, num_output=32, kernel_size=5, pad=2, **FILLED)
    n.pool1 = L.Pooling(n.conv1, pool="MAX", kernel_size=3, stride=3)
    n.relu1 = L.ReLU(n.pool1, in_place=True)
    n.conv2 = L.Convolution(n.relu1, num_output=40, kernel_size=3, **FILLED)
    n.relu2 = L.ReLU(n.conv2, in_place=True)
    n.drop2 = L.Dropout(n.relu2, dropout_ratio=0.5, in_place=True)
    n.ip = L.InnerProduct(n.drop2, num_output=10, **FILLED)
    return n.ip


def train_val() -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n, "digits", "data/digits", train="digits_train_lmdb", test="digits_test_lmdb", batches=(128, 11), scale=1 / 256
    )
    classifier_end(n, body(n))
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 8, 8]})
    n.prob = L.Softmax(body(n))
    return n


MODELS = (Model("digits", {"data": (128, 1, 8, 8)}, {"data": (4, 1, 8, 8)}, classes=10),)


def files() -> dict[str, str]:
    solver = solver_text(
        "digits",
        "27 test batches of 11 are the 297 test digits.",
        net="models/digits/train_val.prototxt",
        test_iter=27,
        test_interval=250,
        base_lr=0.05,
        lr_policy="step",
        gamma=0.1,
        stepsize=750,
        momentum=0.9,
        weight_decay=0.0005,
        display=100,
        max_iter=1000,
        snapshot=500,
        snapshot_prefix="models/digits/digits",
        random_seed=1701,
    )
    return {
        "digits/train_val.prototxt": net_text("digits", "Digits", train_val()),
        "digits/deploy.prototxt": net_text("digits", "Digits", deploy()),
        "digits/solver.prototxt": solver,
    }
