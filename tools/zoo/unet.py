"""U-Net in two dimensions with the names of the authors' Caffe net (phseg_v5): no padding, 572 x 572 to 388 x 388."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import MSRA, ZEROS, folder_solver, input_layer, weight_and_bias
from .text import net_text

FOLDER, TITLE = "unet-2d", "U-Net"
FILLED = {"param": weight_and_bias(decay=(1, 0))}
WIDTHS = (64, 128, 256, 512, 1024)


def conv_relu(n: NetSpec, x, side: str, a: str, b: str, num_output: int):
    """conv_<side><a>-<b> makes blob <side><b>; relu_<side><b> works on it in place."""
    blob = f"{side}{b}"
    n[blob] = L.Convolution(
        x,
        name=f"conv_{side}{a}-{b}",
        num_output=num_output,
        kernel_size=3,
        weight_filler=MSRA,
        bias_filler=ZEROS,
        **FILLED,
    )
    n[f"relu_{blob}"] = L.ReLU(n[blob], in_place=True)
    return n[f"relu_{blob}"]


def down(n: NetSpec, x):
    """Five levels d0 .. d4 of two convolutions; dropout in the last two. Returns what each level passes on."""
    levels = []
    for i, width in enumerate(WIDTHS):
        if i:
            n[f"d{i}a"] = x = L.Pooling(x, name=f"pool_d{i - 1}c-{i}a", pool="MAX", kernel_size=2, stride=2)
        x = conv_relu(n, conv_relu(n, x, f"d{i}", "a", "b", width), f"d{i}", "b", "c", width)
        if i >= 3:
            n[f"dropout_d{i}c"] = x = L.Dropout(x, dropout_ratio=0.5, in_place=True)
        levels.append(x)
    return levels


def up(n: NetSpec, x, below: str, i: int, skip):
    """Level u<i>: enlarge, join what level d<i> passed on (cut to size), convolve twice."""
    width = WIDTHS[i]
    n[f"u{i}a"] = L.Deconvolution(
        x,
        name=f"upconv_{below}_u{i}a",
        convolution_param={
            "num_output": width,
            "kernel_size": 2,
            "stride": 2,
            "weight_filler": MSRA,
            "bias_filler": ZEROS,
        },
        **FILLED,
    )
    n[f"relu_u{i}a"] = L.ReLU(n[f"u{i}a"], in_place=True)
    n[f"d{i}cc"] = L.Crop(skip, n[f"relu_u{i}a"], name=f"crop_d{i}c-d{i}cc", axis=2, offset=CUT[i])
    n[f"u{i}b"] = L.Concat(n[f"relu_u{i}a"], n[f"d{i}cc"], name=f"concat_d{i}cc_u{i}a-b")
    x = conv_relu(n, n[f"u{i}b"], f"u{i}", "b", "c", width)
    return conv_relu(n, x, f"u{i}", "c", "d", width)


# What is cut off each side of d<i>c: half of how much smaller u<i>a is (64 to 56, 136 to 104, 280 to 200, 568 to 392)
CUT = {3: 4, 2: 16, 1: 40, 0: 88}


def body(n: NetSpec):
    """conv_d0a-b .. conv_u0d-score after n.data; returns the scores, 2 for each pixel."""
    levels = down(n, n.data)
    x, below = levels[-1], "d4c"
    for i in (3, 2, 1, 0):
        x = up(n, x, below, i, levels[i])
        below = f"u{i}d"
    n.score = L.Convolution(
        x, name="conv_u0d-score", num_output=2, kernel_size=1, weight_filler=MSRA, bias_filler=ZEROS, **FILLED
    )
    return n.score


def hdf5_layers(n: NetSpec, folder: str, batch: int) -> None:
    """HDF5Data for both phases: train.txt and test.txt in `folder` list the files; tops "data" and "label"."""
    common = {"name": "data", "batch_size": batch}
    train, test = (
        {"include": {"phase": p}, "source": f"{folder}/{f}.txt", **common}
        for p, f in (("TRAIN", "train"), ("TEST", "test"))
    )
    n.data, n.label = L.HDF5Data(ntop=2, shuffle=True, **train)
    n["data of TEST"] = L.HDF5Data(ntop=0, top=["data", "label"], **test)


def train_val() -> NetSpec:
    n = NetSpec()
    hdf5_layers(n, "data/cells", 1)
    n.loss = L.SoftmaxWithLoss(body(n), n.label, loss_param={"ignore_label": 2})
    n.accuracy = L.Accuracy(n.score, n.label, ignore_label=2, include={"phase": "TEST"})
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 1, 572, 572)
    n.prob = L.Softmax(body(n))
    return n


MODELS = (
    Model(
        FOLDER,
        {"data": (1, 1, 572, 572), "label": (1, 1, 388, 388)},
        {"data": (1, 1, 188, 188), "label": (1, 1, 4, 4)},
        classes=2,
        narrow=("conv_d3a-b", "conv_d3b-c", "conv_d4a-b", "conv_d4b-c"),
    ),
)


def files() -> dict[str, str]:
    return {
        f"{FOLDER}/train_val.prototxt": net_text("unet", TITLE, train_val()),
        f"{FOLDER}/deploy.prototxt": net_text("unet", TITLE, deploy()),
        f"{FOLDER}/solver.prototxt": folder_solver(
            "unet",
            FOLDER,
            "One large tile at a time under a high momentum, as in the paper.",
            test_iter=10,
            test_interval=1000,
            test_initialization=False,
            base_lr=0.0001,
            lr_policy="fixed",
            momentum=0.99,
            weight_decay=0.0005,
            display=20,
            average_loss=20,
            max_iter=60000,
            snapshot=5000,
        ),
    }
