"""Train the same solver on the CPU and on the GPU with one seed; print both losses and their largest difference.

python tools/bench/agree.py models/lenet/solver.prototxt --iterations 50 --math fp32
"""

from __future__ import annotations

import argparse
import sys

from common import LMSConfig, SGDSolver, get_device, versions

from pycaffe_lms.backend import cuda
from pycaffe_lms.formats.prototxt.parser import read_solver


def losses(path: str, iterations: int, device) -> list[float]:
    """Loss of every iteration; no tests, no snapshots."""
    parsed = read_solver(path)
    param = parsed.message
    del param.test_iter[:]
    param.random_seed = 1
    param.snapshot_after_train = False
    solver = SGDSolver(param, file=parsed.filename, lines=parsed.lines, device=device, lms=LMSConfig())
    found = []
    for _ in range(iterations):
        solver.step(1)
        found.append(solver.net.loss())
    solver.close()
    return found


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("solver")
    p.add_argument("--iterations", type=int, default=50)
    p.add_argument("--math", choices=("tf32", "fp32"), default="fp32")
    args = p.parse_args()
    print(versions())
    cuda.set_math(args.math)
    ours, theirs = (losses(args.solver, args.iterations, get_device(name)) for name in ("cpu", "cuda"))
    for i in range(0, args.iterations, max(1, args.iterations // 10)):
        print(f"iteration {i:4d}  cpu {ours[i]:.7f}  gpu {theirs[i]:.7f}")
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"{args.math}: largest difference of the loss in {args.iterations} iterations: {worst:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
