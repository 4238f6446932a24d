"""The READMEs of models/ say what training takes now: what `plan` says, of budgets that are accepted or refused.

That every README has what `plan` prints is tests/models/test_lms.py's affair.
"""

from __future__ import annotations

import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import human_bytes

from .nets import (
    ALL,
    BEGIN,
    END,
    HEAD,
    MODELS,
    MORE,
    TAIL,
    count_text,
    memory,
    memory_text,
    row,
    size,
    with_memory,
)

FILES = {path: (MODELS / path).read_text() for path in {model.path for model in ALL.values()}}
DEEP = "cifar10_resnet-1001/train_val"  # half a minute; `python tools/gen_models.py --figures --check` looks at it too
QUICK = (
    "digits",
    "lenet",
    "mnist_autoencoder",
    "alexnet",
    "vgg-16",
    "resnet-18",
    "squeezenet-1.0",
    "mobilenet-v1",
    "unet-3d",
    "c3d",
    "dcgan",
    "char_lstm",
    "char_gpt",
)


def readme(folder: str) -> str:
    return (MODELS / folder / "README.md").read_text()


def told(folder: str) -> list[list[str]]:
    """The cells of the rows about memory in a model's README."""
    part = readme(folder).partition(BEGIN)[2].partition(END)[0]
    lines = part.partition("|---:|---:|---:|---:|\n")[2].split("\n\n")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines]


@pytest.fixture(scope="module")
def table() -> dict[str, str]:
    """{model: its line} of models/README.md."""
    text = (MODELS / "README.md").read_text()
    assert text.startswith(HEAD) and text.endswith(TAIL), "run: python tools/gen_models.py --figures"
    lines = text[len(HEAD) : -len(TAIL)].splitlines(keepends=True)
    return dict(zip(ALL, lines, strict=True))


def test_the_table_has_every_model_at_its_size(table):
    for name, line in table.items():
        if name != DEEP:
            _, first, learned, operations, *_ = (cell.strip() for cell in line.split("|"))
            found = size(ALL[name], FILES)
            assert first.startswith(f"[{ALL[name].folder}"), name
            assert learned == f"{found.learned:,}" and operations.startswith(count_text(found.flops // 2)), name


def test_every_models_readme_has_the_figures_of_the_table(table):
    rows = {}
    for name, line in table.items():
        batch, *sizes = line.strip("| \n").split(" | ")[3:]
        model = ALL[name]
        rows.setdefault(model.folder, []).append(
            [batch if model.file == "train_val" else f"{model.file}, {batch}"] + sizes
        )
    assert len(rows) == len([path for path in MODELS.iterdir() if path.is_dir()])
    for folder, expected in rows.items():
        deep = any(model.deep for model in ALL.values() if model.folder == folder)
        assert told(folder)[:: 1 if deep else 2] == expected, folder


@pytest.mark.parametrize(
    "folder", [pytest.param(f, marks=pytest.mark.thorough) if f == "unet-3d" else f for f in QUICK]
)
def test_figures_are_current(folder, table):
    models = {name: model for name, model in ALL.items() if model.folder == folder}
    sizes = {name: [memory(model, FILES, times) for times in (1, MORE)] for name, model in models.items()}
    for name, model in models.items():
        assert table[name] == row(model, size(model, FILES), sizes[name][0]), (
            "run: python tools/gen_models.py --figures"
        )
    text = memory_text([(model, sizes[name]) for name, model in models.items()])
    found = readme(folder)
    assert with_memory(found, text, folder) == found, "run: python tools/gen_models.py --figures"


def test_a_readme_without_a_place_for_figures_is_named():
    with pytest.raises(ValueError, match="new/README.md lacks the lines"):
        with_memory(f"# new\n{BEGIN}", "", "new/README.md")


@pytest.mark.parametrize(
    "name", ["mnist_autoencoder/train_val", pytest.param("squeezenet-1.1/train_val", marks=pytest.mark.thorough)]
)
def test_the_least_budget_is_accepted_and_a_smaller_one_refused(name, capsys):
    model = ALL[name]
    shapes = [a for top, s in model.data.items() for a in ("-shape", f"{top}={','.join(map(str, s))}")]
    argv = ["plan", "-model", str(MODELS / model.path), *shapes, "-lms", "1", "-summary", "-lms_split", "off"]
    least = memory(model, FILES).lms_1
    assert main([*argv, "-lms_budget", f"{least}B"]) == 0
    assert main([*argv, "-lms_budget", f"{least * 98 // 100}B"]) == 1
    assert "device memory" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mnist_autoencoder/train_val", "resnet-18/train_val"])
def test_in_core_is_what_training_without_lms_takes(name, capsys):
    model = ALL[name]
    shapes = [a for top, s in model.data.items() for a in ("-shape", f"{top}={','.join(map(str, s))}")]
    argv = ["plan", "-model", str(MODELS / model.path), *shapes, "-lms", "0", "-summary"]
    needed = memory(model, FILES).in_core
    assert main([*argv, "-lms_budget", f"{needed}B"]) == 0
    assert main([*argv, "-lms_budget", f"{needed - 4096}B"]) == 1
    assert human_bytes(needed) in capsys.readouterr().out


def test_the_volume_net_does_not_fit_where_large_model_support_trains_it():
    found = memory(ALL["unet-3d/train_val"], FILES)
    assert found.lms < 16 << 30 < 24 << 30 < found.in_core


def test_the_figures_of_a_net_by_hand():
    """LeNet: weights, gradients and momentum; at least the values that backward reads too."""
    found, needed = size(ALL["lenet/train_val"], FILES), memory(ALL["lenet/train_val"], FILES).in_core
    blobs = 64 * (28 * 28 + 1 + 20 * 24 * 24 + 20 * 12 * 12 + 50 * 8 * 8 + 50 * 4 * 4 + 500 + 10 + 10)
    assert found.learned == 431_080
    assert found.flops == 2 * (24 * 24 * 20 * 25 + 8 * 8 * 50 * 500 + 800 * 500 + 500 * 10)
    read = 64 * (28 * 28 + 20 * 12 * 12 + 50 * 4 * 4 + 500)
    assert 4 * (3 * 431_080 + read) < needed < 4 * (3 * 431_080 + 2 * blobs + 64 * 1.3 * (2880 + 800)) * 1.05


@pytest.mark.parametrize(
    "n, text",
    [
        (63_100, "63.1 k"),
        (568_740_352, "569 M"),
        (3_858_000_000, "3.86 G"),
        (904_596_000_000, "905 G"),
        (6_607_010_000_000, "6.61 T"),
    ],
)
def test_counts(n, text):
    assert count_text(n) == text
