"""Build engines for another process: see `ahead.py`, which starts this file.

The command line names the cache folder. On stdin come passes of convolutions; on stdout goes what `build.written` says
of each, or an error's text. The end of stdin ends this process.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys

from ....backend import cuda
from ....errors import CaffeError
from ....formats.cache_folder import use_cache_folder
from . import build
from .choice import Written


def main() -> int:
    """Answer until there are no more questions."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    use_cache_folder(sys.argv[1])
    while True:
        try:
            wanted = pickle.load(sys.stdin.buffer)
        except EOFError:
            return 0
        pickle.dump(_answer(wanted), answers)
        answers.flush()


def _answer(wanted: build.Wanted) -> list[Written] | str:
    cuda.require().cuda.runtime.setDevice(wanted.device)
    try:
        return build.written(wanted)
    except build.CudnnUnsupported:
        return []  # the other process will hear of it too
    except CaffeError as error:
        return error.message


if __name__ == "__main__":
    sys.exit(main())
