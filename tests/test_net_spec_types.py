"""What editors and type checkers know of NetSpec: every layer type with its keywords, and the constants."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from keyword import iskeyword
from pathlib import Path

import pytest

from pycaffe_lms import layers as L
from pycaffe_lms import params as P
from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.registry import LAYERS, layer_class
from pycaffe_lms.net_spec import keyword_messages
from pycaffe_lms.proto import caffe_pb2

ROOT = Path(__file__).resolve().parents[1]
layer_class("ReLU")  # registers every type


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_net_spec_types

    return gen_net_spec_types


@pytest.fixture(scope="module")
def classes():
    """{class: its body} of the stub on disk."""
    path = ROOT / "pycaffe_lms" / "proto" / "net_spec_types.pyi"
    return {n.name: n.body for n in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(n, ast.ClassDef)}


def keywords(method):
    return [a.arg for a in method.args.kwonlyargs]


def test_the_stub_is_current(generator, capsys):
    assert generator.main(["--check"]) == 0, "run: python tools/gen_net_spec_types.py"


def test_check_writes_nothing(generator, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(generator, "FILE", tmp_path / "types.pyi")
    assert generator.main(["--check"]) == 1
    assert capsys.readouterr().out == "not current: types.pyi\n" and not list(tmp_path.iterdir())
    assert generator.main([]) == 0 and generator.main(["--check"]) == 0


def test_every_type_has_every_field_of_its_messages(classes):
    methods = {m.name: m for m in classes["LayerTypes"]}
    assert methods.keys() == LAYERS.keys()
    for name, method in methods.items():
        given = keywords(method)
        assert given[:2] == ["ntop", "in_place"] and len(given) == len(set(given))
        for home in keyword_messages(name):
            message = caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name[home].message_type
            assert set(given) >= {f.name for f in message.fields if not iskeyword(f.name)}, name
            assert home in given


def test_netspec_takes_every_keyword_of_the_stub(classes):
    for method in classes["LayerTypes"]:
        for keyword in keywords(method)[2:]:
            assert getattr(L, method.name)(**{keyword: None}).fn.params == {keyword: None}
        with pytest.raises(LayerParamError):
            getattr(L, method.name)(no_such_keyword=1)


def test_defaults_are_those_of_the_schema(classes):
    """Three that Caffe documents, of each kind."""
    by_name = {m.name: m for m in classes["LayerTypes"]}

    def default(layer, keyword):
        arguments = by_name[layer].args
        return ast.unparse(arguments.kw_defaults[keywords(by_name[layer]).index(keyword)])

    assert default("BatchNorm", "eps") == "1e-05" and default("Pooling", "pool") == "'MAX'"
    assert default("Convolution", "bias_term") == "True" and default("Convolution", "num_output") == "..."
    assert default("LRN", "local_size") == "5" and default("ImageData", "root_folder") == "''"


def test_every_constant_is_a_message(classes):
    names = {n.target.id for n in classes["ParameterTypes"]}
    known = {m.removesuffix("Parameter") for m in caffe_pb2.DESCRIPTOR.message_types_by_name if m.endswith("Parameter")}
    assert names == known
    assert all(issubclass(getattr(P, name), caffe_pb2.PoolingParameter.__base__) for name in names)


GOOD = """
import numpy as np
from pycaffe_lms import NetSpec, layers as L, params as P
n = NetSpec()
n.data, n.label = L.Data(batch_size=64, source="train_lmdb", backend=P.Data.LMDB, ntop=2)
n.c = L.Convolution(n.data, num_output=20, kernel_size=[3, 5], weight_filler=dict(type="xavier"),
                    param=[dict(lr_mult=1), dict(lr_mult=2, decay_mult=0)])
n.p = L.Pooling(n.c, pool="AVE", kernel_size=2, stride=np.int64(2))
n.q = L.Pooling(n.c, pool=P.Pooling.MAX, kernel_size=(2, 3), pooling_param={"stride": 2})
n.r = L.ReLU(n.q, in_place=True)
n.s = L.Scale(n.r, bias_term=True, filler={"value": 1}, axis=-1)
n.ip = L.InnerProduct(n.s, num_output=10, include={"phase": 0}, name="fc")
n.loss = L.SoftmaxWithLoss(n.ip, n.label, ignore_label=255, loss_weight=0.5)
L.Silence(n.p, ntop=0)
"""
WRONG = {  # a line, and what mypy says of it
    "L.InnerProduct(n.p, num_outputs=10)": 'Unexpected keyword argument "num_outputs"',
    'L.InnerProduct(n.p, num_output="10")': 'incompatible type "str"',
    "L.InnerProdukt(n.p, num_output=10)": '"Layers" has no attribute "InnerProdukt"',
    'L.Pooling(n.p, pool="AVG")': "incompatible type \"Literal['AVG']\"",
    "L.Pooling('data')": 'expected "Top"',
    "P.Pooling.AVG": 'has no attribute "AVG"',
    "P.Poolin": '"Parameters" has no attribute "Poolin"',
}


def test_mypy_knows_the_keywords(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "net.py").write_text(GOOD + "\n".join(WRONG))
    command = [sys.executable, "-m", "mypy", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    options = ["--no-error-summary", "--hide-error-context", "--ignore-missing-imports", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, *options, "net.py"], cwd=tmp_path, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True
    )
    lines = [line for line in done.stdout.decode().splitlines() if ": error: " in line]
    first = GOOD.count("\n") + 1
    found = {int(line.split(":")[1]): line for line in lines}
    assert sorted(found) == list(range(first, first + len(WRONG))) and len(lines) == len(found), done.stdout.decode()
    for k, says in enumerate(WRONG.values()):
        assert says in found[first + k]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("from pycaffe_lms import layers as L\nL.Convol", ["Convolution", "ConvolutionDepthwise"]),
        ("from pycaffe_lms import layers as L\nL.Convolution(kernel_si", ["kernel_size="]),
        ("import pycaffe_lms as caffe\ncaffe.layers.InnerProduct(num_", ["num_output="]),
        ("from pycaffe_lms.net_spec import params as P\nP.Pooling.MA", ["MAX"]),
    ],
)
def test_jedi_completes(text, expected):
    jedi = pytest.importorskip("jedi")
    project = jedi.Project(str(ROOT))
    assert [c.name for c in jedi.Script(text, project=project).complete()] == expected
