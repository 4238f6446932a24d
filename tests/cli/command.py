"""Run the command line as a user does, here or in a process of its own, and take its output apart."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pycaffe_lms
from pycaffe_lms.cli.main import main

# Severity, month and day, time, thread, file:line] message: as parse_log and its kin read it.
LOG_LINE = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] (.*)$")


@dataclass(frozen=True)
class Finished:
    """code: exit code. out: stdout. log: messages of log lines. said: what else stood on stderr."""

    code: int
    out: str
    log: list[str]
    said: list[str]
    stderr: str


def caffe(*argv: str, cwd: Path) -> Finished:
    """`pycaffe-lms argv...` in the folder `cwd` and in this process, which saves the time to start one."""
    out, err = io.StringIO(), io.StringIO()
    before = os.getcwd()
    os.chdir(cwd)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(list(argv))
    finally:
        os.chdir(before)
    return _finished(code, out.getvalue(), err.getvalue())


def process(*argv: str, cwd: Path, path: Path | None = None) -> Finished:
    """`python -m pycaffe_lms argv...` in the folder `cwd`; path: where Python layers are found, too."""
    ours = str(Path(pycaffe_lms.__file__).parents[1])
    path = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH"), path and str(path)]))
    done = subprocess.run(
        [sys.executable, "-m", "pycaffe_lms", *argv],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return _finished(done.returncode, done.stdout, done.stderr)


def _finished(code: int, out: str, stderr: str) -> Finished:
    lines = stderr.splitlines()
    matches = [LOG_LINE.match(line) for line in lines]
    return Finished(
        code,
        out,
        [m.group(1) for m in matches if m],
        [line for line, m in zip(lines, matches, strict=True) if not m],
        stderr,
    )


def complaint(done: Finished, code: int) -> tuple[str, str]:
    """The one message of a command that failed, and its fix. Everything else on stderr must be log lines."""
    assert done.code == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.said) == 2, done.said
    message, fix = done.said
    assert message.startswith("error: ") and fix.startswith("  fix: ") and len(fix) > len("  fix: x"), done.said
    return message.removeprefix("error: "), fix.removeprefix("  fix: ")
