"""Every public name of pycaffe is here, with its signature, its kind, and a word about what it does."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

import pycaffe_lms as caffe

from . import public_surface as surface
from .net.nets import inputs, ip, loss

MISSING = object()
ANY = object()  # a default that differs on purpose


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> dict:
    """An object of each kind whose members the tables name; MISSING where there is no such kind yet."""
    folder = tmp_path_factory.mktemp("surface")
    text = inputs(x=(2, 3), label=(2,)) + ip("ip", "x", 3) + loss("ip")
    (folder / "net.prototxt").write_text(text)
    (folder / "solver.prototxt").write_text(f'net: "{folder}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1')
    net = caffe.Net(str(folder / "net.prototxt"), caffe.TRAIN)
    spec = caffe.NetSpec()
    spec.x = caffe.layers.Input(shape={"dim": [1]})
    made = {
        "Net": net,
        "Blob": net.blobs["x"],
        "Vec": caffe._caffe.BlobVec(),
        "Layer": caffe.Layer(caffe._caffe.LayerParameter()),
        "Solver": caffe.SGDSolver(str(folder / "solver.prototxt")),
        "Top": spec.x,
        "Function": spec.x.fn,
        "Spec": spec,
    }
    for kind, make in {
        "Timer": lambda: caffe.Timer(),
        "NCCL": lambda: caffe.NCCL.__new__(caffe.NCCL),
        "Transformer": lambda: importlib.import_module("pycaffe_lms.io").Transformer({"x": (1, 3, 4, 4)}),
    }.items():
        try:
            made[kind] = make()
        except (AttributeError, ModuleNotFoundError):
            made[kind] = MISSING
    return made


def find(name: str, examples: dict):
    """What a name of the tables names, or MISSING."""
    first, _, rest = name.partition(".")
    if rest and first in examples:
        found, parts = examples[first], rest.split(".")
    elif name in ("Net", "Layer", "Timer", "NCCL"):
        found, parts = caffe, [name]
    elif name == "Solver":
        found, parts = caffe, ["SGDSolver"]
    else:
        found, parts = caffe, name.split(".")
    for part in parts:
        if isinstance(found, ModuleType) and not hasattr(found, part):
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
                continue
            except ModuleNotFoundError as failure:
                assert failure.name == f"{found.__name__}.{part}"
                return MISSING
        found = MISSING if found is MISSING else getattr(found, part, MISSING)
    return found


def check_signature(found, text: str) -> None:
    """Calls that the signature allows are allowed, with its names and its defaults; more parameters need defaults."""
    wanted = inspect.signature(eval(f"lambda {text[1:-1]}: None", {"ANY": ANY}))
    ours = inspect.signature(found)
    params = [p for p in wanted.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p for p in params if p.default is p.empty]
    ours.bind(*needed)
    ours.bind(*params)
    if any(p.kind is p.VAR_POSITIONAL for p in wanted.parameters.values()):
        ours.bind(*range(5))
    if any(p.kind is p.VAR_KEYWORD for p in wanted.parameters.values()):
        ours.bind(*params, some_name=1)
    by_name = {p.name: p for p in params if p.kind is p.POSITIONAL_OR_KEYWORD}
    ours.bind(*[p for p in params if p.name not in by_name], **by_name)
    for k, p in enumerate(params):
        mine = ours.parameters.get(p.name)
        if mine is None:
            assert p.kind is p.POSITIONAL_ONLY, p.name
            mine = list(ours.parameters.values())[k]
        if p.default is not ANY and not (p.name == "phase" and p.default is p.empty):
            required = mine.default is mine.empty and mine.kind is not mine.VAR_POSITIONAL
            assert mine.default == p.default or (p.default is p.empty and not required), p.name


@pytest.mark.parametrize("name", sorted(surface.EVERYTHING.keys() - surface.PENDING))
def test_it_is_there(name, examples):
    kind, found = surface.EVERYTHING[name], find(name, examples)
    assert found is not MISSING
    if kind == surface.CLASS:
        assert inspect.isclass(found)
    elif kind == surface.MODULE:
        assert isinstance(found, ModuleType)
    elif kind != surface.VALUE:
        check_signature(found, kind)


@pytest.mark.parametrize("name", sorted(surface.PENDING))
def test_what_is_pending_is_not_there(name, examples):
    assert name in surface.EVERYTHING
    assert find(name, examples) is MISSING, "take it out of PENDING"


@pytest.mark.parametrize("name", sorted(surface.EVERYTHING.keys() - surface.PENDING))
def test_it_says_what_it_does(name, examples):
    """Docstrings of everything that pycaffe's users call by name (what is private or Python's own aside)."""
    kind, found = surface.EVERYTHING[name], find(name, examples)
    last = name.split(".")[-1]
    if kind != surface.VALUE and not last.startswith("_") and not name.startswith("Vec."):
        assert (inspect.getdoc(found) or "").strip()


@pytest.mark.parametrize(
    "name",
    sorted(
        n
        for n, k in (surface.NET | surface.BLOBS | surface.SOLVERS | surface.OURS).items()
        if k == surface.VALUE and "." in n and n not in surface.PENDING
    ),
)
def test_properties_say_what_they_are(name, examples):
    kind, last = name.split(".")
    found = getattr(type(examples[kind]), last, None)
    if isinstance(found, property):
        assert last.startswith("_") or (found.__doc__ or "").strip()
        assert inspect.signature(found.fget).return_annotation is not inspect.Signature.empty


ANNOTATED = {
    n: k
    for n, k in (surface.PACKAGE | surface.NET | surface.BLOBS | surface.SOLVERS | surface.OURS).items()
    if k[0] == "("
}


@pytest.mark.parametrize("name", sorted(n for n in ANNOTATED.keys() - surface.PENDING if not n.startswith("Vec.__")))
def test_its_parameters_and_its_result_have_types(name, examples):
    signature = inspect.signature(find(name, examples))
    bare = [p for p in signature.parameters.values() if p.annotation is p.empty]
    if name == "Net":
        bare = [p for p in bare if p.name not in ("args", "device")]  # two orders of arguments; any backend's device
    if name == "Solver":
        bare = [p for p in bare if p.name != "device"]
    assert all(p.kind is p.VAR_KEYWORD for p in bare), bare
    assert signature.return_annotation is not signature.empty or inspect.isclass(find(name, examples))


def test_phases_and_version():
    assert (caffe.TRAIN, caffe.TEST) == (0, 1)
    assert [int(part) for part in caffe.__version__.split(".")] >= [0, 1]


def test_everything_listed_is_there():
    assert all(hasattr(caffe, name) for name in caffe.__all__) and len(set(caffe.__all__)) == len(caffe.__all__)


def test_the_check_of_signatures_notices():
    """Other names, other defaults, parameters that are missing or asked for in addition."""

    def f(a, b=1, *, c=2): ...

    check_signature(f, "(a, b=1)")
    check_signature(f, "(x, /)")
    for other in ("(a, b=2)", "(a, x=1)", "(a, b)", "(a)", "(a, b=1, d=3)", "(*things)", "(a, **more)", "()"):
        if other in ("(a, b)", "(a)"):
            check_signature(f, other)  # more may be left out than was
            continue
        with pytest.raises((TypeError, AssertionError)):
            check_signature(f, other)
    with pytest.raises(TypeError):
        check_signature(lambda a, b: None, "(a)")


def test_a_layer_of_a_net_has_what_pycaffe_shows(examples):
    for shown in examples["Net"].layers:
        assert isinstance(shown.type, str) and len(shown.blobs) in (0, 2)
