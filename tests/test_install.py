"""Tests `import caffe` after `install_as_caffe()`, each time in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(code: str, path: Path | None = None) -> str:
    """Return what a program prints on stdout; on an uncaught exception its last line."""
    lines = [f"import sys; sys.path.insert(0, {str(ROOT)!r})", f"sys.path.insert(0, {str(path)!r})" if path else ""]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join([*lines, textwrap.dedent(code)])],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def test_the_same_objects_under_both_names():
    assert (
        run("""
        import pycaffe_lms
        assert pycaffe_lms.install_as_caffe() is pycaffe_lms is pycaffe_lms.install_as_caffe()
        import caffe, importlib
        from caffe import layers as L, params as P
        from caffe.proto import caffe_pb2
        import caffe.net_spec as spec, caffe._caffe, caffe.pycaffe, caffe.proto.caffe_pb2
        from caffe.net_spec import NetSpec
        assert caffe is pycaffe_lms and L is pycaffe_lms.layers and caffe_pb2 is pycaffe_lms.proto.caffe_pb2
        assert spec is sys.modules["pycaffe_lms.net_spec"] and caffe._caffe.Blob is pycaffe_lms.blob.Blob
        assert NetSpec is caffe.NetSpec and caffe.layers is L and caffe.params is P
        assert caffe.net_spec.__spec__.name == caffe.net_spec.__name__ == "pycaffe_lms.net_spec"
        assert importlib.reload(caffe._caffe).Blob is pycaffe_lms.blob.Blob
        n = NetSpec()
        n.x = L.Input(shape=dict(dim=[2, 3]))
        n.y = L.Pooling(n.x, pool=P.Pooling.MAX)
        assert isinstance(n.to_proto(), caffe_pb2.NetParameter)
        modules = [m for m in sys.modules if m.startswith("caffe")]
        assert all(sys.modules[m] is sys.modules["pycaffe_lms" + m[5:]] for m in modules)
        print(sorted(modules))
    """)
        == "['caffe', 'caffe._caffe', 'caffe.net_spec', 'caffe.proto', 'caffe.proto.caffe_pb2', 'caffe.pycaffe']"
    )


def test_modules_that_pycaffe_has_not():
    """Other modules of this package are not caffe's; above all caffe.layers stays what net_spec makes it."""
    assert (
        run("""
        import pycaffe_lms
        pycaffe_lms.install_as_caffe()
        import caffe
        for name in ("layers", "solvers.sgd", "nothing", "proto.nothing"):
            try:
                __import__("caffe." + name)
            except ModuleNotFoundError as error:
                assert error.name in ("caffe." + name, "caffe.solvers") and "caffe is pycaffe_lms" in str(error)
            else:
                raise SystemExit(name)
        from caffe import layers as L
        print(type(L).__name__, __import__("importlib.util").util.find_spec("some_package_that_is_not_there"))
    """)
        == "Layers None"
    )


def test_pickles_that_name_caffes_modules():
    assert (
        run(r"""
        import pickle, pycaffe_lms
        datum = pycaffe_lms.proto.caffe_pb2.Datum(channels=3, label=7)
        stored = pickle.dumps(datum, protocol=0).replace(b"pycaffe_lms.proto.caffe_pb2", b"caffe.proto.caffe_pb2")
        shape = b"ccaffe.net_spec\nNetSpec\n."
        assert b"caffe.proto" in stored or b"caffe_pb2" in stored
        try:
            pickle.loads(shape)
        except ModuleNotFoundError:
            pass
        pycaffe_lms.install_as_caffe()
        assert pickle.loads(stored) == datum and pickle.loads(shape) is pycaffe_lms.NetSpec
        print("done")
    """)
        == "done"
    )


def test_another_caffe_that_was_imported_first(tmp_path):
    (tmp_path / "caffe.py").write_text("TRAIN = 5\n")
    said = run("import caffe, pycaffe_lms; pycaffe_lms.install_as_caffe()", tmp_path)
    assert f"another caffe is imported already ({tmp_path}/caffe.py)" in said and "before anything imports" in said
    ours = "import pycaffe_lms; pycaffe_lms.install_as_caffe(); import caffe; print(caffe.TRAIN)"
    assert run(ours, tmp_path) == "0"


def test_a_python_layer_written_for_pycaffe(tmp_path):
    """Its module says `import caffe`, and it runs in a net of this package."""
    (tmp_path / "their_layers.py").write_text(
        textwrap.dedent("""
        import caffe
        import numpy as np

        class Double(caffe.Layer):
            def setup(self, bottom, top):
                self.factor = eval(self.param_str)["factor"]

            def reshape(self, bottom, top):
                top[0].reshape(*bottom[0].data.shape)

            def forward(self, bottom, top):
                top[0].data[...] = bottom[0].data * self.factor

            def backward(self, top, propagate_down, bottom):
                if propagate_down[0]:
                    bottom[0].diff[...] = top[0].diff * self.factor
    """)
    )
    net = tmp_path / "net.prototxt"
    net.write_text("""force_backward: true
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }
        layer { name: "d" type: "Python" bottom: "x" top: "d"
                python_param { module: "their_layers" layer: "Double" param_str: "{'factor': 4}" } }""")
    assert (
        run(
            f"""
        import pycaffe_lms; pycaffe_lms.install_as_caffe()
        import caffe
        net = caffe.Net({str(net)!r}, caffe.TRAIN)
        net.blobs["x"].data[...] = [1, 3]
        print(net.forward()["d"].tolist(), net.backward(d=[1, 2])["x"].tolist())
    """,
            tmp_path,
        )
        == "[4.0, 12.0] [4.0, 8.0]"
    )


@pytest.mark.parametrize("name", ["NetSpec", "Net", "layers", "TEST"])
def test_what_caffe_offers_is_listed(name):
    import pycaffe_lms

    assert name in pycaffe_lms.__all__ and name in dir(pycaffe_lms)
