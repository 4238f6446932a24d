"""Build and measure engines for another process: see `ahead.py`, which starts this file.

The command line names the cache folder. On stdin come pairs (name of a function of `build.py`, what it is called for);
on stdout goes an error's text for each, "" where there is none. The end of stdin ends this process.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence

from ....backend import cuda
from ....errors import CaffeError
from ....formats.cache_folder import use_cache_folder
from . import build

_FUNCTIONS: dict[str, Callable[[build.Wanted], object]] = {"prepare": build.prepare, "find": build.find}


def main() -> int:
    """Answer until there are no more questions."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    use_cache_folder(sys.argv[1])
    while True:
        try:
            what, task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return 0
        pickle.dump(_answer(_FUNCTIONS[what], task), answers)
        answers.flush()


def _answer(function: Callable[[build.Wanted], object], task: Sequence[build.Wanted]) -> str:
    for wanted in task:
        cuda.require().cuda.runtime.setDevice(wanted.device)
        try:
            function(wanted)
        except build.CudnnUnsupported:
            continue  # the other process will hear of it too
        except CaffeError as error:
            return error.message
    return ""


if __name__ == "__main__":
    sys.exit(main())
