"""DCGAN for pictures of 64 x 64: a generator and a discriminator as two nets, trained in turn (see its README.md)."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import batch_norm, gaussian, relu
from .text import net_text, solver_text

FOLDER, BATCH, CODE, WIDTH = "dcgan", 128, 100, 64
RATE = "The same rate and momentum for both nets."


def shape(num_output: int, stride: int, pad: int) -> dict:
    return {
        "num_output": num_output,
        "kernel_size": 4,
        "stride": stride,
        "pad": pad,
        "bias_term": False,
        "weight_filler": gaussian(0.02),
    }


def generator(batch: int = BATCH) -> NetSpec:
    """Numbers z (N, 100, 1, 1) to pictures `image` (N, 3, 64, 64) from -1 to 1."""
    n = NetSpec()
    n.z = L.Input(shape={"dim": [batch, CODE, 1, 1]})
    x = n.z
    for i, width in enumerate((8 * WIDTH, 4 * WIDTH, 2 * WIDTH, WIDTH), 1):
        n[f"deconv{i}"] = L.Deconvolution(x, convolution_param=shape(width, 2 if i > 1 else 1, 1 if i > 1 else 0))
        x = relu(n, batch_norm(n, n[f"deconv{i}"], f"bn{i}", f"scale{i}"), f"relu{i}")
    n.deconv5 = L.Deconvolution(x, convolution_param=shape(3, 2, 1))
    n.image = L.TanH(n.deconv5)
    return n


def discriminator() -> NetSpec:
    """Pictures `data` and whether they are real (N, 1): the score, and its loss."""
    n = NetSpec()
    n.data = L.Input(shape={"dim": [BATCH, 3, 64, 64]})
    n.real = L.Input(shape={"dim": [BATCH, 1, 1, 1]})
    x = n.data
    for i, width in enumerate((WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH), 1):
        n[f"conv{i}"] = x = L.Convolution(x, **shape(width, 2, 1))
        if i > 1:
            x = batch_norm(n, x, f"bn{i}", f"scale{i}")
        n[f"relu{i}"] = x = L.ReLU(x, negative_slope=0.2, in_place=True)
    n.score = L.Convolution(x, **shape(1, 1, 0))
    n.loss = L.SigmoidCrossEntropyLoss(n.score, n.real)
    return n


MODELS = (
    Model(FOLDER, {"z": (BATCH, CODE, 1, 1)}, {"z": (2, CODE, 1, 1)}, classes=None, file="generator"),
    Model(
        FOLDER,
        {"data": (BATCH, 3, 64, 64), "real": (BATCH, 1, 1, 1)},
        {"data": (2, 3, 64, 64), "real": (2, 1, 1, 1)},
        classes=None,
        file="discriminator",
    ),
)


def files() -> dict[str, str]:
    out = {f"{FOLDER}/deploy.prototxt": net_text("dcgan", "DCGAN", generator(1))}
    for make in (generator, discriminator):
        name = make.__name__
        # The generator learns from the gradient of the discriminator's pictures.
        spec = net_text("dcgan", f"DCGAN-{name}", make())
        out[f"{FOLDER}/{name}.prototxt"] = spec + "force_backward: true\n"
        out[f"{FOLDER}/{name}_solver.prototxt"] = solver_text(
            "dcgan",
            RATE,
            net=f"models/{FOLDER}/{name}.prototxt",
            base_lr=0.0002,
            lr_policy="fixed",
            momentum=0.5,
            max_iter=100000,
            snapshot_prefix=f"models/{FOLDER}/{name}",
        )
    return out
