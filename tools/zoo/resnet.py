"""ResNet-50 and ResNet-152 with the layer names of the public weights.

Each convolution is followed, in place, by BatchNorm, Scale (gamma and beta) and, where the block has one, ReLU. The
stride of a stage is on its first 1x1 convolution (and on the shortcut), as in the original weights.
"""

from dataclasses import dataclass

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .parts import MSRA, ZEROS, classifier_end, dummy_layers, dummy_solver, lmdb_layers
from .text import net_text, solver_text


@dataclass(frozen=True)
class Depth:
    """One published depth: blocks in stages 2 to 5, and whether conv1 has a bias in the public file."""

    layers: int
    blocks: tuple[int, int, int, int]
    conv1_bias: bool

    @property
    def name(self) -> str:
        return f"resnet-{self.layers}"

    @property
    def title(self) -> str:
        return f"ResNet-{self.layers}"


DEPTHS = (
    Depth(50, (3, 4, 6, 3), conv1_bias=True),
    Depth(152, (3, 8, 36, 3), conv1_bias=False),
)


def block_names(stage: int, count: int) -> list[str]:
    """`2a 2b 2c`; a long stage counts instead: `3a 3b1 .. 3b7`."""
    if count <= 6:
        return [f"{stage}{chr(ord('a') + i)}" for i in range(count)]
    return [f"{stage}a"] + [f"{stage}b{i}" for i in range(1, count)]


def conv_bn(n: NetSpec, bottom, name: str, suffix: str, num_output: int, kernel_size: int, *, bias=False, **shape):
    """Convolution `name`, then BatchNorm bn<suffix> and Scale scale<suffix> in place."""
    filler = {"bias_filler": ZEROS} if bias else {}
    n[name] = L.Convolution(
        bottom, num_output=num_output, kernel_size=kernel_size, bias_term=bias, weight_filler=MSRA, **filler, **shape
    )
    n[f"bn{suffix}"] = L.BatchNorm(n[name], eps=1e-05, in_place=True)
    n[f"scale{suffix}"] = L.Scale(n[f"bn{suffix}"], bias_term=True, in_place=True)
    return n[f"scale{suffix}"]


def relu(n: NetSpec, bottom, name: str):
    n[name] = L.ReLU(bottom, in_place=True)
    return n[name]


def bottleneck(n: NetSpec, x, block: str, width: int, stride: int, project: bool):
    """res<block>: 1x1, 3x3 and 1x1 convolutions beside the identity, or beside a 1x1 convolution (`project`)."""
    shortcut = x
    if project:
        shortcut = conv_bn(n, x, f"res{block}_branch1", f"{block}_branch1", 4 * width, 1, pad=0, stride=stride)
    for part, num_output, kernel_size, step in (("2a", width, 1, stride), ("2b", width, 3, 1), ("2c", 4 * width, 1, 1)):
        suffix = f"{block}_branch{part}"
        x = conv_bn(n, x, f"res{suffix}", suffix, num_output, kernel_size, pad=kernel_size // 2, stride=step)
        if part != "2c":
            x = relu(n, x, f"res{suffix}_relu")
    n[f"res{block}"] = L.Eltwise(shortcut, x, operation="SUM")
    return relu(n, n[f"res{block}"], f"res{block}_relu")


def body(n: NetSpec, depth: Depth):
    """conv1 .. fc1000 after n.data; returns the scores."""
    x = conv_bn(n, n.data, "conv1", "_conv1", 64, 7, bias=depth.conv1_bias, pad=3, stride=2)
    x = relu(n, x, "conv1_relu")
    n.pool1 = x = L.Pooling(x, pool="MAX", kernel_size=3, stride=2)
    for i, count in enumerate(depth.blocks):
        for block in block_names(i + 2, count):
            first = block.endswith("a")
            x = bottleneck(n, x, block, 64 * 2**i, stride=2 if first and i else 1, project=first)
    n.pool5 = L.Pooling(x, pool="AVE", kernel_size=7, stride=1)
    n.fc1000 = L.InnerProduct(n.pool5, num_output=1000, weight_filler=MSRA, bias_filler=ZEROS)
    return n.fc1000


def train_val(depth: Depth) -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n,
        "data",
        "data/ilsvrc12",
        train="ilsvrc12_train_lmdb",
        test="ilsvrc12_val_lmdb",
        batches=(32, 25),
        mirror=True,
        crop_size=224,
        mean_value=[104, 117, 123],
    )
    classifier_end(n, body(n, depth), top5=True)
    return n


def train_dummy(depth: Depth) -> NetSpec:
    n = NetSpec()
    dummy_layers(n, 32, 224)
    n.loss = L.SoftmaxWithLoss(body(n, depth), n.label)
    return n


def deploy(depth: Depth) -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [1, 3, 224, 224]})
    n.prob = L.Softmax(body(n, depth))
    return n


def solver(depth: Depth) -> str:
    return solver_text(
        "resnet",
        "256 pictures an iteration (32 x iter_size 8), 0.1 divided by ten three times, 600,000 iterations.",
        net=f"models/{depth.name}/train_val.prototxt",
        test_iter=2000,
        test_interval=5000,
        test_initialization=False,
        base_lr=0.1,
        lr_policy="step",
        gamma=0.1,
        stepsize=150000,
        momentum=0.9,
        weight_decay=0.0001,
        iter_size=8,
        display=20,
        max_iter=600000,
        snapshot=10000,
        snapshot_prefix=f"models/{depth.name}/{depth.name}",
    )


def files() -> dict[str, str]:
    out = {}
    for d in DEPTHS:
        out[f"{d.name}/train_val.prototxt"] = net_text("resnet", d.title, train_val(d))
        out[f"{d.name}/train_dummy.prototxt"] = net_text("resnet", d.title, train_dummy(d))
        out[f"{d.name}/deploy.prototxt"] = net_text("resnet", d.title, deploy(d))
        out[f"{d.name}/solver.prototxt"] = solver(d)
        out[f"{d.name}/solver_dummy.prototxt"] = dummy_solver("resnet", d.name, weight_decay=0.0001)
    return out
