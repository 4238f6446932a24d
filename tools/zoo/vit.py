"""Vision transformers with patches of 16 x 16: base and large; `pycaffe_lms.language.vit` writes any."""

from dataclasses import dataclass

from pycaffe_lms.language import vit
from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import classifier_end, classifier_files, dummy_layers, dummy_solver, ilsvrc_layers
from .text import net_text


@dataclass(frozen=True)
class Size:
    folder: str
    title: str
    batch: int
    width: int
    blocks: int
    heads: int
    drop_path: float

    def net(self, n: NetSpec, **other):
        own = {key: getattr(self, key) for key in ("width", "blocks", "heads", "drop_path")}
        return vit(n, n.data, **(own | other))

    def small(self) -> str:
        """The text of a training net of the same layers with few values."""
        n = NetSpec()
        ilsvrc_layers(n, batches=(2, 2), size=32)
        classifier_end(n, self.net(n, width=16, heads=4), top5=True)
        return net_text("vit", self.title, n)


SIZES = (Size("vit-b-16", "ViT-B/16", 64, 768, 12, 12, 0.1), Size("vit-l-16", "ViT-L/16", 32, 1024, 24, 16, 0.2))
MODELS = tuple(image_net(s.folder, s.batch, 224, 32, small=s.small) for s in SIZES)


def files() -> dict[str, str]:
    out = {}
    for s in SIZES:
        solver = {
            "type": "AdamW",
            "test_iter": 2000,
            "test_interval": 5000,
            "test_initialization": False,
            "base_lr": 0.001,
            "lr_policy": "cosine",
            "min_lr": 0.00001,
            "warmup_iter": 6250,
            "momentum": 0.9,
            "momentum2": 0.999,
            "weight_decay": 0.05,
            "clip_gradients": 1,
            "iter_size": 1024 // s.batch,
            "display": 20,
            "max_iter": 375_000,
            "snapshot": 5000,
            "random_seed": 1701,
        }
        out |= classifier_files(
            "vit",
            s.folder,
            s.title,
            s.net,
            batches=(s.batch, 25),
            size=224,
            solver=solver,
            note=f"1024 pictures an iteration ({s.batch} x iter_size {1024 // s.batch}), 300 epochs.",
            mean_value=[127.5],
            scale=1 / 127.5,
        )
        n = NetSpec()
        dummy_layers(n, s.batch, 224)
        n.loss = L.SoftmaxWithLoss(s.net(n), n.label)
        out[f"{s.folder}/train_dummy.prototxt"] = net_text("vit", s.title, n)
        out[f"{s.folder}/solver_dummy.prototxt"] = dummy_solver("vit", s.folder, weight_decay=0)
    return out
