"""A process that builds engines of the stand-in for cuDNN; the first word of its command line says how it fails."""

import os
import sys
import time
from types import SimpleNamespace

from pycaffe_lms.backend import cuda
from pycaffe_lms.ops.cuda.cudnn import library, worker

from .fake_cudnn import Frontend, Graph

how = sys.argv.pop(1)
fake = Frontend()
fake.engines = {"slow": 64, "fast": 128}
runtime = SimpleNamespace(setDevice=lambda device: None, getDeviceProperties=lambda device: {"name": b"GPU 9/x"})
cupy = SimpleNamespace(runtime=runtime, get_current_stream=lambda: SimpleNamespace(ptr=0))
library.load = lambda: (fake, "")
cuda.require = lambda: SimpleNamespace(cuda=cupy)


def no_handle():
    raise RuntimeError("no memory")


class Noted(Graph):
    """Notes when an engine was built."""

    def build_plan_at_index(self, index):
        print("a library that talks")
        if how == "sleeps":
            time.sleep(600)
        if how == "killed":
            os.kill(os.getpid(), 9)
        super().build_plan_at_index(index)


if how == "no memory":
    fake.create_handle = no_handle
fake.writes = how != "writes nothing"
fake.pygraph = lambda **settings: Noted(fake, settings)
if how == "no module":
    import no_such_module  # noqa: F401
sys.exit(worker.main())
