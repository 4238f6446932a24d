"""A small SSD that learns to find drawn shapes on a CPU in about a minute: `pycaffe-lms dataset shapes`."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import MSRA, XAVIER, ZEROS, batch_norm, folder_solver, input_layer, relu, weight_and_bias
from .ssd import annotated_layers, detections, evaluation, head, loss
from .text import net_text

FOLDER, TITLE, CLASSES, SIDE = "shapes_ssd", "ShapesSSD", 4, 96
FILLED = {"param": weight_and_bias(decay=(1, 0)), "weight_filler": XAVIER, "bias_filler": ZEROS}
WIDTHS = (16, 32, 64, 64)
# Shapes are 16 to 48 pixels wide, and as high: squares alone would do, ratio 2 is for what is half hidden
PRIORS = {"relu3": (20.0, 30.0, [2], 8), "relu4": (36.0, 48.0, [2], 16)}


def body(n: NetSpec) -> None:
    """conv1 .. relu4 after n.data: convolutions with normalisation, each of half its bottom's height and width."""
    x = n.data
    for i, width in enumerate(WIDTHS, 1):
        n[f"conv{i}"] = L.Convolution(
            x,
            num_output=width,
            kernel_size=3,
            pad=1,
            stride=2,
            bias_term=False,
            param=[{"lr_mult": 1, "decay_mult": 1}],
            weight_filler=MSRA,
        )
        x = relu(n, batch_norm(n, n[f"conv{i}"], f"bn{i}", f"scale{i}"), f"relu{i}")


def train_val() -> NetSpec:
    n = NetSpec()
    seen = {"mean_value": [128, 128, 128], "scale": 1 / 64}
    annotated_layers(
        n,
        ("data/shapes/shapes_train_lmdb", "data/shapes/shapes_test_lmdb"),
        "data/shapes/labelmap.prototxt",
        (16, 20),
        train={**seen, "mirror": True},
        test=seen,
        samplers=(),
    )
    body(n)
    head(n, PRIORS, CLASSES, FILLED)
    loss(n, CLASSES)
    evaluation(n, CLASSES)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 3, SIDE, SIDE)
    body(n)
    head(n, PRIORS, CLASSES, FILLED)
    detections(n, CLASSES)
    return n


MODELS = (
    Model(
        FOLDER,
        {"data": (16, 3, SIDE, SIDE), "label": (1, 1, 48, 8)},
        {"data": (2, 3, SIDE, SIDE), "label": (1, 1, 100, 8)},
        classes=CLASSES,
    ),
)


def files() -> dict[str, str]:
    return {
        f"{FOLDER}/train_val.prototxt": net_text("shapes_ssd", TITLE, train_val()),
        f"{FOLDER}/deploy.prototxt": net_text("shapes_ssd", TITLE, deploy()),
        f"{FOLDER}/solver.prototxt": folder_solver(
            "shapes_ssd",
            FOLDER,
            "20 test batches of 20 are the 400 test pictures.",
            test_iter=20,
            test_interval=100,
            eval_type="detection",
            ap_version="11point",
            base_lr=0.01,
            lr_policy="multistep",
            gamma=0.1,
            stepvalue=[600],
            momentum=0.9,
            weight_decay=0.0005,
            display=100,
            average_loss=20,
            max_iter=800,
            snapshot=400,
            random_seed=1701,
        ),
    }
