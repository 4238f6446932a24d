"""SSD's tool of this name, from a checkout: `pycaffe-lms get_image_size`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pycaffe_lms.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["get_image_size", *sys.argv[1:]]))
