"""Caffe's tool of this name, from a checkout: `pycaffe-lms plot_training_log`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pycaffe_lms.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["plot_training_log", *sys.argv[1:]]))
