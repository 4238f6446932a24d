"""Nets like LLaMA: of 7 and of 1.3 billion learned values; `pycaffe_lms.language.llama` writes any."""

from dataclasses import dataclass

from pycaffe_lms.language import llama

from .tokens import NARROW, language_files, language_model, schedule

IDS, LENGTH = 32000, 2048


@dataclass(frozen=True)
class Size:
    folder: str
    title: str
    batch: int
    iter_size: int
    width: int
    blocks: int
    heads: int
    hidden: int
    eps: float

    def net(self, n, labels, **other):
        own = {key: getattr(self, key) for key in ("width", "blocks", "heads", "hidden", "eps")}
        return llama(n, n.data, labels, **({"vocabulary": IDS} | own | other))

    def narrow(self, n, labels):
        return self.net(n, labels, **NARROW)


SIZES = (
    Size("llama-1.3b", "LLaMA-1.3B", 4, 256, 2048, 24, 16, 5504, 1e-5),
    Size("llama-7b", "LLaMA-7B", 1, 2048, 4096, 32, 32, 11008, 1e-6),
)
MODELS = tuple(language_model(s.folder, s.narrow, batch=s.batch, length=LENGTH, deep=True) for s in SIZES)


def files() -> dict[str, str]:
    out = {}
    for s in SIZES:
        windows = s.batch * s.iter_size
        note = f"{windows} windows an iteration ({s.batch} x iter_size {s.iter_size}), {windows * LENGTH:,} tokens."
        solver = schedule(0.0003, iter_size=s.iter_size, iterations=250_000)
        sizes = {"batch": s.batch, "length": LENGTH, "ids": IDS}
        out |= language_files("llama", s.folder, s.title, s.net, **sizes, note=note, solver=solver)
    return out
