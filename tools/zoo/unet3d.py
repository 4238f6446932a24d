"""3-D U-Net for volumes of 192 x 192 x 192: more than a GPU's memory holds, hence Large Model Support.

The paper's four levels and widths, with padded convolutions, so that a volume keeps its size: two 3x3x3 convolutions
a level, each with BatchNorm, Scale and ReLU; 2x2x2 max pooling down, 2x2x2 deconvolution up, a skip at every level.
"""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import MSRA, ZEROS, batch_norm, folder_solver, input_layer, relu
from .text import net_text, solver_text
from .unet import hdf5_layers

FOLDER, TITLE = "unet-3d", "U-Net-3D"
SIZE, CHANNELS, CLASSES = 192, 3, 3
UNKNOWN = 255  # voxels that nobody labelled
WIDTHS = ((32, 64), (64, 128), (128, 256), (256, 512))  # of the two convolutions of each level on the way down


def conv_bn_relu(n: NetSpec, x, name: str, num_output: int):
    """conv_<name>, bn_<name>, scale_<name> and relu_<name>; all but the first in place."""
    conv = f"conv_{name}"
    n[conv] = L.Convolution(x, num_output=num_output, kernel_size=3, pad=1, bias_term=False, weight_filler=MSRA)
    return relu(n, batch_norm(n, n[conv], f"bn_{name}", f"scale_{name}"), f"relu_{name}")


def two(n: NetSpec, x, level: str, widths: tuple[int, int]):
    return conv_bn_relu(n, conv_bn_relu(n, x, f"{level}a", widths[0]), f"{level}b", widths[1])


def body(n: NetSpec):
    """conv_d0a .. score after n.data; returns the scores, CLASSES for each voxel."""
    x, levels = n.data, []
    for i, widths in enumerate(WIDTHS):
        if i:
            n[f"pool{i}"] = x = L.Pooling(x, pool="MAX", kernel_size=2, stride=2)
        x = two(n, x, f"d{i}", widths)
        levels.append(x)
    below = WIDTHS[-1][1]
    for i in reversed(range(len(WIDTHS) - 1)):
        shape = {"num_output": below, "kernel_size": 2, "stride": 2, "bias_term": False, "weight_filler": MSRA}
        n[f"up{i}"] = L.Deconvolution(x, convolution_param=shape)
        n[f"join{i}"] = L.Concat(levels[i], n[f"up{i}"])
        below = WIDTHS[i][1]
        x = two(n, n[f"join{i}"], f"u{i}", (below, below))
    n.score = L.Convolution(x, num_output=CLASSES, kernel_size=1, weight_filler=MSRA, bias_filler=ZEROS)
    return n.score


def train_val() -> NetSpec:
    n = NetSpec()
    hdf5_layers(n, "data/volumes", 1)
    n.loss = L.SoftmaxWithLoss(body(n), n.label, loss_param={"ignore_label": UNKNOWN})
    n.accuracy = L.Accuracy(n.score, n.label, ignore_label=UNKNOWN, include={"phase": "TEST"})
    return n


def train_dummy() -> NetSpec:
    n = NetSpec()
    n.data, n.label = L.DummyData(
        shape=[{"dim": [1, channels, SIZE, SIZE, SIZE]} for channels in (CHANNELS, 1)],
        data_filler=[{"type": "gaussian", "std": 1}, {"type": "uniform", "min": 0, "max": CLASSES - 0.01}],
        ntop=2,
    )
    n.loss = L.SoftmaxWithLoss(body(n), n.label)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, CHANNELS, SIZE, SIZE, SIZE)
    n.prob = L.Softmax(body(n))
    return n


MODELS = (
    Model(
        FOLDER,
        {"data": (1, CHANNELS, SIZE, SIZE, SIZE), "label": (1, 1, SIZE, SIZE, SIZE)},
        {"data": (1, CHANNELS, 16, 8, 8), "label": (1, 1, 16, 8, 8)},
        classes=CLASSES,
        item="volume",
    ),
)
COMMON = {"base_lr": 0.01, "momentum": 0.9, "weight_decay": 0.0001}


def files() -> dict[str, str]:
    return {
        f"{FOLDER}/train_val.prototxt": net_text("unet3d", TITLE, train_val()),
        f"{FOLDER}/train_dummy.prototxt": net_text("unet3d", TITLE, train_dummy()),
        f"{FOLDER}/deploy.prototxt": net_text("unet3d", TITLE, deploy()),
        f"{FOLDER}/solver.prototxt": folder_solver(
            "unet3d",
            FOLDER,
            "Needs Large Model Support on most GPUs: see README.md.",
            test_iter=10,
            test_interval=500,
            test_initialization=False,
            lr_policy="poly",
            power=0.9,
            display=10,
            max_iter=50000,
            snapshot=1000,
            **COMMON,
        ),
        f"{FOLDER}/solver_dummy.prototxt": solver_text(
            "unet3d",
            "For measuring time and memory: a few iterations on a random volume, nothing is saved.",
            net=f"models/{FOLDER}/train_dummy.prototxt",
            lr_policy="fixed",
            display=1,
            max_iter=10,
            snapshot_after_train=False,
            random_seed=1701,
            **COMMON,
        ),
    }
