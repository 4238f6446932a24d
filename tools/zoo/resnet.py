"""ResNet-18, -34, -50, -101 and -152 with the layer names of the public weights.

Each convolution is followed, in place, by BatchNorm, Scale (gamma and beta) and, where the block has one, ReLU. The
stride of a stage is on its first convolution (and on the shortcut), as in the original weights.
"""

from dataclasses import dataclass

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import MSRA, ZEROS, batch_norm, classifier_end, dummy_layers, dummy_solver, lmdb_layers, relu
from .text import net_text, solver_text


@dataclass(frozen=True)
class Depth:
    """One published depth: blocks in stages 2 to 5, and how the public file was made.

    wide: blocks of 1x1, 3x3 and 1x1 convolutions instead of two of 3x3. conv1_bias: conv1 has a bias. numbered: blocks
    are 3a 3b1 3b2 instead of 3a 3b 3c, where there are more than three. project: block 2a has a convolution on its
    shortcut. measured: has a training net on random data too.
    """

    layers: int
    blocks: tuple[int, int, int, int]
    wide: bool = True
    conv1_bias: bool = False
    numbered: bool = False
    project: bool = True
    measured: bool = False

    @property
    def name(self) -> str:
        return f"resnet-{self.layers}"

    @property
    def title(self) -> str:
        return f"ResNet-{self.layers}"

    def block_names(self, stage: int) -> list[str]:
        """`2a 2b 2c`, or `3a 3b1 .. 3b7`."""
        count = self.blocks[stage - 2]
        if self.numbered and count > 3:
            return [f"{stage}a"] + [f"{stage}b{i}" for i in range(1, count)]
        return [f"{stage}{chr(ord('a') + i)}" for i in range(count)]


DEPTHS = (
    Depth(18, (2, 2, 2, 2), wide=False),
    Depth(34, (3, 4, 6, 3), wide=False, project=False),
    Depth(50, (3, 4, 6, 3), conv1_bias=True, measured=True),
    Depth(101, (3, 4, 23, 3), numbered=True),
    Depth(152, (3, 8, 36, 3), numbered=True, measured=True),
)


def conv_bn(n: NetSpec, bottom, name: str, suffix: str, num_output: int, kernel_size: int, *, bias=False, **shape):
    """Convolution `name`, then BatchNorm bn<suffix> and Scale scale<suffix> in place."""
    filler = {"bias_filler": ZEROS} if bias else {}
    n[name] = L.Convolution(
        bottom, num_output=num_output, kernel_size=kernel_size, bias_term=bias, weight_filler=MSRA, **filler, **shape
    )
    return batch_norm(n, n[name], f"bn{suffix}", f"scale{suffix}")


def block(n: NetSpec, x, name: str, width: int, stride: int, *, wide: bool, project: bool):
    """res<name>: convolutions beside the identity, or beside a 1x1 convolution (`project`)."""
    if wide:
        parts = (("2a", width, 1, stride), ("2b", width, 3, 1), ("2c", 4 * width, 1, 1))
    else:
        parts = (("2a", width, 3, stride), ("2b", width, 3, 1))
    shortcut, last = x, parts[-1]
    if project:
        shortcut = conv_bn(n, x, f"res{name}_branch1", f"{name}_branch1", last[1], 1, pad=0, stride=stride)
    for part, num_output, kernel_size, step in parts:
        suffix = f"{name}_branch{part}"
        x = conv_bn(n, x, f"res{suffix}", suffix, num_output, kernel_size, pad=kernel_size // 2, stride=step)
        if part != last[0]:
            x = relu(n, x, f"res{suffix}_relu")
    n[f"res{name}"] = L.Eltwise(shortcut, x, operation="SUM")
    return relu(n, n[f"res{name}"], f"res{name}_relu")


def body(n: NetSpec, depth: Depth):
    """conv1 .. fc1000 after n.data; returns the scores."""
    x = conv_bn(n, n.data, "conv1", "_conv1", 64, 7, bias=depth.conv1_bias, pad=3, stride=2)
    x = relu(n, x, "conv1_relu")
    n.pool1 = x = L.Pooling(x, pool="MAX", kernel_size=3, stride=2)
    for stage in range(2, 6):
        for name in depth.block_names(stage):
            first = name.endswith("a")
            stride = 2 if first and stage > 2 else 1
            project = first and (stage > 2 or depth.project)
            x = block(n, x, name, 64 * 2 ** (stage - 2), stride, wide=depth.wide, project=project)
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


# pool5 needs 7 x 7, which is 195 x 195 of the picture
MODELS = tuple(image_net(d.name, 32, 224, 195) for d in DEPTHS)


def files() -> dict[str, str]:
    out = {}
    for d in DEPTHS:
        out[f"{d.name}/train_val.prototxt"] = net_text("resnet", d.title, train_val(d))
        out[f"{d.name}/deploy.prototxt"] = net_text("resnet", d.title, deploy(d))
        out[f"{d.name}/solver.prototxt"] = solver(d)
        if d.measured:
            out[f"{d.name}/train_dummy.prototxt"] = net_text("resnet", d.title, train_dummy(d))
            out[f"{d.name}/solver_dummy.prototxt"] = dummy_solver("resnet", d.name, weight_decay=0.0001)
    return out
