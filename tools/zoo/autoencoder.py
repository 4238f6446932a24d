"""An autoencoder of MNIST's digits: 784-1000-500-250-30 and back, logistic units, two losses, two test nets."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L
from pycaffe_lms.net_spec import params as P

from .catalogue import Model
from .parts import constant, input_layer
from .text import net_text, solver_text

FILLED = {
    "param": [{"lr_mult": 1, "decay_mult": 1}, {"lr_mult": 1, "decay_mult": 0}],
    "weight_filler": {"type": "gaussian", "std": 1, "sparse": 15},
    "bias_filler": constant(0),
}
ENCODER = (("encode1", 1000), ("encode2", 500), ("encode3", 250), ("encode4", 30))
DECODER = (("decode4", 250), ("decode3", 500), ("decode2", 1000), ("decode1", 784))


def chain(n: NetSpec, x, layers):
    """Inner products, each with a logistic unit <name>neuron; the last one without. Returns the last product."""
    for name, width in layers:
        n[name] = x = L.InnerProduct(x, num_output=width, **FILLED)
        if name != layers[-1][0]:
            n[f"{name}neuron"] = x = L.Sigmoid(x)
    return x


def data(source: str, include: dict, **more):
    return L.Data(
        name="data",
        include=include,
        transform_param={"scale": 1 / 255},
        source=f"data/mnist/{source}",
        batch_size=100,
        backend=P.Data.LMDB,
        **more,
    )


def train_val() -> NetSpec:
    n = NetSpec()
    n.data = data("mnist_train_lmdb", {"phase": "TRAIN"})
    for stage, source in (("test-on-train", "mnist_train_lmdb"), ("test-on-test", "mnist_test_lmdb")):
        n[f"data of {stage}"] = data(source, {"phase": "TEST", "stage": stage}, ntop=0, top=["data"])
    n.flatdata = L.Flatten(n.data)
    decoded = chain(n, chain(n, n.data, ENCODER), DECODER)
    n.cross_entropy_loss = L.SigmoidCrossEntropyLoss(decoded, n.flatdata, name="loss", loss_weight=1)
    n.decode1neuron = L.Sigmoid(decoded)
    n.l2_error = L.EuclideanLoss(n.decode1neuron, n.flatdata, name="l2_error", loss_weight=0)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 1, 28, 28)
    n.decode1neuron = L.Sigmoid(chain(n, chain(n, n.data, ENCODER), DECODER))
    return n


MODELS = (Model("mnist_autoencoder", {"data": (100, 1, 28, 28)}, {"data": (4, 1, 28, 28)}, classes=None),)


def files() -> dict[str, str]:
    folder, title = "mnist_autoencoder", "MNISTAutoencoder"
    solver = solver_text(
        "autoencoder",
        "Two test nets: how well the training digits come back, and how well new ones do.",
        net=f"models/{folder}/train_val.prototxt",
        test_state=[{"stage": "test-on-train"}, {"stage": "test-on-test"}],
        test_iter=[500, 100],
        test_interval=500,
        test_compute_loss=True,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=10000,
        momentum=0.9,
        weight_decay=0.0005,
        display=100,
        max_iter=65000,
        snapshot=10000,
        snapshot_prefix=f"models/{folder}/{folder}",
    )
    return {
        f"{folder}/train_val.prototxt": net_text("autoencoder", title, train_val()),
        f"{folder}/deploy.prototxt": net_text("autoencoder", title, deploy()),
        f"{folder}/solver.prototxt": solver,
    }
