"""SSD300 (single shot detector) with VGG-16, with the layer names of the public weights; heads for any SSD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import XAVIER, ZEROS, constant, folder_solver, input_layer, weight_and_bias
from .text import net_text
from .vgg import convolutions

FOLDER, TITLE, CLASSES, SIZE = "ssd-300", "VGG_VOC0712_SSD_300x300", 21, 300
FILLED = {"param": weight_and_bias(decay=(1, 0)), "weight_filler": XAVIER, "bias_filler": ZEROS}
EXTRA = ((6, 256, 512, 2), (7, 128, 256, 2), (8, 128, 256, 1), (9, 128, 256, 1))  # number, widths, stride
# Feature map: smallest and largest side of its default boxes in pixels, their aspect ratios, the distance of centres
PRIORS = {
    "conv4_3_norm": (30.0, 60.0, [2], 8),
    "fc7": (60.0, 111.0, [2, 3], 16),
    "conv6_2": (111.0, 162.0, [2, 3], 32),
    "conv7_2": (162.0, 213.0, [2, 3], 64),
    "conv8_2": (213.0, 264.0, [2], 100),
    "conv9_2": (264.0, 315.0, [2], 300),
}
OVERLAPS = ({"min_jaccard_overlap": o} for o in (0.1, 0.3, 0.5, 0.7, 0.9))
WHOLE = {"max_sample": 1, "max_trials": 1}
CROP = {"min_scale": 0.3, "max_scale": 1.0, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
SAMPLERS = [WHOLE] + [
    {"sampler": CROP, "sample_constraint": constraint, "max_sample": 1, "max_trials": 50}
    for constraint in (*OVERLAPS, {"max_jaccard_overlap": 1.0})
]
DISTORT = {
    "brightness_prob": 0.5,
    "brightness_delta": 32,
    "contrast_prob": 0.5,
    "contrast_lower": 0.5,
    "contrast_upper": 1.5,
    "hue_prob": 0.5,
    "hue_delta": 18,
    "saturation_prob": 0.5,
    "saturation_lower": 0.5,
    "saturation_upper": 1.5,
    "random_order_prob": 0.0,
}
MODES = ["LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4"]


def annotated_layers(
    n: NetSpec,
    sources: tuple[str, str],
    label_map: str,
    batches: tuple[int, int],
    *,
    train: Mapping[str, object],
    test: Mapping[str, object],
    samplers: Sequence[Mapping[str, object]],
) -> None:
    """AnnotatedData for training and for testing: tops data and label. train, test: their transform_params; samplers:
    of the crops that training draws."""

    def data(phase, source, batch, transform, drawn, **more):
        return L.AnnotatedData(
            name="data",
            include={"phase": phase},
            transform_param=transform,
            data_param={"source": source, "batch_size": batch, "backend": "LMDB"},
            annotated_data_param={**({"batch_sampler": drawn} if drawn else {}), "label_map_file": label_map},
            **more,
        )

    n.data, n.label = data("TRAIN", sources[0], batches[0], train, list(samplers), ntop=2)
    n["data of TEST"] = data("TEST", sources[1], batches[1], test, (), ntop=0, top=["data", "label"])


def head(n: NetSpec, priors: Mapping[str, tuple], classes: int, filled: Mapping[str, object]) -> None:
    """mbox_loc, mbox_conf and mbox_priorbox: what each feature map in `priors` predicts for its default boxes."""
    tops: dict[str, list] = {"loc": [], "conf": [], "priorbox": []}
    for source, (smallest, largest, ratios, step) in priors.items():
        boxes = 2 + 2 * len(ratios)  # a small and a large square, each ratio and its inverse
        for kind, numbers in (("loc", 4), ("conf", classes)):
            name = f"{source}_mbox_{kind}"
            n[name] = L.Convolution(n[source], num_output=boxes * numbers, pad=1, kernel_size=3, stride=1, **filled)
            n[f"{name}_perm"] = L.Permute(n[name], order=[0, 2, 3, 1])
            n[f"{name}_flat"] = L.Flatten(n[f"{name}_perm"], axis=1)
            tops[kind].append(n[f"{name}_flat"])
        n[f"{source}_mbox_priorbox"] = L.PriorBox(
            n[source],
            n.data,
            min_size=smallest,
            max_size=largest,
            aspect_ratio=ratios,
            flip=True,
            clip=False,
            variance=[0.1, 0.1, 0.2, 0.2],
            step=step,
            offset=0.5,
        )
        tops["priorbox"].append(n[f"{source}_mbox_priorbox"])
    n.mbox_loc = L.Concat(*tops["loc"], axis=1)
    n.mbox_conf = L.Concat(*tops["conf"], axis=1)
    n.mbox_priorbox = L.Concat(*tops["priorbox"], axis=2)


def loss(n: NetSpec, classes: int) -> None:
    """mbox_loss, in training alone."""
    n.mbox_loss = L.MultiBoxLoss(
        n.mbox_loc,
        n.mbox_conf,
        n.mbox_priorbox,
        n.label,
        include={"phase": "TRAIN"},
        propagate_down=[True, True, False, False],
        loss_param={"normalization": "VALID"},
        loc_loss_type="SMOOTH_L1",
        conf_loss_type="SOFTMAX",
        loc_weight=1.0,
        num_classes=classes,
        share_location=True,
        match_type="PER_PREDICTION",
        overlap_threshold=0.5,
        use_prior_for_matching=True,
        background_label_id=0,
        use_difficult_gt=True,
        neg_pos_ratio=3.0,
        neg_overlap=0.5,
        code_type="CENTER_SIZE",
        ignore_cross_boundary_bbox=False,
        mining_type="MAX_NEGATIVE",
    )


def detections(n: NetSpec, classes: int, **include) -> None:
    """detection_out: probabilities of the classes, then suppression of boxes that overlap better ones."""
    n.mbox_conf_reshape = L.Reshape(n.mbox_conf, shape={"dim": [0, -1, classes]}, **include)
    n.mbox_conf_softmax = L.Softmax(n.mbox_conf_reshape, axis=2, **include)
    n.mbox_conf_flatten = L.Flatten(n.mbox_conf_softmax, axis=1, **include)
    n.detection_out = L.DetectionOutput(
        n.mbox_loc,
        n.mbox_conf_flatten,
        n.mbox_priorbox,
        num_classes=classes,
        share_location=True,
        background_label_id=0,
        nms_param={"nms_threshold": 0.45, "top_k": 400},
        code_type="CENTER_SIZE",
        keep_top_k=200,
        confidence_threshold=0.01,
        **include,
    )


def evaluation(n: NetSpec, classes: int) -> None:
    """detection_out and detection_eval, in tests alone."""
    test = {"include": {"phase": "TEST"}}
    detections(n, classes, **test)
    n.detection_eval = L.DetectionEvaluate(
        n.detection_out,
        n.label,
        num_classes=classes,
        background_label_id=0,
        overlap_threshold=0.5,
        evaluate_difficult_gt=False,
        **test,
    )


def body(n: NetSpec) -> None:
    """conv1_1 .. conv9_2 after n.data, and conv4_3_norm: VGG-16 whose fc6 and fc7 are convolutions, and four pairs."""
    x = convolutions(n, 16, pool5={"kernel_size": 3, "stride": 1, "pad": 1})
    n.fc6 = L.Convolution(x, num_output=1024, pad=6, kernel_size=3, dilation=6, **FILLED)
    n.relu6 = L.ReLU(n.fc6, in_place=True)
    n.fc7 = L.Convolution(n.relu6, num_output=1024, kernel_size=1, **FILLED)
    n.relu7 = x = L.ReLU(n.fc7, in_place=True)
    for i, narrow, wide, stride in EXTRA:
        pad = int(stride == 2)
        for j, window in ((1, {"kernel_size": 1}), (2, {"kernel_size": 3, "pad": pad, "stride": stride})):
            n[f"conv{i}_{j}"] = L.Convolution(x, num_output=wide if j == 2 else narrow, **window, **FILLED)
            n[f"conv{i}_{j}_relu"] = x = L.ReLU(n[f"conv{i}_{j}"], in_place=True)
    n.conv4_3_norm = L.Normalize(n.relu4_3, across_spatial=False, scale_filler=constant(20), channel_shared=False)


def train_val() -> NetSpec:
    n = NetSpec()
    seen = {"mean_value": [104, 117, 123]}
    resize = {"prob": 1, "resize_mode": "WARP", "height": SIZE, "width": SIZE}
    annotated_layers(
        n,
        ("data/VOC0712/VOC0712_trainval_lmdb", "data/VOC0712/VOC0712_test_lmdb"),
        "data/VOC0712/labelmap_voc.prototxt",
        (32, 8),
        train={
            **seen,
            "mirror": True,
            "resize_param": resize | {"interp_mode": MODES},
            "emit_constraint": {"emit_type": "CENTER"},
            "distort_param": DISTORT,
            "expand_param": {"prob": 0.5, "max_expand_ratio": 4.0},
        },
        test={**seen, "resize_param": resize | {"interp_mode": ["LINEAR"]}},
        samplers=SAMPLERS,
    )
    body(n)
    head(n, PRIORS, CLASSES, FILLED)
    loss(n, CLASSES)
    evaluation(n, CLASSES)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 3, SIZE, SIZE)
    body(n)
    head(n, PRIORS, CLASSES, FILLED)
    detections(n, CLASSES)
    return n


MODELS = (
    Model(
        FOLDER,
        {"data": (32, 3, SIZE, SIZE), "label": (1, 1, 64, 8)},
        {"data": (1, 3, SIZE, SIZE), "label": (1, 1, 100, 8)},
        classes=CLASSES,
        narrow=("conv1_1", "conv1_2", "conv2_1", "conv2_2", "conv3_1", "conv3_2", "conv3_3", "fc6", "fc7"),
    ),
)


def files() -> dict[str, str]:
    return {
        f"{FOLDER}/train_val.prototxt": net_text("ssd", TITLE, train_val()),
        f"{FOLDER}/deploy.prototxt": net_text("ssd", TITLE, deploy()),
        f"{FOLDER}/solver.prototxt": folder_solver(
            "ssd",
            FOLDER,
            "619 test batches of 8 are the 4,952 pictures of VOC2007's test set.",
            test_iter=619,
            test_interval=10000,
            test_initialization=False,
            eval_type="detection",
            ap_version="11point",
            base_lr=0.001,
            lr_policy="multistep",
            gamma=0.1,
            stepvalue=[80000, 100000],
            momentum=0.9,
            weight_decay=0.0005,
            display=10,
            average_loss=10,
            max_iter=120000,
            snapshot=20000,
        ),
    }
