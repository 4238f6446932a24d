"""models/README.md says what training takes now, and its figures are those of plans that are accepted or refused."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim import SimDevice
from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning

from .nets import ALL, HEAD, MODELS, TAIL, TRAIN, count_text, fed, figures, row, updates

FILES = {path: (MODELS / path).read_text() for path in {model.path for model in ALL.values()}}
SLOW = {"cifar10_resnet-1001"}  # ten seconds; `python tools/gen_models.py --figures --check` looks at it too
AUTOENCODER = ALL["mnist_autoencoder/train_val"]  # has no convolutions, hence no workspace of theirs


def test_the_table_is_current():
    text = (MODELS / "README.md").read_text()
    assert text.startswith(HEAD) and text.endswith(TAIL), "run: python tools/gen_models.py --figures"
    rows = text[len(HEAD) : -len(TAIL)].splitlines(keepends=True)
    assert len(rows) == len(ALL)
    for found, model in zip(rows, ALL.values(), strict=True):
        if model.folder in SLOW:
            assert found.startswith(f"| [{model.folder}](")
        else:
            assert found == row(model, figures(model, FILES)), "run: python tools/gen_models.py --figures"


def test_the_smallest_device_is_accepted_and_a_smaller_one_refused(capsys):
    size = figures(AUTOENCODER, FILES).lms_1
    argv = ["plan", "-model", str(MODELS / AUTOENCODER.path), "-shape", "data=100,1,28,28", "-lms", "1", "-summary"]
    assert main([*argv, "-lms_budget", str(size)]) == 0
    assert main([*argv, "-lms_budget", str(size * 99 // 100)]) == 1
    assert "device memory" in capsys.readouterr().err


def test_in_core_is_what_training_without_lms_takes():
    size = figures(AUTOENCODER, FILES).in_core
    message = fed(FILES[AUTOENCODER.path], AUTOENCODER.data, None)

    def plan(budget):
        options = {"device": SimDevice(budget, page=None), "lms": LMSConfig(budget=budget)}
        net = Net(message, TRAIN, fill=False, tuning=Tuning(pack=True), **options)
        steps = updates(net)
        return net.plan_only(lambda: steps)

    assert plan(size).arena_bytes < size
    with pytest.raises(OutOfDeviceMemory):
        plan(size - 4096)


def test_the_volume_net_does_not_fit_where_large_model_support_trains_it():
    found = figures(ALL["unet-3d/train_val"], FILES)
    assert found.lms < 16 << 30 < 22 << 30 < found.in_core


def test_the_figures_of_a_net_by_hand():
    """LeNet: weights, gradients and momentum; at least the values that backward reads too."""
    found = figures(ALL["lenet/train_val"], FILES)
    blobs = 64 * (28 * 28 + 1 + 20 * 24 * 24 + 20 * 12 * 12 + 50 * 8 * 8 + 50 * 4 * 4 + 500 + 10 + 10)
    assert found.learned == 431_080
    assert found.flops == 2 * (24 * 24 * 20 * 25 + 8 * 8 * 50 * 500 + 800 * 500 + 500 * 10)
    read = 64 * (28 * 28 + 20 * 12 * 12 + 50 * 4 * 4 + 500)
    assert 4 * (3 * 431_080 + read) < found.in_core < 4 * (3 * 431_080 + 2 * blobs + 64 * 1.3 * (2880 + 800)) * 1.05


@pytest.mark.parametrize("n, text", [(63_100, "63.1 k"), (568_740_352, "569 M"), (3_858_000_000, "3.86 G"),
                                     (904_596_000_000, "905 G"), (6_607_010_000_000, "6.61 T")])  # fmt: skip
def test_counts(n, text):
    assert count_text(n) == text
