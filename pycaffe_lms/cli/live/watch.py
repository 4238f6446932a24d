"""Declare the flags that follow a training, -progress, -metrics, -tensorboard and -plot, and make their watchers."""

from __future__ import annotations

import argparse
import sys

from ...viz.text_chart import TERMINAL
from .. import terminal
from .curves import Curves
from .event_files import EventFiles
from .live import Live
from .metrics import Metrics
from .watcher import Watcher


def add_watch(p: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    g = p.add_argument_group("Following a run")
    terminal.add_progress(
        g,
        "how far it is, loss, rate, images/s, device memory and the time that is left, below the log",
        "Caffe's log lines alone",
    )
    g.add_argument(
        "--metrics",
        default="",
        metavar="FILE.jsonl",
        help="append a JSON object per display and per test, a line each; iteration, time, loss, lr, outputs, "
        "images/s, memory; a resumed run continues the file",
    )
    g.add_argument(
        "--tensorboard",
        default="",
        metavar="DIR",
        help="write the same numbers as event files for TensorBoard into this folder (needs the package tensorboardX)",
    )
    g.add_argument(
        "--plot",
        default="",
        metavar="FILE.png|svg",
        help="draw the learning curves when the run ends; with -metrics from the file's beginning (needs the package "
        "matplotlib); -: the loss in plain characters, as is done in a terminal unless -progress is log",
    )


def watchers(args: argparse.Namespace) -> list[Watcher]:
    """Return the watchers that the flags ask for. Raises MissingDependency, UsageError."""
    made: list[Watcher] = []
    if args.plot:  # before -metrics adds to the file that it reads
        made.append(Curves(args.plot, args.metrics))
    elif sys.stderr.isatty() and args.progress != "log":
        made.append(Curves(TERMINAL, args.metrics))
    if args.metrics:
        made.append(Metrics(args.metrics))
    if args.tensorboard:
        made.append(EventFiles(args.tensorboard))
    if terminal.wants_bar(args.progress):
        made.append(Live())
    return made
