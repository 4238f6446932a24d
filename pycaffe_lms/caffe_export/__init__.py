"""Export a net in phase TEST, with its weights, as Caffe files for the toolchain of a chip.

Read in this order: `chips.py` (the documents' lists, as data in `chips/`), `facts.py` (what their limits speak of),
`fields.py` (what no other Caffe knows), `export.py` (net to files), `check.py` (reads them again, and compares).
"""

from .check import check_caffe
from .chips import CHIPS
from .export import export_caffe

__all__ = ["CHIPS", "check_caffe", "export_caffe"]
