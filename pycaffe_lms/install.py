"""Makes `import caffe` mean this package, for code that cannot be changed: scripts, Python layers, pickles.

import pycaffe_lms
pycaffe_lms.install_as_caffe()
import caffe                          # this package
from caffe.proto import caffe_pb2     # and its modules: the same objects, not copies
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .errors import UsageError

NAME = "caffe"
# pycaffe's modules. Other modules of this package are not among them: caffe.layers is an object, as in pycaffe.
MODULES = frozenset(
    {"_caffe", "classifier", "coord_map", "detector", "draw", "io", "net_spec", "proto", "proto.caffe_pb2", "pycaffe"}
)


class _Alias(Loader):
    """Load a module that exists under another name: the same object."""

    def __init__(self, real: str):
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._module = importlib.import_module(self._real)
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it; the module has run already


class CaffeFinder(MetaPathFinder):
    """Find `caffe.x` in this package, before the search of paths, which would load second copies of our files."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{NAME}."):
            return None
        inside = fullname[len(NAME) + 1 :]
        real = f"{__package__}.{inside}"
        if inside not in MODULES or importlib.util.find_spec(real) is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r} ({NAME} is {__package__}; it has {', '.join(sorted(MODULES))})",
                name=fullname,
            )
        return ModuleSpec(fullname, _Alias(real))


def install_as_caffe() -> ModuleType:
    """Let `import caffe`, and the modules that pycaffe has, mean this package in the whole process; return it.

    A second call has no effect. Another caffe that is installed is not used then. Raises UsageError where another caffe
    is imported already: its objects would mix with ours.
    """
    ours = sys.modules[__package__]
    other = sys.modules.get(NAME)
    if other is not None and other is not ours:
        place = getattr(other, "__file__", None) or "unknown place"
        raise UsageError(
            f"another caffe is imported already ({place})",
            fix="call pycaffe_lms.install_as_caffe() first, before anything imports caffe",
        )
    if other is None:
        sys.meta_path.insert(0, CaffeFinder())
        sys.modules[NAME] = ours
    return ours
