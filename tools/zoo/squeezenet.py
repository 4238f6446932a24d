"""SqueezeNet 1.0 and 1.1 with the names of the authors' public weights: fire modules, no inner product."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import XAVIER, classifier_files, gaussian, relu

FIRE = {2: (16, 64), 3: (16, 64), 4: (32, 128), 5: (32, 128), 6: (48, 192), 7: (48, 192), 8: (64, 256), 9: (64, 256)}
# version: conv1's width and window, the modules that a pooling follows, the padding of conv10
VERSIONS = {"1.0": ((96, 7), (4, 8), 1), "1.1": ((64, 3), (3, 5), 0)}
SOLVER = {
    "test_iter": 2000,
    "test_interval": 1000,
    "test_initialization": False,
    "base_lr": 0.04,
    "lr_policy": "poly",
    "power": 1,
    "momentum": 0.9,
    "weight_decay": 0.0002,
    "iter_size": 16,
    "display": 40,
    "average_loss": 40,
    "max_iter": 170000,
    "snapshot": 10000,
}


def fire(n: NetSpec, x, module: int):
    """A 1x1 convolution to few channels, then 1x1 and 3x3 side by side to many."""
    name, (few, many) = f"fire{module}", FIRE[module]

    def conv(bottom, part, num_output, kernel_size):
        n[f"{name}/{part}"] = L.Convolution(
            bottom, num_output=num_output, kernel_size=kernel_size, pad=kernel_size // 2, weight_filler=XAVIER
        )
        return relu(n, n[f"{name}/{part}"], f"{name}/relu_{part}")

    squeezed = conv(x, "squeeze1x1", few, 1)
    one, three = conv(squeezed, "expand1x1", many, 1), conv(squeezed, "expand3x3", many, 3)
    n[f"{name}/concat"] = L.Concat(one, three)
    return n[f"{name}/concat"]


def pool(n: NetSpec, x, name: str):
    n[name] = L.Pooling(x, pool="MAX", kernel_size=3, stride=2)
    return n[name]


def body(n: NetSpec, version: str):
    """conv1 .. pool10 after n.data; returns the scores, 1000 x 1 x 1."""
    (width, window), pooled, pad = VERSIONS[version]
    n.conv1 = L.Convolution(n.data, num_output=width, kernel_size=window, stride=2, weight_filler=XAVIER)
    x = pool(n, relu(n, n.conv1, "relu_conv1"), "pool1")
    for module in FIRE:
        x = fire(n, x, module)
        if module in pooled:
            x = pool(n, x, f"pool{module}")
    n.drop9 = L.Dropout(x, dropout_ratio=0.5, in_place=True)
    n.conv10 = L.Convolution(n.drop9, num_output=1000, kernel_size=1, pad=pad, weight_filler=gaussian(0.01))
    n.pool10 = L.Pooling(relu(n, n.conv10, "relu_conv10"), pool="AVE", global_pooling=True)
    return n.pool10


MODELS = tuple(image_net(f"squeezenet-{version}", 32, 227, 51) for version in VERSIONS)


def files() -> dict[str, str]:
    out = {}
    for version in VERSIONS:
        out |= classifier_files(
            "squeezenet",
            f"squeezenet-{version}",
            f"SqueezeNet-{version}",
            lambda n, v=version: body(n, v),
            batches=(32, 25),
            size=227,
            note="512 pictures an iteration (32 x iter_size 16); the rate falls on a straight line.",
            solver=SOLVER,
        )
    return out
