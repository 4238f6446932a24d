"""Let `python -m pycaffe_lms` import what the installed command imports: nothing from the current folder.

With `-m` Python searches the current folder first, so a file `numpy.py` beside a model would be run. This module is
imported before any other, and removes the folder. If the package itself is in it (a checkout), the folder is searched
last, as with an installation of the checkout. The module imports only what Python has loaded already.
"""

import os
import sys

_PACKAGE, _ROOT = __name__.partition(".")[0], os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def searched(path: list[str], argv: list[str], command: list[str], root: str) -> list[str]:
    """Return `path` without the folder that `-m` put first.

    Args:
        path: sys.path.
        argv, command: sys.argv and sys.orig_argv while a package is imported.
        root: the folder that contains the package.
    """
    asked = command[len(command) - len(argv)] if 0 < len(argv) <= len(command) else ""
    if asked.startswith("-"):  # "-mname", in place of "-m name"
        asked = asked.partition("m")[2]
    ours = argv[:1] == ["-m"] and asked.split(".")[0] == _PACKAGE
    if not ours:
        return list(path)
    return path[1:] + [folder for folder in path[:1] if folder == root]


if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):  # then Python puts nothing first
    sys.path[:] = searched(sys.path, sys.argv, sys.orig_argv, _ROOT)
