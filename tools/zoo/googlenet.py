"""GoogLeNet with BVLC's names: nine inception modules, and in training two classifiers on the side."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import XAVIER, ZEROS, constant, dummy_layers, dummy_solver, lmdb_layers, weight_and_bias
from .text import net_text, solver_text

TITLE = "GoogLeNet"
LEARNED = {"param": weight_and_bias(decay=(1, 0)), "weight_filler": XAVIER}
FILLED = {**LEARNED, "bias_filler": constant(0.2)}
# 1x1, 3x3_reduce, 3x3, 5x5_reduce, 5x5, pool_proj
WIDTHS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
SIDE = {"4a": "loss1", "4d": "loss2"}  # a classifier of its own reads this module's output in training
POOLED = {"3b": "pool3", "4e": "pool4"}  # a pooling follows this module


def conv_relu(n: NetSpec, bottom, family: str, name: str, num_output: int, **shape):
    """<family>/<name> and, in place, <family>/relu_<name> (conv1/7x7_s2 has conv1/relu_7x7)."""
    top = f"{family}/{name}"
    n[top] = L.Convolution(bottom, num_output=num_output, **shape, **FILLED)
    relu = f"{family}/relu_{name.removesuffix('_s2')}"
    n[relu] = L.ReLU(n[top], in_place=True)
    return n[relu]


def halve(n: NetSpec, bottom, name: str):
    n[name] = L.Pooling(bottom, pool="MAX", kernel_size=3, stride=2)
    return n[name]


def lrn(n: NetSpec, bottom, name: str):
    n[name] = L.LRN(bottom, local_size=5, alpha=0.0001, beta=0.75)
    return n[name]


def inception(n: NetSpec, x, which: str):
    """Four branches side by side, joined along the channels."""
    family, widths = f"inception_{which}", WIDTHS[which]
    one = conv_relu(n, x, family, "1x1", widths[0], kernel_size=1)
    three = conv_relu(n, x, family, "3x3_reduce", widths[1], kernel_size=1)
    three = conv_relu(n, three, family, "3x3", widths[2], pad=1, kernel_size=3)
    five = conv_relu(n, x, family, "5x5_reduce", widths[3], kernel_size=1)
    five = conv_relu(n, five, family, "5x5", widths[4], pad=2, kernel_size=5)
    n[f"{family}/pool"] = L.Pooling(x, pool="MAX", kernel_size=3, stride=1, pad=1)
    proj = conv_relu(n, n[f"{family}/pool"], family, "pool_proj", widths[5], kernel_size=1)
    n[f"{family}/output"] = L.Concat(one, three, five, proj)
    return n[f"{family}/output"]


def end(n: NetSpec, scores, family: str, layer: str, top: str, weight: float, *, accuracy: bool) -> None:
    """The loss of one classifier, and in testing its accuracies."""
    n[top] = L.SoftmaxWithLoss(scores, n.label, loss_weight=weight, name=layer)
    if accuracy:
        for k in (1, 5):
            more = {"top_k": k} if k > 1 else {}
            n[f"{family}/top-{k}"] = L.Accuracy(scores, n.label, include={"phase": "TEST"}, **more)


def side_classifier(n: NetSpec, x, family: str, *, accuracy: bool) -> None:
    n[f"{family}/ave_pool"] = L.Pooling(x, pool="AVE", kernel_size=5, stride=3)
    x = conv_relu(n, n[f"{family}/ave_pool"], family, "conv", 128, kernel_size=1)
    n[f"{family}/fc"] = L.InnerProduct(x, num_output=1024, **FILLED)
    n[f"{family}/relu_fc"] = L.ReLU(n[f"{family}/fc"], in_place=True)
    n[f"{family}/drop_fc"] = L.Dropout(n[f"{family}/relu_fc"], dropout_ratio=0.7, in_place=True)
    scores = L.InnerProduct(n[f"{family}/drop_fc"], num_output=1000, bias_filler=ZEROS, **LEARNED)
    n[f"{family}/classifier"] = scores
    end(n, scores, family, f"{family}/loss", f"{family}/loss1", 0.3, accuracy=accuracy)


def body(n: NetSpec, *, side: bool, accuracy: bool = False):
    """conv1 .. loss3/classifier after n.data; returns the scores. side: with the classifiers on the side."""
    x = conv_relu(n, n.data, "conv1", "7x7_s2", 64, pad=3, kernel_size=7, stride=2)
    x = lrn(n, halve(n, x, "pool1/3x3_s2"), "pool1/norm1")
    x = conv_relu(n, x, "conv2", "3x3_reduce", 64, kernel_size=1)
    x = conv_relu(n, x, "conv2", "3x3", 192, pad=1, kernel_size=3)
    x = halve(n, lrn(n, x, "conv2/norm2"), "pool2/3x3_s2")
    for which in WIDTHS:
        x = inception(n, x, which)
        if side and which in SIDE:
            side_classifier(n, x, SIDE[which], accuracy=accuracy)
        if which in POOLED:
            x = halve(n, x, f"{POOLED[which]}/3x3_s2")
    n["pool5/7x7_s1"] = L.Pooling(x, pool="AVE", kernel_size=7, stride=1)
    n["pool5/drop_7x7_s1"] = x = L.Dropout(n["pool5/7x7_s1"], dropout_ratio=0.4, in_place=True)
    n["loss3/classifier"] = L.InnerProduct(x, num_output=1000, bias_filler=ZEROS, **LEARNED)
    return n["loss3/classifier"]


def train_val() -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n,
        "data",
        "data/ilsvrc12",
        train="ilsvrc12_train_lmdb",
        test="ilsvrc12_val_lmdb",
        batches=(32, 50),
        mirror=True,
        crop_size=224,
        mean_value=[104, 117, 123],
    )
    end(n, body(n, side=True, accuracy=True), "loss3", "loss3/loss3", "loss3/loss3", 1, accuracy=True)
    return n


def train_dummy() -> NetSpec:
    n = NetSpec()
    dummy_layers(n, 32, 224)
    end(n, body(n, side=True), "loss3", "loss3/loss3", "loss3/loss3", 1, accuracy=False)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [10, 3, 224, 224]})
    n.prob = L.Softmax(body(n, side=False))
    return n


# pool5/7x7_s1 needs 7 x 7, which is nearly the whole picture
MODELS = (image_net("googlenet", 32, 224, 223, narrow=("loss1/fc", "loss2/fc")),)


def files() -> dict[str, str]:
    solver = solver_text(
        "googlenet",
        "The quick schedule: the rate falls with the square root of what is left of 2,400,000 iterations.",
        net="models/googlenet/train_val.prototxt",
        test_iter=1000,
        test_interval=4000,
        test_initialization=False,
        display=40,
        average_loss=40,
        base_lr=0.01,
        lr_policy="poly",
        power=0.5,
        max_iter=2400000,
        momentum=0.9,
        weight_decay=0.0002,
        snapshot=40000,
        snapshot_prefix="models/googlenet/googlenet",
    )
    return {
        "googlenet/train_val.prototxt": net_text("googlenet", TITLE, train_val()),
        "googlenet/train_dummy.prototxt": net_text("googlenet", TITLE, train_dummy()),
        "googlenet/deploy.prototxt": net_text("googlenet", TITLE, deploy()),
        "googlenet/solver.prototxt": solver,
        "googlenet/solver_dummy.prototxt": dummy_solver("googlenet", "googlenet", weight_decay=0.0002),
    }
