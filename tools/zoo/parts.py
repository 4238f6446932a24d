"""What the families share: data layers for both phases, fillers, ParamSpecs, the ends of a classifier."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L
from pycaffe_lms.net_spec import params as P

XAVIER = {"type": "xavier"}
MSRA = {"type": "msra"}
ZEROS = {"type": "constant"}


def gaussian(std: float) -> dict:
    return {"type": "gaussian", "std": std}


def constant(value: float) -> dict:
    return {"type": "constant", "value": value}


def weight_and_bias(decay: tuple | None = None) -> list[dict]:
    """ParamSpecs of a weight (lr x 1) and a bias (lr x 2); `decay` gives both decay multipliers, or leaves them out."""
    specs = [{"lr_mult": 1}, {"lr_mult": 2}]
    if decay is not None:
        for spec, mult in zip(specs, decay, strict=True):
            spec["decay_mult"] = mult
    return specs


def lmdb_layers(n: NetSpec, name: str, folder: str, *, train: str, test: str, batches: tuple, **transforms) -> None:
    """Put the train and the test Data layer into `n`: tops "data" and "label", both layers called `name`.

    `train` and `test` are LMDB folders inside `folder`; `batches` is (train, test) batch size; `transforms` go into
    both transform_params, except `mirror`, which is for training only.
    """
    train_only = {"mirror": transforms.pop("mirror")} if "mirror" in transforms else {}

    def data(phase, source, batch_size, transform, **more):
        return L.Data(
            name=name,
            include={"phase": phase},
            **({"transform_param": transform} if transform else {}),
            source=f"{folder}/{source}",
            batch_size=batch_size,
            backend=P.Data.LMDB,
            **more,
        )

    n.data, n.label = data("TRAIN", train, batches[0], transforms | train_only, ntop=2)
    # The same blob names a second time, for the other phase: written out as `top`, since a name belongs to one Top.
    n["data of TEST"] = data("TEST", test, batches[1], transforms, ntop=0, top=["data", "label"])


def classifier_end(n: NetSpec, scores, *, top5: bool = False) -> None:
    """Accuracy (testing only; top-5 too where asked) and SoftmaxWithLoss of `scores` against n.label."""
    test_only = {"include": {"phase": "TEST"}}
    n.accuracy = L.Accuracy(scores, n.label, **test_only)
    if top5:
        n.accuracy_top5 = L.Accuracy(scores, n.label, top_k=5, **test_only)
    n.loss = L.SoftmaxWithLoss(scores, n.label)
