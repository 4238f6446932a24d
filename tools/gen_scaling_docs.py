"""Write docs/scaling.md: how trainings on many GPUs are predicted, and predictions beside measurements.

python tools/gen_scaling_docs.py            write it
python tools/gen_scaling_docs.py --check    write nothing; exit 1 if it is not current
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import write_or_check  # noqa: E402

from pycaffe_lms.cli.views.plan_nets import Nets  # noqa: E402
from pycaffe_lms.cli.zoo_names import net_with_shapes  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import read_net  # noqa: E402
from pycaffe_lms.lms.config import LMSConfig  # noqa: E402
from pycaffe_lms.lms.cost.machine import GiB, Machine, find_machine  # noqa: E402
from pycaffe_lms.lms.cost.network import RING, TREE, Cluster, Prediction, predict  # noqa: E402
from pycaffe_lms.log import only_warnings  # noqa: E402
from pycaffe_lms.solvers.rules import RULES  # noqa: E402

FILE = ROOT / "docs" / "scaling.md"
# Data sheets times the fractions of `lms/cost/machine.py`; NVLink 1.0 joins a GPU by two links (NCCL: 18.0 GB/s each)
# to its neighbour and by two to the CPU.
P100 = Machine("p100", 16 * GiB, 0.61e12, 6.9e12, 32e9, 32e9, 50e9, fp32_rate=6.9e12, capability=6.0, nvlink=2 * 18.0e9)
_HEAD = """# Many GPUs: predictions

<!-- Written by `tools/gen_scaling_docs.py`; do not edit. -->

`plan -ranks` predicts how fast many GPUs train together:

```bash
pycaffe-lms plan resnet-50 -shape data=256,3,224,224 -gpu h200 -ranks 8,64,256 -node_gpus 8 -network 50GB/s
```

The training is data parallel: every GPU trains on a batch of its own, and gradients are summed over all of
them. Predicting needs no GPU. `-ranks` is the number of GPUs, `-node_gpus` how many of them a node has (8),
`-network` what a node sends per second, and receives at the same time, over all its network cards. GPUs of a node
talk over NVLink if the GPU has it (`plan -gpu list`; the field `nvlink` of a JSON file), else over PCIe.

## The model

**One sum** of S bytes over n GPUs in k nodes of m takes L + S/B seconds, for the fastest of NCCL's algorithms and
protocols. Formulas and constants are those by which NCCL itself chooses
([tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc)); *bus bandwidth* is what nccl-tests
call so ([PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)).

* Bus bandwidth b: the lower one of the link inside a node (if m > 1) and the network (if k > 1). The table has each
  protocol's share of it.
* Ring: B = share x b x n / (2(n-1)), and L = start + 2(n-k) x step in a node + 2(k-1) x step over the network.
* Tree: B = share x b / 2, and L = start + 2((m-1) x step in a node + log2(k) x step over the network). Of two nodes
  each is the root of one of the two trees, so the network counts twice.
"""
_MODEL = """
LL128 needs NVLink and compute capability 7.0. Left out: NVLink SHARP (NCCL uses it inside nodes with NVSwitch,
where it is faster), limits per channel, and the corrections that NCCL makes for medium sizes.

**An iteration.** Gradients are summed in buckets, in the order in which the backward completes them: one of 16 MiB
or more by itself, smaller ones together until they have 16 MiB, and the last of them until they have 1 MiB, since
the updates wait for that sum. A sum begins when its bucket is complete and the sum before it has ended, and runs
beside the backward. A gradient that Large Model Support manages is summed before the next step of the backward,
which waits. NCCL makes the mean itself where the number of ranks is a power of two; else one more pass over the
gradients in memory does. A layer that exchanges statistics (`batch_norm_param { sync: true }`) gathers them in
forward, by a ring that goes round once, and sums them in backward; the next step waits, also for sums before it.

**One link for copies and sums.** Without NVLink the sums go over the link on which Large Model Support copies; with
it, a node's network traffic, an m-th of it for each GPU, does (network cards beside the GPUs, GPUDirect RDMA).
While copies run, a sum has half of that link, and an iteration is never shorter than the busier direction's copies
and the sums need together.

**What it does not know**: kernels of sums take multiprocessors and memory bandwidth from the layers; ranks are not
equally fast, and each waits for the slowest; without a recorded CUDA graph the host starts every kernel one by one;
other trainings on the same network. So predictions are the best that the wires allow, and measurements below are
lower.
"""


@dataclass(frozen=True)
class Case:
    """Describe a training that is predicted, and where measured the efficiency of its last number of GPUs."""

    said: str
    model: str
    batch: int
    machine: Machine
    node_gpus: int
    network: float
    ranks: tuple[int, ...]
    budget: int | None = None
    half: bool = False
    measured: float | None = None

    def predictions(self) -> list[Prediction]:
        """Plan it and return what is predicted for each number of GPUs."""
        path, shapes = net_with_shapes(self.model, [f"data={self.batch},3,224,224"])
        nets = Nets(
            read_net(path),
            shapes,
            level=0,
            stages=(),
            rule=RULES["SGD"],
            machine=self.machine,
            lms=LMSConfig(auto=True, budget=self.budget),
            workspace=36 << 20,
            half=self.half,
        )
        with only_warnings():
            alone, timeline = nets.outcome().seconds, nets.timeline()
        clusters = (Cluster(n, self.node_gpus, self.network) for n in self.ranks)
        return [predict(timeline, alone, cluster, self.machine) for cluster in clusters]


H200 = find_machine("h200")
HERE = (
    Case("ResNet-50, 256 each, TF32", "resnet-50", 256, H200, 8, 0, (2,), measured=0.972),
    Case("ResNet-50, 128 each, TF32", "resnet-50", 128, H200, 8, 0, (2,), measured=0.955),
    Case(
        "ResNet-50, 256 each, bf16, recorded",
        "resnet-50",
        256,
        H200.with_math("bf16"),
        8,
        0,
        (2,),
        half=True,
        measured=0.971,
    ),
    Case("ResNet-152, 256 each, `-lms auto`, 16 GB", "resnet-152", 256, H200, 8, 0, (2,), 16 << 30, measured=0.983),
)
MANY = (8, 16, 32, 64, 128, 256)
DDL = Case("PowerAI DDL", "resnet-50", 32, P100, 4, 12.5e9, MANY, measured=0.95)
FACEBOOK = Case("Caffe2", "resnet-50", 32, P100, 8, 6.25e9, MANY, measured=0.89)
TODAY = Case("H200, 50 GB/s", "resnet-50", 256, H200.with_math("bf16"), 8, 50e9, MANY, half=True)


def text() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_protocols(), _MODEL, *_here(), *_two(), *_many()]) + "\n"


def _protocols() -> Iterator[str]:
    yield "| | share of b | start, us | step: NVLink | PCIe | network |\n|---|---:|---:|---:|---:|---:|"
    for p in (*RING, *TREE):
        yield f"| {p.name} | {p.share:.2f} | {p.begin} | {p.nvlink} | {p.pcie} | {p.network} |"


def _here() -> Iterator[str]:
    yield "## Compared with our measurements\n"
    yield "Efficiency is images per second of each GPU over those of one alone; on two H200s with NVLink. The"
    yield "batch of the measured ResNet-152 is taken to be 256.\n"
    yield "| training | one GPU, ms | sums, ms | predicted | measured | error | lost, ms |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for case in HERE:
        (p,) = case.predictions()
        assert case.measured is not None
        error, lost = f"{100 * (p.efficiency - case.measured):+.1f} points", p.alone / case.measured - p.seconds
        yield (
            f"| {case.said} | {1e3 * p.alone:.1f} | {1e3 * p.summing:.1f} | {p.efficiency:.1%} | {case.measured:.1%} | "
            f"{error} | {1e3 * lost:.1f} |"
        )
    yield "\nWire and latency explain little of what is lost on two GPUs: the rest, *lost* beyond the prediction, is"
    yield "what the model does not know."


# tools/bench/scaling.py --model resnet-50 --batch 256 --end off, and what is said of a row; ms of an iteration
ALONE = {"TF32": 79.66, "bf16": 40.31}
TWO = (
    ("TF32", "step by step", "", 81.62),
    ("TF32", "`-virtual_ranks 2`", "--virtual_ranks 2", 82.59),
    ("bf16", "step by step", "--math bf16", 42.08),
    ("bf16", "recorded", "--math bf16 --capture", 41.51),
    ("bf16", "recorded, `NCCL_MAX_CTAS=4`", "--math bf16 --capture --ctas 4", 41.79),
    ("bf16", "step by step, `NCCL_MAX_CTAS=4`", "--math bf16 --ctas 4", 57.34),
)
# on two H200s: net and numbers, how, options, ms of one GPU and of two; the first three of `--iterations 60` in a row
LATER = (
    ("ResNet-50, bf16", "step by step", "--math bf16", 32.27, 40.09),
    ("ResNet-50, bf16", "recorded", "--math bf16 --capture", 32.07, 33.12),
    ("ResNet-50, bf16", "recorded, another day", "--math bf16 --capture --apart --warm 5", 31.60, 32.56),
    (
        "ResNet-152, TF32",
        "`-lms auto`, 16 GB",
        "--model resnet-152 --modes auto --budget 16GB",
        162.95,
        166.70,
    ),
)


def _two() -> Iterator[str]:
    yield "\n## What the flags do on two GPUs\n"
    yield "ResNet-50, 256 images each, two H100s with NVLink, 2026-11-24, CUDA 13.2, cuDNN 9.19. Milliseconds are"
    yield "medians of 10 iterations of `tools/bench/scaling.py --model resnet-50 --batch 256 --gpus 1 2 --modes off`"
    yield "with `--end off` and the options of the row. *Recorded*, with sums as parts of a CUDA graph, is the default"
    yield "of `train`; *step by step* it runs with `-graph off`."
    yield f"One GPU takes {ALONE['TF32']:.1f} ms in TF32, {ALONE['bf16']:.1f} in bf16.\n"
    yield "| numbers | how | options | ms | efficiency |"
    yield "|---|---|---|---:|---:|"
    for math, how, options, ms in TWO:
        yield f"| {math} | {how} | {f'`{options}`' if options else '-'} | {ms:.1f} | {ALONE[math] / ms:.1%} |"
    yield "\nTwo H200s with NVLink, 2026-11-27, 256 images each, the same options otherwise. Step by step the host is"
    yield "too slow for bf16 there. The row with `--apart` is of another pair, 2026-11-28, after five seconds of"
    yield "training: without any exchange, at the same time, its GPUs do 99.9% of twice one GPU's images/s; of that"
    yield "it keeps 97.2%.\n"
    yield "| net | how | options | one GPU, ms | two, ms | efficiency |"
    yield "|---|---|---|---:|---:|---:|"
    for net, how, options, one, two in LATER:
        yield f"| {net} | {how} | `{options}` | {one:.1f} | {two:.1f} | {one / two:.1%} |"


_PUBLISHED = """
## Compared with published figures, 8 to 256 GPUs

ResNet-50. *Hidden*: sums beside the backward, as here; *behind*: all after it, as the worst case. PowerAI DDL: IBM
S822LC, 4 P100 with NVLink 1.0 a node, InfiniBand EDR (100 Gbit/s), Caffe ([arXiv
1708.02188](https://arxiv.org/abs/1708.02188), [TOP500 on
it](https://www.top500.org/news/ibm-pushes-envelope-in-deep-learning-scalability/)). Caffe2: 8 P100 a node, 50
Gbit/s Ethernet ([arXiv 1706.02677](https://arxiv.org/abs/1706.02677); 89% as TOP500 gives it). Batches of 32 each,
both networks, Facebook's 8 GPUs a node and the rates of the P100 (its data sheet's) are assumed: the papers' texts were
not at hand. Of fewer than 256 GPUs no published number was at hand (`-`).
Last: 8 H200 a node, 50 GB/s, batch 256 each, bf16.
"""


def _many() -> Iterator[str]:
    yield _PUBLISHED
    yield (
        "| GPUs | DDL: hidden | behind | published | Caffe2: hidden | behind | published | H200: hidden | behind |\n"
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    cases = DDL, FACEBOOK, TODAY
    found = [case.predictions() for case in cases]
    errors = [100 * (f[-1].efficiency - (case.measured or 0)) for case, f in zip(cases, found, strict=True)]
    for rows in zip(*found, strict=True):
        cells = [str(rows[0].cluster.ranks)]
        for case, p in zip(cases, rows, strict=True):
            cells += [f"{p.efficiency:.1%}", f"{p.alone / (p.alone + p.summing):.1%}"]
            if case.measured is not None:
                cells.append(f"{case.measured:.0%}" if p.cluster.ranks == case.ranks[-1] else "-")
        yield f"| {' | '.join(cells)} |"
    yield f"\nErrors on 256 GPUs, hidden: {errors[0]:+.1f} points for DDL, {errors[1]:+.1f} for Caffe2. Both lie"
    yield "between hidden and behind."


def main(argv: list[str] | None = None) -> int:
    """Write docs/scaling.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write docs/scaling.md from the model of networks.", argv)


if __name__ == "__main__":
    sys.exit(main())
