"""A small GPT with rotary positions that reads and writes bytes, small enough for a laptop's CPU."""

from pycaffe_lms.language.blocks import transformer_block
from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import folder_solver, gaussian
from .text import net_text

FOLDER, TITLE = "char_gpt", "CharGPT"
IDS, WIDTH, HEADS, BLOCKS, LENGTH, BATCH = 256, 96, 3, 3, 128, 8


def body(n: NetSpec):
    """embed .. scores after n.data (N, T); returns scores (N, T, 256)."""
    n.embed = x = L.Embed(n.data, input_dim=IDS, num_output=WIDTH, bias_term=False, weight_filler=gaussian(0.02))
    for k in range(1, BLOCKS + 1):
        x = transformer_block(n, f"block{k}", x, width=WIDTH, heads=HEADS)
    n.norm = L.LayerNorm(x)
    n.scores = L.InnerProduct(n.norm, num_output=IDS, axis=2, bias_term=False, weight_filler=gaussian(0.02))
    return n.scores


def train_val() -> NetSpec:
    n = NetSpec()
    for phase, part in (("TRAIN", "train"), ("TEST", "val")):
        fields = {
            "name": "data",
            "include": {"phase": phase},
            "source": f"data/tales/{part}.bin",
            "batch_size": BATCH,
            "sequence_length": LENGTH,
            "vocab_size": IDS,
        }
        if phase == "TRAIN":
            n.data, n.label = L.TokenData(ntop=2, shuffle=True, **fields)
        else:
            n["data of TEST"] = L.TokenData(ntop=0, top=["data", "label"], **fields)
    n.loss = L.SoftmaxWithLoss(body(n), n.label, softmax_param={"axis": 2})
    n.accuracy = L.Accuracy(n.scores, n.label, axis=2, include={"phase": "TEST"})
    return n


def deploy() -> NetSpec:
    """One window; prob[0, t] is for the byte after data[0, t]."""
    n = NetSpec()
    n.data = L.Input(shape={"dim": [1, LENGTH]})
    n.prob = L.Softmax(body(n), axis=2)
    return n


MODELS = (
    Model(
        FOLDER,
        {"data": (BATCH, LENGTH), "label": (BATCH, LENGTH)},
        {"data": (2, 6), "label": (2, 6)},
        classes=IDS,
        item=f"window of {LENGTH} bytes",
    ),
)


def files() -> dict[str, str]:
    return {
        f"{FOLDER}/train_val.prototxt": net_text("char_gpt", TITLE, train_val()),
        f"{FOLDER}/deploy.prototxt": net_text("char_gpt", TITLE, deploy()),
        f"{FOLDER}/solver.prototxt": folder_solver(
            "char_gpt",
            FOLDER,
            "19 test batches of 8 windows are what 400 tales have for validation.",
            type="AdamW",
            test_iter=19,
            test_interval=250,
            base_lr=0.003,
            lr_policy="cosine",
            min_lr=0.0003,
            warmup_iter=50,
            momentum=0.9,
            momentum2=0.99,
            weight_decay=0.1,
            clip_gradients=1,
            display=50,
            max_iter=1000,
            snapshot=1000,
            random_seed=1701,
        ),
    }
