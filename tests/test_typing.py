"""What type checkers see: every public name says what it takes and gives, and the message classes have their fields."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import keyword
import typing
from pathlib import Path

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.proto import caffe_pb2
from pycaffe_lms.pycaffe.net import PycaffeNet

ROOT = Path(caffe.__file__).parent
STUB = ROOT / "proto" / "caffe_pb2.pyi"
MODULES = (
    "blob",
    "classifier",
    "coord_map",
    "detector",
    "draw",
    "io",
    "net_spec",
    "vectors",
    "pycaffe.classes",
    "pycaffe.lms",
    "pycaffe.mode",
    "pycaffe.timer",
)
DYNAMIC = {"NetSpec", "Layers", "Parameters"}  # their attributes are looked up by name


def public_functions():
    """(name, function) of what users call: of the modules' own functions and classes, inherited methods too."""
    found = {}
    for module in map(importlib.import_module, (f"pycaffe_lms.{name}" for name in MODULES)):
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(thing):
                found[f"{module.__name__}.{name}"] = thing
            elif inspect.isclass(thing):
                for key, function in methods(thing):
                    found.setdefault(f"{module.__name__}.{name}.{key}", function)
    return found


def methods(cls: type):
    """(name, function), those of the class before those of its bases."""
    for base in cls.__mro__:
        if not base.__module__.startswith("pycaffe_lms."):
            continue
        for key, member in vars(base).items():
            shown = (
                not key.startswith("_") or key == "__init__" or (key.startswith("__get") and cls.__name__ in DYNAMIC)
            )
            member = getattr(member, "fget", getattr(member, "__func__", member))
            if shown and inspect.isfunction(member):
                yield key, member


FUNCTIONS = public_functions()


def test_the_walk_finds_what_users_call():
    assert FUNCTIONS.keys() >= {
        "pycaffe_lms.pycaffe.classes.Net.forward",
        "pycaffe_lms.pycaffe.classes.AdamSolver.step",
        "pycaffe_lms.pycaffe.classes.AdamWSolver.step",
        "pycaffe_lms.pycaffe.classes.LionSolver.step",
        "pycaffe_lms.blob.Blob.data",
        "pycaffe_lms.io.load_image",
        "pycaffe_lms.net_spec.NetSpec.__getattr__",
    }


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_public_function_is_annotated(name):
    signature = inspect.signature(FUNCTIONS[name])
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    bare = [p.name for p in parameters if p.annotation is p.empty]
    if signature.return_annotation is signature.empty and not name.endswith("__init__"):
        bare.append("return")
    assert not bare


def test_the_net_of_a_solver_is_the_net_that_users_know():
    def hint(name):
        text = next(
            vars(c)["__annotations__"][name]
            for c in caffe.SGDSolver.__mro__
            if name in vars(c).get("__annotations__", {})
        )
        return eval(text, vars(importlib.import_module("pycaffe_lms.pycaffe.classes")))

    assert hint("net") is PycaffeNet and hint("test_nets") == caffe._caffe.NetVec[PycaffeNet]


def test_both_constructors_are_declared():
    if not hasattr(typing, "get_overloads"):
        pytest.skip("Python 3.10 does not keep overloads")
    forms = [list(inspect.signature(f).parameters)[1:4] for f in typing.get_overloads(caffe.Net.__init__)]
    assert forms == [["network_file", "phase", "level"], ["network_file", "weights", "phase"]]


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "py.typed").is_file()


# -- messages -------------------------------------------------------------------------------------------------------
def test_the_stub_is_up_to_date():
    source = ROOT.parent / "proto" / "caffe.proto"
    if not source.is_file():
        pytest.skip("installed without proto/caffe.proto")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    first = STUB.read_text(encoding="utf-8").split("\n", 1)[0]
    assert first == f"# sha256 of proto/caffe.proto: {digest}", "run python tools/gen_proto.py"


def test_the_stub_has_every_field_of_every_message():
    classes = {
        node.name: node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)
    }
    for name, descriptor in caffe_pb2.DESCRIPTOR.message_types_by_name.items():
        declared = {n.target.id for n in classes[name].body if isinstance(n, ast.AnnAssign)}
        fields = {f.name for f in descriptor.fields if not keyword.iskeyword(f.name)}  # `lambda` needs getattr
        assert declared >= fields, name
        assert declared >= {value for enum in descriptor.enum_types for value in enum.values_by_name}, name
