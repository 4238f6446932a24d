"""What the families share: data layers for both phases, fillers, ParamSpecs, the ends of a classifier."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L
from pycaffe_lms.net_spec import params as P

from .text import solver_text

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


def dummy_layers(n: NetSpec, batch: int, size: int) -> None:
    """Random pictures and labels: the time and memory of training, without a data set."""
    n.data, n.label = L.DummyData(
        shape=[{"dim": [batch, 3, size, size]}, {"dim": [batch]}],
        # The loss truncates a label to an integer, so 0 .. 999.99 draws each of the 1000 classes alike.
        data_filler=[{"type": "gaussian", "std": 1}, {"type": "uniform", "min": 0, "max": 999.99}],
        ntop=2,
    )


def dummy_solver(source: str, folder: str, *, weight_decay: float) -> str:
    """The text of a solver for models/<folder>/train_dummy.prototxt."""
    return solver_text(
        source,
        "For measuring time and memory: a few iterations on random data, nothing is saved.",
        net=f"models/{folder}/train_dummy.prototxt",
        base_lr=0.001,
        lr_policy="fixed",
        momentum=0.9,
        weight_decay=weight_decay,
        display=10,
        max_iter=100,
        snapshot_after_train=False,
        random_seed=1701,
    )


def classifier_end(n: NetSpec, scores, *, top5: bool = False) -> None:
    """Accuracy (testing only; top-5 too where asked) and SoftmaxWithLoss of `scores` against n.label."""
    test_only = {"include": {"phase": "TEST"}}
    n.accuracy = L.Accuracy(scores, n.label, **test_only)
    if top5:
        n.accuracy_top5 = L.Accuracy(scores, n.label, top_k=5, **test_only)
    n.loss = L.SoftmaxWithLoss(scores, n.label)
