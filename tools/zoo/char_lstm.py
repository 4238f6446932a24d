"""A character model of text: two LSTMs of 512 units that guess the next of 128 characters."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import folder_solver
from .text import net_text

FOLDER, TITLE = "char_lstm", "CharLSTM"
CHARACTERS, UNITS, STEPS, STREAMS = 128, 512, 50, 50
TOPS = ("cont", "input", "target")
UNIFORM = {"type": "uniform", "min": -0.08, "max": 0.08}


def body(n: NetSpec):
    """embed .. predict after n.input and n.cont, (steps, streams) each; returns scores (steps, streams, 128)."""
    n.embed = x = L.Embed(n.input, input_dim=CHARACTERS, num_output=CHARACTERS, bias_term=False, weight_filler=UNIFORM)
    for i in (1, 2):
        shape = {"num_output": UNITS, "weight_filler": UNIFORM, "bias_filler": {"type": "constant"}}
        n[f"lstm{i}"] = L.LSTM(x, n.cont, recurrent_param=shape)
        n[f"drop{i}"] = x = L.Dropout(n[f"lstm{i}"], dropout_ratio=0.2, in_place=True)
    n.predict = L.InnerProduct(x, num_output=CHARACTERS, axis=2, weight_filler=UNIFORM)
    return n.predict


def train_val() -> NetSpec:
    n = NetSpec()
    for phase, listed in (("TRAIN", "train"), ("TEST", "test")):
        fields = {"name": "data", "include": {"phase": phase}, "source": f"data/text/{listed}.txt", "batch_size": STEPS}
        if phase == "TRAIN":
            for top, made in zip(TOPS, L.HDF5Data(ntop=3, **fields), strict=True):
                n[top] = made
        else:
            n["data of TEST"] = L.HDF5Data(ntop=0, top=list(TOPS), **fields)
    n.loss = L.SoftmaxWithLoss(body(n), n.target, softmax_param={"axis": 2})
    n.accuracy = L.Accuracy(n.predict, n.target, axis=2, include={"phase": "TEST"})
    return n


def deploy() -> NetSpec:
    """One character of one text at a time; the state stays from one forward to the next while cont is 1."""
    n = NetSpec()
    n.cont, n.input = L.Input(shape=[{"dim": [1, 1]}, {"dim": [1, 1]}], name="data", ntop=2)
    n.prob = L.Softmax(body(n), axis=2)
    return n


MODELS = (
    Model(
        FOLDER,
        {top: (STEPS, STREAMS) for top in TOPS},
        {top: (6, 2) for top in TOPS},
        classes=CHARACTERS,
        item="step of 50 texts",
    ),
)


def files() -> dict[str, str]:
    return {
        f"{FOLDER}/train_val.prototxt": net_text("char_lstm", TITLE, train_val()),
        f"{FOLDER}/deploy.prototxt": net_text("char_lstm", TITLE, deploy()),
        f"{FOLDER}/solver.prototxt": folder_solver(
            "char_lstm",
            FOLDER,
            test_iter=20,
            test_interval=500,
            base_lr=1,
            lr_policy="step",
            gamma=0.9,
            stepsize=1000,
            clip_gradients=5,
            momentum=0.9,
            display=100,
            max_iter=20000,
            snapshot=5000,
        ),
    }
