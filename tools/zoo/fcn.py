"""FCN-8s for Pascal VOC with the names of the authors' weights: VGG-16 as convolutions, and scores of three stages."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L
from pycaffe_lms.net_spec import params as P

from .catalogue import Model
from .parts import XAVIER, ZEROS, folder_solver, input_layer, weight_and_bias
from .text import net_text
from .vgg import convolutions

CLASSES = 21
RATES = weight_and_bias(decay=(1, 0))
MEAN = [104.00699, 116.66877, 122.67892]


def score(n: NetSpec, bottom, name: str):
    """Scores of the classes; weights start at zero."""
    n[name] = L.Convolution(
        bottom, num_output=CLASSES, kernel_size=1, param=RATES, weight_filler=ZEROS, bias_filler=ZEROS
    )
    return n[name]


def upscore(n: NetSpec, bottom, name: str, kernel_size: int, stride: int):
    """Enlarge the scores of each class by bilinear interpolation, which is not learned: blob `name`.

    The layer has a name of its own. The public weights hold the same interpolation as a 21 x 21 matrix of windows,
    zero beside the diagonal; under another name they stay out, and the filler makes equal values.
    """
    n[name] = L.Deconvolution(
        bottom,
        name=f"{name}_bilinear",
        param={"lr_mult": 0},
        convolution_param={
            "num_output": CLASSES,
            "group": CLASSES,
            "bias_term": False,
            "kernel_size": kernel_size,
            "stride": stride,
            "weight_filler": {"type": "bilinear"},
        },
    )
    return n[name]


def fuse(n: NetSpec, up, stage: int, offset: int):
    """Add the scores of pool<stage>, cut to the size of `up`."""
    name = f"score_pool{stage}"
    n[f"{name}c"] = L.Crop(score(n, n[f"pool{stage}"], name), up, axis=2, offset=offset)
    n[f"fuse_pool{stage}"] = L.Eltwise(up, n[f"{name}c"], operation="SUM")
    return n[f"fuse_pool{stage}"]


def body(n: NetSpec):
    """conv1_1 .. score after n.data; returns the scores, 21 for each pixel."""
    x = convolutions(n, 16, first_pad=100)
    for i, window in ((6, 7), (7, 1)):
        n[f"fc{i}"] = L.Convolution(
            x, num_output=4096, kernel_size=window, param=RATES, weight_filler=XAVIER, bias_filler=ZEROS
        )
        n[f"relu{i}"] = L.ReLU(n[f"fc{i}"], in_place=True)
        n[f"drop{i}"] = x = L.Dropout(n[f"relu{i}"], dropout_ratio=0.5, in_place=True)
    x = fuse(n, upscore(n, score(n, x, "score_fr"), "upscore2", 4, 2), 4, 5)
    x = fuse(n, upscore(n, x, "upscore_pool4", 4, 2), 3, 9)
    n.score = L.Crop(upscore(n, x, "upscore8", 16, 8), n.data, axis=2, offset=31)
    return n.score


def train_val() -> NetSpec:
    """Pictures and their labels lie in two databases, in the same order; every picture may have its own size."""
    n = NetSpec()
    phases = (("TRAIN", "train"), ("TEST", "val"))
    for top, kind, transform in (("data", "", {"mean_value": MEAN}), ("label", "_labels", None)):
        for phase, part in phases:
            fields = {
                "name": top,
                "include": {"phase": phase},
                **({"transform_param": transform} if transform else {}),
                "source": f"data/voc/{part}{kind}_lmdb",
                "batch_size": 1,
                "backend": P.Data.LMDB,
            }
            if phase == "TRAIN":
                n[top] = L.Data(**fields)
            else:
                n[f"{top} of TEST"] = L.Data(ntop=0, top=[top], **fields)
    n.loss = L.SoftmaxWithLoss(body(n), n.label, loss_param={"ignore_label": 255, "normalize": False})
    n.accuracy = L.Accuracy(n.score, n.label, ignore_label=255, include={"phase": "TEST"})
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 3, 500, 500)
    body(n)
    return n


MODELS = (
    Model(
        "fcn-8s",
        {"data": (1, 3, 500, 500), "label": (1, 1, 500, 500)},
        {"data": (1, 3, 32, 24), "label": (1, 1, 32, 24)},
        classes=CLASSES,
        narrow=("fc6", "fc7"),
    ),
)


def files() -> dict[str, str]:
    return {
        "fcn-8s/train_val.prototxt": net_text("fcn", "FCN-8s-VOC", train_val()),
        "fcn-8s/deploy.prototxt": net_text("fcn", "FCN-8s-VOC", deploy()),
        "fcn-8s/solver.prototxt": folder_solver(
            "fcn",
            "fcn-8s",
            "The loss is summed over the pixels of a picture, hence the rate. Start from weights: see README.md.",
            test_iter=736,
            test_interval=4000,
            test_initialization=False,
            base_lr=1e-10,
            lr_policy="fixed",
            momentum=0.99,
            weight_decay=0.0005,
            display=20,
            average_loss=20,
            max_iter=100000,
            snapshot=4000,
        ),
    }
