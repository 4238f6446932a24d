"""CaffeNet (AlexNet with pooling before normalisation), and two nets that are fine-tuned from it."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .alexnet import conv_relu, fc, pool, relu_drop
from .catalogue import image_net
from .parts import classifier_end, constant, folder_solver, gaussian, ilsvrc_layers, input_layer, weight_and_bias
from .text import net_text

MEAN = "data/ilsvrc12/imagenet_mean.binaryproto"
FASTER = [{"lr_mult": 10, "decay_mult": 1}, {"lr_mult": 20, "decay_mult": 0}]  # of a layer that starts anew


def pool_norm(n: NetSpec, i: int, bottom):
    """pool<i> and norm<i>."""
    n[f"norm{i}"] = L.LRN(pool(n, i, bottom), local_size=5, alpha=0.0001, beta=0.75)
    return n[f"norm{i}"]


def features(n: NetSpec):
    """conv1 .. drop7 after n.data: 4096 numbers a picture."""
    x = pool_norm(n, 1, conv_relu(n, 1, n.data, 96, 11, 0, stride=4))
    x = pool_norm(n, 2, conv_relu(n, 2, x, 256, 5, 1, pad=2, group=2))
    x = conv_relu(n, 3, x, 384, 3, 0, pad=1)
    x = conv_relu(n, 4, x, 384, 3, 1, pad=1, group=2)
    x = pool(n, 5, conv_relu(n, 5, x, 256, 3, 1, pad=1, group=2))
    x = relu_drop(n, 6, fc(n, 6, x, 4096, 0.005, 1))
    return relu_drop(n, 7, fc(n, 7, x, 4096, 0.005, 1))


def scores(n: NetSpec, name: str, classes: int, param):
    n[name] = L.InnerProduct(
        features(n), num_output=classes, param=param, weight_filler=gaussian(0.01), bias_filler=constant(0)
    )
    return n[name]


def body(n: NetSpec):
    return scores(n, "fc8", 1000, weight_and_bias(decay=(1, 0)))


def style(n: NetSpec):
    return scores(n, "fc8_flickr", 20, FASTER)


def regions(n: NetSpec):
    return scores(n, "fc8_ilsvrc13", 201, FASTER)


def caffenet() -> NetSpec:
    n = NetSpec()
    ilsvrc_layers(n, batches=(256, 50), size=227, mean_file=MEAN)
    classifier_end(n, body(n))
    return n


def both_phases(n: NetSpec, layer, **by_phase) -> None:
    """A data layer `data` for each phase; by_phase: TRAIN=fields, TEST=fields."""
    common = {"name": "data"}
    n.data, n.label = layer(include={"phase": "TRAIN"}, ntop=2, **common, **by_phase["TRAIN"])
    n["data of TEST"] = layer(include={"phase": "TEST"}, ntop=0, top=["data", "label"], **common, **by_phase["TEST"])


def flickr_style() -> NetSpec:
    n = NetSpec()

    def pictures(listed, mirror, **more):
        transform = {"mirror": mirror, "crop_size": 227, "mean_file": MEAN}
        source = f"data/flickr_style/{listed}.txt"
        return {
            "transform_param": transform,
            "source": source,
            "batch_size": 50,
            "new_height": 256,
            "new_width": 256,
            **more,
        }

    both_phases(n, L.ImageData, TRAIN=pictures("train", True, shuffle=True), TEST=pictures("test", False))
    classifier_end(n, style(n))
    return n


def rcnn() -> NetSpec:
    n = NetSpec()

    def windows(listed):
        return {
            "transform_param": {"mirror": True, "crop_size": 227, "mean_file": MEAN},
            "source": f"data/ilsvrc13/window_file_{listed}.txt",
            "batch_size": 128,
            "fg_threshold": 0.5,
            "bg_threshold": 0.5,
            "fg_fraction": 0.25,
            "context_pad": 16,
            "crop_mode": "warp",
        }

    both_phases(n, L.WindowData, TRAIN=windows("train"), TEST=windows("val"))
    classifier_end(n, regions(n))
    return n


def deploy(make) -> NetSpec:
    n = NetSpec()
    input_layer(n, 10, 3, 227, 227)
    n.prob = L.Softmax(make(n))
    return n


def rcnn_deploy() -> NetSpec:
    """Ends in fc-rcnn, the scores of 200 linear classifiers."""
    n = NetSpec()
    input_layer(n, 10, 3, 227, 227)
    scores(n, "fc-rcnn", 200, weight_and_bias(decay=(1, 0)))
    return n


NARROW = {"narrow": ("fc6", "fc7")}
MODELS = (
    image_net("caffenet", 256, 227, 67, **NARROW),
    image_net("flickr_style", 50, 227, 67, classes=20, **NARROW),
    image_net("rcnn_ilsvrc13", 128, 227, 67, classes=201, item="window", **NARROW),
)
STEP = {"lr_policy": "step", "gamma": 0.1, "momentum": 0.9, "weight_decay": 0.0005, "display": 20, "snapshot": 10000}
TUNE = "Fine-tuning: a low rate for the layers that keep their weights, ten times as much for the new one."


def files() -> dict[str, str]:
    return {
        "caffenet/train_val.prototxt": net_text("caffenet", "CaffeNet", caffenet()),
        "caffenet/deploy.prototxt": net_text("caffenet", "CaffeNet", deploy(body)),
        "caffenet/solver.prototxt": folder_solver(
            "caffenet",
            "caffenet",
            test_iter=1000,
            test_interval=1000,
            base_lr=0.01,
            stepsize=100000,
            max_iter=450000,
            **STEP,
        ),
        "flickr_style/train_val.prototxt": net_text("caffenet", "FlickrStyleCaffeNet", flickr_style()),
        "flickr_style/deploy.prototxt": net_text("caffenet", "FlickrStyleCaffeNet", deploy(style)),
        "flickr_style/solver.prototxt": folder_solver(
            "caffenet",
            "flickr_style",
            TUNE,
            test_iter=100,
            test_interval=1000,
            base_lr=0.001,
            stepsize=20000,
            max_iter=100000,
            **STEP,
        ),
        "rcnn_ilsvrc13/train_val.prototxt": net_text("caffenet", "R-CNN-ilsvrc13", rcnn()),
        "rcnn_ilsvrc13/deploy.prototxt": net_text("caffenet", "R-CNN-ilsvrc13", rcnn_deploy()),
        "rcnn_ilsvrc13/solver.prototxt": folder_solver(
            "caffenet",
            "rcnn_ilsvrc13",
            TUNE,
            test_iter=100,
            test_interval=1000,
            base_lr=0.001,
            stepsize=20000,
            max_iter=50000,
            **STEP,
        ),
    }
