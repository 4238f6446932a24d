"""Break the package in one place at a time, in a copy of it, and see whether tests notice.

    python tools/mutants.py [--only NAME] [-- pytest arguments]

Without pytest arguments, the tests of the mutant's area run. To see whether a smaller sample of a sweep finds as much:

    python tools/mutants.py -- tests/lms/test_optimise.py
    python tools/mutants.py -- tests/lms/test_optimise.py -m ""

Prints a line per mutant and how many were found. The exit code is 1 if some survived.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("pycaffe_lms", "tests", "tools", "models", "proto", "docs", "pyproject.toml", "README.md", "CHANGES.md")
LIMIT = 900  # seconds of one mutant's tests; all of an area's take a third
AREAS = {
    "planner": ["tests/lms"],
    "verifier": ["tests/lms", "tests/tools/test_fuzz.py"],
    "memory": ["tests/memory", "tests/lms", "tests/net"],
    "layers": ["tests/layers", "tests/lms/test_every_layer.py"],
}


@dataclass(frozen=True)
class Mutant:
    """`old`, which stands in the file once, becomes `new`."""

    area: str
    name: str
    file: str
    old: str
    new: str


def _mutants(area: str, *rows: tuple[str, str, str, str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(area, *row) for row in rows)


MUTANTS = (
    *_mutants(
        "planner",
        (
            "what is changed need not be there",
            "lms/planner/lookahead.py",
            "= run[0][1] is not Mode.OVERWRITE",
            "= run[0][1] is Mode.READ",
        ),
        (
            "nothing lives beyond the end",
            "lms/planner/lookahead.py",
            "if following else b in program.live_out",
            "if following else False",
        ),
        (
            "a prefetch begins before the host is done",
            "lms/planner/lookahead.py",
            "                earliest = s + 1\n",
            "                earliest = s\n",
        ),
        (
            "a copy in does not wait for the copy out",
            "lms/planner/lowering.py",
            "            if b in copied_out:\n",
            "            if False:\n",
        ),
        (
            "the host does not wait for copies in",
            "lms/planner/lowering.py",
            "host_users.setdefault(b, set()).add(copied_in[i])",
            "pass",
        ),
        (
            "a wait too few",
            "lms/planner/lowering.py",
            "self.ops[w].stream] >= w for v",
            "self.ops[w].stream] >= w - 1 for v",
        ),
        (
            "live ranges overlap by a step",
            "lms/layout/packing.py",
            "overlaps = (end >= start) & (first <= last)",
            "overlaps = (end > start) & (first <= last)",
        ),
        (
            "the second live range is not looked at",
            "lms/layout/packing.py",
            "overlaps |= (end >= also[0]) & (first <= also[1])",
            "overlaps |= (end >= also[0]) & (first < also[0])",
        ),
        (
            "what was written on the device counts as saved",
            "lms/planner/evict.py",
            "x.maker, x.made, x.clean = s, self.times[s + 1], False",
            "x.maker, x.made = s, self.times[s + 1]",
        ),
        (
            "a remat step is valid as long as its last input",
            "lms/remat/candidates.py",
            "found[s] = min((self.next_write",
            "found[s] = max((self.next_write",
        ),
        (
            "memory is reused in place twice",
            "lms/planner/evict.py",
            "return not {old, new} & {*self.reusing, *self.reusing.values()}",
            "return True",
        ),
    ),
    *_mutants(
        "verifier",
        ("one operation too early is fine", "lms/plan/verify.py", ".stream, -1) < other:", ".stream, -1) < other - 1:"),
        (
            "a stale value may be read",
            "lms/plan/verify.py",
            "if mode is not Mode.OVERWRITE and version",
            "if mode is Mode.UPDATE and version",
        ),
        (
            "a buffer may leave before it is saved",
            "lms/plan/verify.py",
            "if b in op.frees and self.host[b]",
            "if b in op.frees and not self.host[b]",
        ),
        (
            "a read may still be under way",
            "lms/plan/verify.py",
            "            if writes:\n                self._ordered(op, b, known, self.read",
            "            if False:\n                self._ordered(op, b, known, self.read",
        ),
        (
            "a buffer may leave while a part of it is copied",
            "lms/plan/verify.py",
            "        if b in self.under_way:\n            raise",
            "        if False:\n            raise",
        ),
        (
            "host slots may overlap",
            "lms/plan/verify.py",
            "and offset < slot[1] + size and slot[1] < end:",
            "and offset == slot[1]:",
        ),
        ("places may overlap", "lms/plan/verify.py", "        if other is not None:\n", "        if False:\n"),
        (
            "a host copy may be old",
            "lms/plan/verify.py",
            'self.newest[b]:\n                raise _wrong(self.plan, op, "the host',
            'self.host[b]:\n                raise _wrong(self.plan, op, "the host',
        ),
        (
            "a remat step with one right input is right",
            "lms/remat/candidates.py",
            "all(before[1].get(x) == v for x, v in inputs)",
            "(not inputs or any(before[1].get(x) == v for x, v in inputs))",
        ),
    ),
    *_mutants(
        "memory",
        (
            "a write on the device leaves the host current",
            "memory/states.py",
            "(_S, Ask.WRITE_GPU): ((), _G),",
            "(_S, Ask.WRITE_GPU): ((), _S),",
        ),
        (
            "a save is forgotten",
            "memory/states.py",
            "(_G, Ask.SAVE): ((Do.TAKE_CPU, Do.COPY_DOWN), _S),",
            "(_G, Ask.SAVE): ((Do.TAKE_CPU,), _S),",
        ),
        ("one part counts as the whole copy", "memory/synced.py", "sum(part) < self.nbytes", "part[0] < 0"),
        (
            "a lent host slot stays current",
            "memory/synced.py",
            "            self.state = State.HEAD_AT_GPU\n",
            "            pass\n",
        ),
        (
            "the host does not wait for its copy",
            "memory/synced.py",
            "and self.host_event is not None:\n            self.device.wait_host(self.host_event)\n",
            "and self.host_event is not None:\n",
        ),
        (
            "parts of split memory miss what was written",
            "memory/split_memory.py",
            "theirs[:] = mine",
            "pass",
        ),
    ),
    *_mutants(
        "layers",
        (
            "dropout keeps other elements in backward",
            "layers/activation/dropout.py",
            "drop(x, y, self.ratio, key,",
            "drop(x, y, self.ratio / (1 + (drop == io.ops.dropout.backward)), key,",
        ),
        (
            "a product reads no other bottom",
            "layers/shape/eltwise.py",
            "return Needs(bottoms=frozenset(others))",
            "return Needs(bottoms=frozenset(wanted))",
        ),
        (
            "PReLU's slope needs no bottom",
            "layers/activation/relu.py",
            "if propagate_down[0] or param_propagate[0] else",
            "if propagate_down[0] else",
        ),
        (
            "rematerializing adds to the statistics",
            "layers/norm/batch_norm.py",
            "    def rematerialize(self, io: Pass) -> None:\n        if self.use_global:",
            "    def rematerialize(self, io: Pass) -> None:\n        if True:",
        ),
        (
            "statistics are not kept to rematerialize",
            "layers/norm/batch_norm.py",
            "backward=self.scaled or self._sync, remat_reads=not self.use_global)",
            "backward=self.scaled or self._sync, remat_reads=False)",
        ),
        (
            "the deviation is not saved for backward",
            "layers/norm/batch_norm.py",
            '"inv_std", moments, lives=kept,',
            '"inv_std", moments, lives=Lives.CALL,',
        ),
    ),
)


def copy_of(root: Path, folder: Path) -> None:
    """The files that tests need, with their times, so that compiled kernels stay valid."""
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name)
        else:
            shutil.copy2(root / name, folder / name)


def found(mutant: Mutant, folder: Path, arguments: list[str]) -> str | None:
    """The first test that fails because of the mutant; None: it survives."""
    path = folder / "pycaffe_lms" / mutant.file
    text, times = path.read_text(), path.stat()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file} has {text.count(mutant.old)} times what {mutant.name!r} changes")
    path.write_text(text.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    try:
        made = subprocess.run(
            [*command, *(arguments or AREAS[mutant.area])],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(folder)},
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return f"the tests do not end within {LIMIT} s"
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if made.returncode == 0:
        return None
    if made.returncode not in (1, 2):
        raise SystemExit(made.stdout + made.stderr)
    failed = [line.split(" ")[1] for line in made.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else "the tests cannot be collected"


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", action="append", help="part of a mutant's name, or an area; may be given again")
    args, arguments = parser.parse_known_args()
    arguments = [a for a in arguments if a != "--"]
    chosen = [m for m in MUTANTS if not args.only or any(o == m.area or o in m.name for o in args.only)]
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_of(ROOT, Path(folder))
        for mutant in chosen:
            began = time.monotonic()
            by = found(mutant, Path(folder), arguments)
            survived += by is None
            print(f"{mutant.area}: {mutant.name}: {by or 'SURVIVES'} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} found")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
