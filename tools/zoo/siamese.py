"""Two LeNets with one set of weights: pairs of digits come near each other where they are the same."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import XAVIER, ZEROS, folder_solver, input_layer, lmdb_layers
from .text import net_text

FOLDER, TITLE = "mnist_siamese", "mnist_siamese"


def tower(n: NetSpec, data, suffix: str = "", *, shared: bool = True):
    """conv1 .. feat; layers end in `suffix`. shared: weights have names, under which the other tower finds them."""

    def named(name):
        names = ({"name": f"{name}_w"}, {"name": f"{name}_b"}) if shared else ({}, {})
        rates = [{**names[0], "lr_mult": 1}, {**names[1], "lr_mult": 2}]
        return {"param": rates, "weight_filler": XAVIER, "bias_filler": ZEROS}

    def conv(name, bottom, num_output):
        n[name + suffix] = L.Convolution(bottom, num_output=num_output, kernel_size=5, stride=1, **named(name))
        return n[name + suffix]

    def pool(name, bottom):
        n[name + suffix] = L.Pooling(bottom, pool="MAX", kernel_size=2, stride=2)
        return n[name + suffix]

    def ip(name, bottom, num_output):
        n[name + suffix] = L.InnerProduct(bottom, num_output=num_output, **named(name))
        return n[name + suffix]

    x = pool("pool1", conv("conv1", data, 20))
    x = ip("ip1", pool("pool2", conv("conv2", x, 50)), 500)
    n[f"relu1{suffix}"] = x = L.ReLU(x, in_place=True)
    return ip("feat", ip("ip2", x, 10), 2)


def train_val() -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n,
        "pair_data",
        "data/mnist",
        train="mnist_siamese_train_lmdb",
        test="mnist_siamese_test_lmdb",
        batches=(64, 100),
        tops=("pair_data", "sim"),
        scale=1 / 256,
    )
    n.data, n.data_p = L.Slice(n.pair_data, name="slice_pair", axis=1, slice_point=1, ntop=2)
    n.loss = L.ContrastiveLoss(tower(n, n.data), tower(n, n.data_p, "_p"), n.sim, margin=1)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 1, 28, 28)
    tower(n, n.data, shared=False)
    return n


MODELS = (Model(FOLDER, {"pair_data": (64, 2, 28, 28)}, {"pair_data": (4, 2, 28, 28)}, classes=2, item="pair"),)


def files() -> dict[str, str]:
    return {
        f"{FOLDER}/train_val.prototxt": net_text("siamese", TITLE, train_val()),
        f"{FOLDER}/deploy.prototxt": net_text("siamese", TITLE, deploy()),
        f"{FOLDER}/solver.prototxt": folder_solver(
            "siamese",
            FOLDER,
            test_iter=100,
            test_interval=500,
            base_lr=0.01,
            lr_policy="inv",
            gamma=0.0001,
            power=0.75,
            momentum=0.9,
            weight_decay=0,
            display=100,
            max_iter=50000,
            snapshot=5000,
        ),
    }
