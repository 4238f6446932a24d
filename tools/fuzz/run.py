"""Give damaged files to every reader of files that others may have written.

    python tools/fuzz/run.py [--target T] [--seconds S] [--count N] [--seed N] [--first N] [--keep FOLDER]

A child is forked for each target, with limits on memory and time. It is a failure if a reader crashes, takes more than
5 seconds of a processor, more than 1 GiB beside what the process has, or raises what is no CaffeError. An input is made
from (target, seed, number) alone; those that fail are kept, and `--first NUMBER --count 1` runs one again.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import logging
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from inputs import changed  # noqa: E402
from targets import TARGETS, Files, Target  # noqa: E402, F401

from pycaffe_lms.errors import CaffeError  # noqa: E402

SECONDS = 5  # of a processor, for one input
WALL = 120  # seconds that one input may take where the machine is busy, or the reader waits
MEMORY = 1 << 30  # bytes beside those of the process
AT_ONCE = 2000  # inputs of one child
FAILURES = 20  # of one target: then it is given up


@dataclass(frozen=True)
class Finding:
    """An input that a reader does not stand, and what happened."""

    target: str
    seed: int
    number: int
    what: str


@functools.cache
def corpus(target: str) -> list[Files]:
    """The valid inputs of a target."""
    return TARGETS[target].files()


def input_of(target: str, seed: int, number: int) -> Files:
    """The damaged input of that number."""
    rng = random.Random(f"{target} {seed} {number}")
    files = dict(rng.choice(corpus(target)))
    name = rng.choice(sorted(files))
    files[name] = changed(files[name], TARGETS[target].changes, rng)
    return files


def put(files: Files, folder: Path) -> None:
    """Write files into a folder that is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def fuzz(
    target: str, *, seed: int = 0, first: int = 0, count: int | None = None, seconds: float | None = None, folder: Path
) -> tuple[int, list[Finding]]:
    """(number of inputs, findings) of one target, until `count` inputs were read or `seconds` are over."""
    corpus(target)
    findings: list[Finding] = []
    end = None if seconds is None else time.monotonic() + seconds
    number, last = first, None if count is None else first + count
    while (last is None or number < last) and (end is None or time.monotonic() < end) and len(findings) < FAILURES:
        stop = number + AT_ONCE if last is None else min(last, number + AT_ONCE)
        number = _in_a_child(target, seed, number, stop, end, folder, findings)
    return number - first, findings


def _in_a_child(target, seed, number, stop, end, folder, findings) -> int:
    """Read inputs `number`..`stop` in a child, up to one that ends it. Returns the number after the last."""
    shared, (reader, writer) = mmap.mmap(-1, 8), os.pipe()
    shared[:] = struct.pack("q", number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where libraries have threads: none is used
        child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            status = _child(target, seed, number, stop, end, folder, shared, writer)
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    at = struct.unpack("q", shared[:])[0]
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        more = {"SIGPROF": f": more than {SECONDS} seconds of a processor", "SIGALRM": f": more than {WALL} seconds"}
        findings.append(Finding(target, seed, at, name + more.get(name, "")))
        return at + 1
    if text:
        findings.append(Finding(target, seed, at, text))
        return at + 1
    assert os.WEXITSTATUS(status) == 0, "the fuzzer itself failed"
    return at


def _child(target, seed, number, stop, end, folder, shared, writer) -> int:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.disable()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while number < stop and (end is None or time.monotonic() < end):
        shared[:] = struct.pack("q", number)
        put(input_of(target, seed, number), folder)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, WALL)
        try:
            TARGETS[target].read(folder)
        except CaffeError as error:
            str(error)
        except BaseException:
            text = traceback.format_exc()
            os.write(writer, text[-4000:].encode("utf-8", "backslashreplace"))
            return 0
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        number += 1
    shared[:] = struct.pack("q", number)
    return 0


def keep(finding: Finding, folder: Path) -> Path:
    """Write the input of a finding, and what happened, into a folder of its own. Returns that."""
    place = folder / f"{finding.target.replace(' ', '-')}-{finding.seed}-{finding.number}"
    put(input_of(finding.target, finding.seed, finding.number), place)
    (place / "what.txt").write_text(finding.what, errors="backslashreplace")
    return place


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", action="append", choices=TARGETS, help="one reader; may be given again")
    parser.add_argument("--seconds", type=float, help="for each target (default: 10, unless --count is given)")
    parser.add_argument("--count", type=int, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where inputs that fail are kept")
    args = parser.parse_args()
    seconds = 10.0 if args.seconds is None and args.count is None else args.seconds
    total = failed = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for target in args.target or TARGETS:
            done, findings = fuzz(
                target,
                seed=args.seed,
                first=args.first,
                count=args.count,
                seconds=seconds,
                folder=Path(folder, "input"),
            )
            print(f"{target}: {done} inputs, {len(findings)} findings", flush=True)
            for finding in findings:
                print(f"  seed {args.seed}, number {finding.number}, kept in {keep(finding, args.keep)}:")
                print("    " + finding.what.strip().replace("\n", "\n    "), flush=True)
            total, failed = total + done, failed + len(findings)
    print(f"{total} inputs, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
