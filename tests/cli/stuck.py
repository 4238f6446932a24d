"""`pycaffe-lms`, but ranks complain of each other soon, and note their processes in a file each."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pycaffe_lms.cli import main
from pycaffe_lms.cli.commands import train
from pycaffe_lms.parallel import communicator
from pycaffe_lms.parallel.launch import Rank

_run_rank = train.run_rank


def run_rank(args: argparse.Namespace, rank: Rank) -> int:
    communicator.WARN_S = 1.0
    Path(f"rank{rank.index}").write_text(str(os.getpid()))
    return _run_rank(args, rank)


if __name__ == "__main__":
    from tests.cli import stuck  # as the ranks' processes find it

    train.run_rank = stuck.run_rank
    sys.exit(main.main())
