"""C3D for the 487 sports of Sports-1M with the names of the authors' weights: 3x3x3 convolutions over clips."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import classifier_end, constant, folder_solver, gaussian, input_layer, weight_and_bias
from .text import net_text
from .unet import hdf5_layers

CLASSES = 487
RATES = weight_and_bias(decay=(1, 0))
STAGES = (("1a", 64), ("2a", 128), ("3a", 256), ("3b", 256), ("4a", 512), ("4b", 512), ("5a", 512), ("5b", 512))
LAST = {"1a", "2a", "3b", "4b", "5b"}  # a pooling follows


def body(n: NetSpec):
    """conv1a .. fc8-1 after n.data, (N, 3, frames, height, width); returns the scores."""
    x = n.data
    for name, width in STAGES:
        n[f"conv{name}"] = L.Convolution(
            x,
            num_output=width,
            kernel_size=3,
            pad=1,
            param=RATES,
            weight_filler=gaussian(0.01),
            bias_filler=constant(0 if name == "1a" else 1),
        )
        n[f"relu{name}"] = x = L.ReLU(n[f"conv{name}"], in_place=True)
        if name in LAST:
            frames = 1 if name == "1a" else 2  # the first pooling keeps all frames
            window = {"dim": [frames, 2, 2]}
            n[f"pool{name[0]}"] = x = L.Pooling(x, pool="MAX", kernel_shape=window, stride_shape=window)
    for i in (6, 7):
        name = f"fc{i}-1"
        n[name] = L.InnerProduct(
            x, num_output=4096, param=RATES, weight_filler=gaussian(0.005), bias_filler=constant(1)
        )
        n[f"relu{i}"] = L.ReLU(n[name], in_place=True)
        n[f"drop{i}"] = x = L.Dropout(n[f"relu{i}"], dropout_ratio=0.5, in_place=True)
    n["fc8-1"] = L.InnerProduct(
        x, num_output=CLASSES, param=RATES, weight_filler=gaussian(0.01), bias_filler=constant(0)
    )
    return n["fc8-1"]


def train_val() -> NetSpec:
    n = NetSpec()
    hdf5_layers(n, "data/sports1m", 30)
    classifier_end(n, body(n), top5=True)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 3, 16, 112, 112)
    n.prob = L.Softmax(body(n))
    return n


MODELS = (
    Model(
        "c3d",
        {"data": (30, 3, 16, 112, 112), "label": (30,)},
        {"data": (1, 3, 16, 32, 32), "label": (1,)},
        classes=CLASSES,
        item="clip",
        narrow=("fc6-1", "fc7-1"),
    ),
)


def files() -> dict[str, str]:
    return {
        "c3d/train_val.prototxt": net_text("c3d", "C3D-Sports1M", train_val()),
        "c3d/deploy.prototxt": net_text("c3d", "C3D-Sports1M", deploy()),
        "c3d/solver.prototxt": folder_solver(
            "c3d",
            "c3d",
            test_iter=100,
            test_interval=5000,
            test_initialization=False,
            base_lr=0.003,
            lr_policy="step",
            gamma=0.5,
            stepsize=150000,
            momentum=0.9,
            weight_decay=0.005,
            display=20,
            max_iter=1900000,
            snapshot=10000,
        ),
    }
