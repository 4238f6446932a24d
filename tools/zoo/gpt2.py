"""GPT-2, the smallest of its four sizes; `pycaffe_lms.language.gpt2` writes any."""

from pycaffe_lms.language import gpt2

from .tokens import NARROW, language_files, language_model, schedule

FOLDER, IDS, LENGTH, BATCH = "gpt2", 50257, 1024, 8


def net(n, labels, **sizes):
    """Sizes are those of 124 million learned values, unless others are given."""
    return gpt2(n, n.data, labels, **sizes)


MODELS = (language_model(FOLDER, lambda n, labels: net(n, labels, **NARROW), batch=BATCH, length=LENGTH),)


def files() -> dict[str, str]:
    note = "480 windows an iteration (8 x iter_size 60), half a million tokens."
    solver = schedule(0.0006, iter_size=60, iterations=600_000)
    sizes = {"batch": BATCH, "length": LENGTH, "ids": IDS}
    return language_files("gpt2", FOLDER, "GPT-2", net, **sizes, note=note, solver=solver)
