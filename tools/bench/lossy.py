"""What copies in 16 bits (`-lms_compress`) cost in accuracy: a convnet on real handwritten digits, on the simulated
device, so that any machine can say. Prints the relative error of the gradient of all parameters against exact copies,
from the same weights and batch, and the test accuracy that training reaches.

    python tools/bench/lossy.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pycaffe_lms.backend.sim.device import SimDevice  # noqa: E402
from pycaffe_lms.cli.main import main as command  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import parse_solver  # noqa: E402
from pycaffe_lms.lms.config import LMSConfig  # noqa: E402
from pycaffe_lms.net.tuning import Tuning  # noqa: E402
from pycaffe_lms.solvers import solver_class  # noqa: E402

KINDS = ("bf16", "fp16")
AFTER = (0, 100, 300)  # iterations before the gradient is looked at


def make_solver(folder: Path, kind: str | None, **fields):
    """On the digits, 512 at once, with everything larger than 10 KB managed and fetched on demand."""
    net = (ROOT / "models/digits/train_val.prototxt").read_text()
    net = net.replace("data/digits/", f"{folder}/").replace("batch_size: 128", "batch_size: 512")
    settings = {"base_lr": 0.05, "momentum": 0.9, "weight_decay": 0.0005, "random_seed": 1} | fields
    text = "\n".join(f"{name}: {value}" for name, value in settings.items())
    text += '\nlr_policy: "fixed" max_iter: 1000 test_iter: 27 test_interval: 10000 test_initialization: false '
    parsed = parse_solver(f"{text} snapshot_after_train: false\nnet_param {{ {net} }}", "digits")
    lms = LMSConfig(threshold_kb=10, ahead=0, compress=kind)
    more = {"file": parsed.filename, "lines": parsed.lines, "device": SimDevice(64 << 20), "lms": lms}
    return solver_class(parsed.message)(parsed.message, tuning=Tuning(), **more)


def gradient_of(folder: Path, kind: str | None, weights) -> np.ndarray:
    """All parameters' gradients of the first batch, from these weights."""
    solver = make_solver(folder, kind, base_lr=1, momentum=0, weight_decay=0)  # so the update is the gradient
    for param, values in zip(solver.net.learnable_params, weights, strict=True):
        param.data = values
    solver.step(1)
    return np.concatenate([p.read_diff().ravel() for p in solver.net.learnable_params]).astype(np.float64)


def accuracy_of(solver) -> tuple[float, float]:
    """(test accuracy, MB copied per iteration) of a solver that has trained."""
    stats = solver.runtime.stats.programs["train"].last
    return dict(solver.test(0))["accuracy"], (stats.bytes_in + stats.bytes_out) / 1e6


def rows(folder: Path) -> Iterator[tuple]:
    """Yield, for each kind of copies, its name, the errors of the gradient, the accuracy, the MB per iteration.

    folder: where `pycaffe-lms dataset digits -out FOLDER` wrote."""
    trained, weights = make_solver(folder, None), {}
    for iterations in AFTER:
        trained.step(iterations - trained.iter)
        weights[iterations] = [p.read_data().copy() for p in trained.net.learnable_params]
    exact = {n: gradient_of(folder, None, w) for n, w in weights.items()}
    yield "exact", *(0.0 for _ in AFTER), *accuracy_of(trained)
    for kind in KINDS:
        found = {n: gradient_of(folder, kind, w) for n, w in weights.items()}
        errors = [np.linalg.norm(found[n] - exact[n]) / np.linalg.norm(exact[n]) for n in weights]
        solver = make_solver(folder, kind)
        solver.step(AFTER[-1])
        yield kind, *errors, *accuracy_of(solver)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command(["dataset", "digits", "-out", folder])
        print("| copies | " + " | ".join(f"error after {n}" for n in AFTER) + " | accuracy | MB per iteration |")
        for kind, *errors, accuracy, copied in rows(Path(folder)):
            print(f"| {kind} | " + " | ".join(f"{e:.1e}" for e in errors) + f" | {accuracy:.4f} | {copied:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
