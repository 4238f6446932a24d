"""What the families share: data layers for both phases, fillers, ParamSpecs, the ends of a classifier."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L
from pycaffe_lms.net_spec import params as P

from .text import net_text, solver_text

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


def lmdb_layers(
    n: NetSpec,
    name: str,
    folder: str,
    *,
    train: str,
    test: str,
    batches: tuple,
    tops: tuple[str, str] = ("data", "label"),
    **transforms,
) -> None:
    """Put the train and the test Data layer into `n`, with the same `tops`, both layers called `name`.

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

    n[tops[0]], n[tops[1]] = data("TRAIN", train, batches[0], transforms | train_only, ntop=2)
    # The same blob names a second time, for the other phase: written out as `top`, since a name belongs to one Top.
    n[f"{name} of TEST"] = data("TEST", test, batches[1], transforms, ntop=0, top=list(tops))


def ilsvrc_layers(n: NetSpec, *, batches: tuple, size: int, **transforms) -> None:
    """Data layers of ImageNet's 1000 classes: random crops of size x size and mirroring in training."""
    lmdb_layers(
        n,
        "data",
        "data/ilsvrc12",
        train="ilsvrc12_train_lmdb",
        test="ilsvrc12_val_lmdb",
        batches=batches,
        mirror=True,
        crop_size=size,
        **(transforms or {"mean_value": [104, 117, 123]}),
    )


def input_layer(n: NetSpec, *shape: int) -> None:
    """The data of a deploy net."""
    n.data = L.Input(shape={"dim": list(shape)})


def batch_norm(n: NetSpec, bottom, bn: str, scale: str, *, eps: float = 1e-05, in_place: bool = True):
    """BatchNorm `bn` and, in place, Scale `scale` with both of its parameters; returns the scaled top."""
    n[bn] = L.BatchNorm(bottom, eps=eps, in_place=in_place)
    n[scale] = L.Scale(n[bn], bias_term=True, in_place=True)
    return n[scale]


def relu(n: NetSpec, bottom, name: str):
    """ReLU `name`, in place."""
    n[name] = L.ReLU(bottom, in_place=True)
    return n[name]


def classifier_files(
    source: str, folder: str, title: str, body, *, batches: tuple, size: int, solver: dict, note: str = "", **transforms
) -> dict[str, str]:
    """train_val, deploy and solver of an ImageNet classifier. body(n): from n.data to the scores. solver: fields
    beside net and snapshot_prefix; `note` becomes its comment."""
    train_val, deploy = NetSpec(), NetSpec()
    ilsvrc_layers(train_val, batches=batches, size=size, **transforms)
    classifier_end(train_val, body(train_val), top5=True)
    input_layer(deploy, 1, 3, size, size)
    deploy.prob = L.Softmax(body(deploy))
    return {
        f"{folder}/train_val.prototxt": net_text(source, title, train_val),
        f"{folder}/deploy.prototxt": net_text(source, title, deploy),
        f"{folder}/solver.prototxt": folder_solver(source, folder, note, **solver),
    }


def folder_solver(source: str, folder: str, note: str = "", **fields) -> str:
    """The text of a solver for models/<folder>/train_val.prototxt, whose snapshots lie beside it."""
    return solver_text(
        source,
        note,
        net=f"models/{folder}/train_val.prototxt",
        **fields,
        snapshot_prefix=f"models/{folder}/{folder}",
    )


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
