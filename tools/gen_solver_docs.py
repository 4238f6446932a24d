"""Write docs/solvers.md from the solver classes, their rules and caffe.proto; with --check, say if it is current."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from gen_layer_docs import _KINDS, _default, _repeated  # noqa: E402
from pages import write_or_check  # noqa: E402

from pycaffe_lms import solvers  # noqa: E402
from pycaffe_lms.ops import update_rules  # noqa: E402
from pycaffe_lms.proto.caffe_pb2 import SolverParameter  # noqa: E402
from pycaffe_lms.solvers.lr_policy import USES  # noqa: E402
from pycaffe_lms.solvers.rules import OF_TYPES, RULES  # noqa: E402

FILE, PROTO = ROOT / "docs" / "solvers.md", ROOT / "proto" / "caffe.proto"
_HEAD = """# Solvers

<!-- Written by `tools/gen_solver_docs.py` from the code; do not edit. -->

A solver is a prototxt with fields such as these. [All fields](#fields) are below.

```prototxt
net: "models/digits/train_val.prototxt"
type: "Adam"
base_lr: 0.001
lr_policy: "step"
gamma: 0.1
stepsize: 5000
momentum: 0.9
max_iter: 10000
snapshot_prefix: "digits"
```

`pycaffe-lms train FILE` runs it, `caffe.get_solver(FILE)` makes it in Python. A field that the type or the
`lr_policy` does not read is reported by a warning.

## Types

`g` is the gradient: of all `iter_size` batches, divided by their number, clipped by `clip_gradients`, plus the decay.
The decay is `weight_decay` x `decay_mult` times the weight (`L2`) or its sign (`L1`). `r` is the learning rate times
the parameter's `lr_mult`; `h` and `h2` are *histories*, which begin at zero. The update `u` is subtracted from the
weight. A parameter with `lr_mult: 0` does not change.
"""
_RATES = {
    "fixed": "base_lr",
    "step": "base_lr * gamma ^ floor(iter / stepsize)",
    "exp": "base_lr * gamma ^ iter",
    "inv": "base_lr * (1 + gamma * iter) ^ -power",
    "multistep": "base_lr * gamma ^ (number of `stepvalue`s that iter has reached)",
    "poly": "base_lr * (1 - iter / max_iter) ^ power",
    "sigmoid": "base_lr / (1 + exp(-gamma * (iter - stepsize)))",
    "multifixed": "the first `stagelr` whose `stageiter` is iter or more, else the last",
    "cosine": "base_lr * (1 + cos(pi * min(1, iter / max_iter))) / 2",
    "plateau": "base_lr * gamma ^ (number of `plateau_winsize`s that passed, in turn, without a new minimum of the "
    "mean of `average_loss` losses)",
}
_SAID = {  # of fields that caffe.proto says nothing of
    "base_lr": "learning rate, before the factor of `lr_policy`",
    "debug_info": "log means of activations, gradients and updates",
    "gamma": "see Learning rate",
    "max_iter": "iterations of a training",
    "momentum": "share of the history that is kept; see Types",
    "net_param": "a net in the solver's own file",
    "power": "see Learning rate",
    "rms_decay": "share of the history that RMSProp keeps",
    "snapshot_after_train": "write a snapshot at the end",
    "snapshot_format": "HDF5 or BINARYPROTO",
    "solver_mode": "CPU or GPU; without it, a GPU if there is one",
    "test_compute_loss": "log the mean loss of a test",
    "test_net": "files of test nets",
    "test_net_param": "test nets in the solver's own file",
    "train_net_param": "a train net in the solver's own file",
    "weight_decay": "factor of the decay; see Types",
}

_MORE_RATES = """
Fields of NVIDIA's and Intel's Caffe change that rate:

* `rampup_interval`: in so many first iterations it is `rampup_lr + (base_lr - rampup_lr) * (iter / rampup_interval)^2`.
* `warmup_iter`: in so many first iterations it goes from `warmup_start_lr` to `base_lr` as a line.
* `min_lr`: no rate is lower, and poly ends there: `(base_lr - min_lr) * (1 - iter / max_iter)^power + min_lr`.
* `momentum_policy: "poly"` takes the momentum from `momentum` to `max_momentum` as `(iter / max_iter)^momentum_power`,
  `"opt"` makes it `(1 - sqrt(rate) / 2)^2`, at most `max_momentum`. `weight_decay_policy: "poly"` takes the decay from
  `weight_decay` to `max_weight_decay`.

## Rates of parameters

For type SGD, a parameter may have a rate of its own, from the L2 norms of its values W and of its gradient g (clipped,
divided by `iter_size`, without weight decay). Its `lr_mult` counts only where it is 0.

| | rate of the parameter | f, or 1 where a norm is zero |
|---|---|---|
| `larc: true` | rate × f | (1 - momentum) × `larc_eta` × norm(W) / norm(g) |
| `larc: true`, `larc_policy: "clip"` | the smaller of rate and f | the same |
| `local_lr_auto: true` | rate × f | `local_gw_ratio` × norm(W) / (norm(g) + `weight_decay` × norm(W)) |"""


def formulas() -> dict[str, str]:
    """Return the formula of every operation, as `ops/update_rules.py` states it."""
    block = inspect.cleandoc(update_rules.__doc__ or "").split("\n\n")[2]
    found: dict[str, str] = {}
    for line in inspect.cleandoc(block).splitlines():
        name, _, rest = line.strip().partition(" ")
        if name in update_rules.HISTORIES:
            last = name
            found[last] = rest.strip()
        else:
            found[last] += " " + line.strip()
    return found


def text() -> str:
    """Return the whole file."""
    told, lines = formulas(), [_HEAD]
    lines += ["| type | class | histories of a parameter | reads |", "|---|---|---:|---|"]
    for name, rule in RULES.items():
        reads = ", ".join(f"`{setting}`" for setting in OF_TYPES if rule.uses(setting))
        lines.append(f"| [{name}](#{name.lower()}) | `caffe.{name}Solver` | {rule.slots} | {reads} |")
    for name, rule in RULES.items():
        formula = re.sub(r"\bkeep2\b", rule.keep2 or "keep2", told[rule.operation])
        formula = re.sub(r"\bkeep\b", rule.keep or "keep", formula)
        formula = formula.replace("as adam", "as Adam").replace("pull decay", "rate * decay").replace("l1", "L1")
        steps = [part.strip() for part in re.split(r";\s+", formula)]
        lines += ["", f"### {name}", "", "```text", *steps, "```"]
        if rule.corrected:
            lines += [
                "",
                f"The rate `r` is multiplied by `sqrt(1 - {rule.keep2}^t) / (1 - {rule.keep}^t)`, where `t` is the "
                "number of this update, from 1 on: that corrects the bias of histories that begin at zero."
                + (" `rate` is `r` without that factor." if "rate * decay" in formula else ""),
            ]
        refusals = (inspect.getdoc(getattr(solvers, f"{name}Solver")) or "").partition("Raises SolverError ")[2]
        if refusals:
            lines += ["", f"An error is raised {' '.join(refusals.split())}"]
    lines += ["", "## Learning rate", "", "| `lr_policy` | rate of iteration iter | reads |", "|---|---|---|"]
    for policy, settings in USES.items():
        reads = ", ".join(f"`{s}`" for s in ("base_lr", *settings))
        rate = _RATES[policy].replace("`", "")
        lines.append(f"| {policy} | {rate.replace('*', '×')} | {reads} |")
    return "\n".join([*lines, _MORE_RATES, *_fields()]) + "\n"


def _fields() -> list[str]:
    """Return the table of all fields, with the comments of caffe.proto."""
    block = PROTO.read_text().partition("message SolverParameter {")[2].partition("\n}")[0]
    said = dict(re.findall(r"\b(\w+) = \d+(?: \[[^\]]*\])?;[ ]*//[ ]*(.*)", block))
    lines = ["", "## Fields", "", "| field | type | default | what it is |", "|---|---|---|---|"]
    for field in sorted(SolverParameter.DESCRIPTOR.fields, key=lambda f: f.name):
        kind = _KINDS.get(field.type) or (field.message_type or field.enum_type).name
        kind = "list of " * _repeated(field) + kind
        lines.append(f"| `{field.name}` | {kind} | {_default(field)} | {said.get(field.name) or _SAID[field.name]} |")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Write docs/solvers.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write docs/solvers.md from the code.", argv)


if __name__ == "__main__":
    sys.exit(main())
