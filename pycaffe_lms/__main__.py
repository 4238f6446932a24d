"""`python -m pycaffe_lms` is `pycaffe-lms`."""

import sys

from .cli.main import main

sys.exit(main())
