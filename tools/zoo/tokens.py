"""What nets of language models share: data layers, the files of a family's folder."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import dummy_solver, folder_solver
from .text import net_text

SOURCE = "data/text"
NARROW = {"vocabulary": 50, "width": 16, "heads": 4, "hidden": 24}  # sizes that a test can run


def token_layers(n: NetSpec, batch: int, length: int, ids: int) -> None:
    """TokenData for both phases, from the files of `dataset text`."""
    fields = {"name": "data", "batch_size": batch, "sequence_length": length, "vocab_size": ids}
    train, val = (
        {"include": {"phase": phase}, "source": f"{SOURCE}/{part}.bin"}
        for phase, part in (("TRAIN", "train"), ("TEST", "val"))
    )
    n.data, n.label = L.TokenData(ntop=2, shuffle=True, **fields, **train)
    n["data of TEST"] = L.TokenData(ntop=0, top=["data", "label"], **fields, **val)


def random_tokens(n: NetSpec, batch: int, length: int, ids: int) -> None:
    """Random tokens: the time and memory of training, without a data set."""
    filler = {"type": "uniform", "min": 0, "max": ids - 0.01}  # an index is cut to an integer
    n.data, n.label = L.DummyData(shape=[{"dim": [batch, length]}], data_filler=[filler], ntop=2)


def language_files(source, folder, title, net, *, batch, length, ids, note, solver) -> dict[str, str]:
    """train_val, train_dummy, deploy and both solvers. net(n, labels): to the loss; without labels to scores."""
    train, dummy, deploy = NetSpec(), NetSpec(), NetSpec()
    token_layers(train, batch, length, ids)
    random_tokens(dummy, batch, length, ids)
    for n in (train, dummy):
        net(n, n.label)
    deploy.data = L.Input(shape={"dim": [1, length]})
    net(deploy, None)
    return {
        f"{folder}/train_val.prototxt": net_text(source, title, train),
        f"{folder}/train_dummy.prototxt": net_text(source, title, dummy),
        f"{folder}/deploy.prototxt": net_text(source, title, deploy),
        f"{folder}/solver.prototxt": folder_solver(source, folder, note, **solver),
        f"{folder}/solver_dummy.prototxt": dummy_solver(source, folder, weight_decay=0),
    }


def language_model(folder, net, *, batch, length, deep=False) -> Model:
    """net(n, labels): as `language_files` has it, of narrow layers."""

    def small() -> str:
        n = NetSpec()
        token_layers(n, batch, length, NARROW["vocabulary"])
        net(n, n.label)
        return net_text("tokens", folder, n)

    full, tiny = ({top: shape for top in ("data", "label")} for shape in ((batch, length), (2, 6)))
    return Model(folder, full, tiny, classes=None, item=f"window of {length} tokens", deep=deep, small=small)


def schedule(rate: float, *, iter_size: int, iterations: int) -> dict:
    """AdamW along a cosine: fields of a solver."""
    return {
        "type": "AdamW",
        "test_iter": 50,
        "test_interval": 1000,
        "test_initialization": False,
        "base_lr": rate,
        "lr_policy": "cosine",
        "min_lr": rate / 10,
        "warmup_iter": 2000,
        "momentum": 0.9,
        "momentum2": 0.95,
        "weight_decay": 0.1,
        "clip_gradients": 1,
        "iter_size": iter_size,
        "display": 10,
        "max_iter": iterations,
        "snapshot": 1000,
        "snapshot_format": "HDF5",
        "random_seed": 1701,
    }
