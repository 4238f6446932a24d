"""A process that runs one module of the package: what it imports, and what it does not."""

import json
import subprocess

from pycaffe_lms.backend.child import child_command, child_environment, cores

MODULE = """
import json, os, sys
import numpy
from pycaffe_lms.errors import CaffeError

def main():
    modules = [name for name in sys.modules if name.startswith("pycaffe_lms")]
    print(json.dumps([sys.argv[1:], sorted(modules), os.environ["OPENBLAS_NUM_THREADS"], CaffeError.__name__]))
    return 3
"""


def test_it_imports_what_its_module_does_and_nothing_of_the_current_folder(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (there / "told.py").write_text(MODULE)
    (here / "numpy.py").write_text("raise SystemExit('a file beside the pictures')")
    (here / "importlib.py").write_text("raise SystemExit('a file beside the pictures')")
    monkeypatch.syspath_prepend(there)
    command = [*child_command("told"), "a", "b c"]
    done = subprocess.run(command, cwd=here, env=child_environment(), capture_output=True, text=True)
    assert done.returncode == 3 and not done.stderr
    assert json.loads(done.stdout) == [["a", "b c"], ["pycaffe_lms", "pycaffe_lms.errors"], "1", "CaffeError"]


def test_there_is_a_core():
    assert cores() >= 1
