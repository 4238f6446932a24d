"""Tests that every field of a solver file has its effect (one check for each), and which values are refused."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms.cli import flags
from pycaffe_lms.cli.commands import train as train_command
from pycaffe_lms.errors import SolverError
from pycaffe_lms.formats.prototxt.parser import read_solver
from pycaffe_lms.net.weights import save
from pycaffe_lms.proto.caffe_pb2 import SolverParameter
from pycaffe_lms.solvers import solver_class

from .helpers import CONSTANT, GAUSSIAN, bits, inner, loss, make, messages, solver_text, values
from .test_detection import solver_of

NET = GAUSSIAN + inner() + loss()
TESTED = {"test_iter": 1, "test_interval": 2}


class World:
    """Hold a folder and a log."""

    def __init__(self, folder, caplog):
        self.folder, self.caplog = folder, caplog

    def net(self, name: str, more: str = "") -> str:
        """Write a net file of that name; return its path in quotes."""
        (self.folder / name).write_text(f"name: '{name}'\n{NET} {more}")
        return f'"{name}"'

    def build(self, net: str | None = None, **options):
        """Build a solver from a file s.prototxt whose fields give its nets; `net` is one of them."""
        text = solver_text("", **options) + (f"\nnet: {net}" if net else "")
        (self.folder / "s.prototxt").write_text(text)
        parsed = read_solver("s.prototxt")
        return solver_class(parsed.message)(parsed.message, file="s.prototxt", lines=parsed.lines)

    def log(self, run, n: int | None = None, **options) -> list[str]:
        """Return the log of a run of n iterations (None: of solve)."""
        solver = make(NET, **options)
        self.caplog.clear()
        solver.solve() if n is None else solver.step(n)
        return messages(self.caplog)


@pytest.fixture
def world(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "pycaffe_lms")
    return World(tmp_path, caplog)


def moves(name, one, other, **options) -> None:
    """Check that the field changes the training."""
    runs = [make(CONSTANT + inner() + loss(), **options, **{name: v}) for v in (one, other, one)]
    for solver in runs:
        solver.step(3)
    found = [bits(solver) for solver in runs]
    assert found[0] == found[2] != found[1]


def rate_at(n, **options) -> float:
    solver = make(NET, **options)
    solver.iter = n
    return solver.lr


def names(solver) -> list[str]:
    return [solver.net.name, *(net.name for net in solver.test_nets)]


INLINE = "{{ name: '{}' {} }}"
RULE = 'include {{ stage: "{}" }} '


def staged(stage: str) -> str:
    return inner(f"at_{stage}", "x", params=f'include {{ stage: "{stage}" }}')


def has(net, layer: str) -> bool:
    return layer in [node.name for node in net.graph.nodes]


def files(world) -> list[str]:
    return sorted(p.name for p in world.folder.iterdir())


# -- the checks, each named as its field -----------------------------------------------------------------------------
class Fields:
    def train_net(self, w):
        assert names(w.build(train_net=w.net("a"))) == ["a"]

    def test_net(self, w):
        assert names(
            w.build(train_net=w.net("a"), test_net=[w.net("b"), w.net("c")], test_iter=[1, 1], test_interval=1)
        ) == ["a", "b", "c"]

    def net(self, w):
        assert names(w.build(net=w.net("a"), **TESTED)) == ["a", "a"]

    def net_param(self, w):
        assert names(w.build(net_param=INLINE.format("n", NET), **TESTED)) == ["n", "n"]

    def train_net_param(self, w):
        assert names(w.build(train_net_param=INLINE.format("n", NET))) == ["n"]

    def test_net_param(self, w):
        assert names(w.build(net=w.net("a"), test_net_param=INLINE.format("n", NET), **TESTED)) == ["a", "n"]

    def train_state(self, w):
        solver = make(NET + staged("s"), train_state='{ stage: "s" }', **TESTED)
        assert has(solver.net, "at_s") and not has(solver.test_nets[0], "at_s")

    def test_state(self, w):
        solver = make(NET + staged("s"), test_state='{ stage: "s" }', **TESTED)
        assert has(solver.test_nets[0], "at_s") and not has(solver.net, "at_s")

    def test_iter(self, w):
        solver = make(NET, test_iter=[3, 5], test_interval=1)
        done = [0, 0]
        for i, net in enumerate(solver.test_nets):
            net.test_forward = lambda i=i, run=net.test_forward: done.__setitem__(i, done[i] + 1) or run()
        solver.step(1)
        assert done == [3, 5]

    def test_interval(self, w):
        said = w.log("", 5, test_iter=1, test_interval=2)
        assert [m for m in said if "Testing" in m] == [f"Iteration {k}, Testing net (#0)" for k in (0, 2, 4)]

    def test_initialization(self, w):
        said = w.log("", 3, test_initialization="false", **TESTED)
        assert [m for m in said if "Testing" in m] == ["Iteration 2, Testing net (#0)"]

    def test_compute_loss(self, w):
        assert not any("Test loss:" in m for m in w.log("", 1, **TESTED))
        assert any("Test loss:" in m for m in w.log("", 1, test_compute_loss="true", **TESTED))

    def base_lr(self, w):
        assert rate_at(9, base_lr=0.5) == 0.5
        moves("base_lr", 0.1, 0.2)

    def lr_policy(self, w):
        assert [rate_at(4, lr_policy=p, base_lr=1, gamma=0.5, stepsize=4) for p in ('"exp"', '"step"')] == [1 / 16, 0.5]

    def gamma(self, w):
        assert [rate_at(2, lr_policy='"exp"', base_lr=1, gamma=g) for g in (0.5, 0.25)] == [1 / 4, 1 / 16]

    def power(self, w):
        assert [rate_at(3, lr_policy='"inv"', base_lr=1, gamma=1, power=p) for p in (1, 2)] == [1 / 4, 1 / 16]

    def stepsize(self, w):
        assert [rate_at(4, lr_policy='"step"', base_lr=1, gamma=0.5, stepsize=s) for s in (2, 4, 5)] == [0.25, 0.5, 1]

    def stepvalue(self, w):
        options = {"lr_policy": '"multistep"', "base_lr": 1, "gamma": 0.5}
        assert [rate_at(4, stepvalue=[s, 9], **options) for s in (4, 5)] == [0.5, 1]

    def max_iter(self, w):
        solver = make(NET, max_iter=3)
        solver.solve()
        assert solver.iter == 3
        assert [rate_at(4, lr_policy='"poly"', base_lr=1, power=1, max_iter=n) for n in (8, 16)] == [0.5, 0.75]

    def rampup_interval(self, w):
        assert [rate_at(2, base_lr=1, rampup_interval=n) for n in (2, 4, 8)] == [1, 1 / 4, 1 / 16]

    def rampup_lr(self, w):
        assert [rate_at(2, base_lr=1, rampup_interval=4, rampup_lr=r) for r in (0, 0.5)] == [1 / 4, 5 / 8]

    def warmup_iter(self, w):
        assert [rate_at(2, base_lr=1, warmup_iter=n) for n in (2, 4, 8)] == [1, 1 / 2, 1 / 4]

    def warmup_start_lr(self, w):
        assert [rate_at(2, base_lr=1, warmup_iter=4, warmup_start_lr=r) for r in (0, 0.5)] == [1 / 2, 3 / 4]

    def min_lr(self, w):
        assert [rate_at(2, lr_policy='"exp"', base_lr=1, gamma=0.5, min_lr=r) for r in (0, 0.5)] == [1 / 4, 1 / 2]

    def stagelr(self, w):
        assert [rate_at(2, lr_policy='"multifixed"', stagelr=[0.5, r], stageiter=[1, 9]) for r in (0.25, 2)] == [
            0.25,
            2,
        ]

    def stageiter(self, w):
        options = {"lr_policy": '"multifixed"', "stagelr": [0.5, 0.25]}
        assert [rate_at(2, stageiter=[n, 9], **options) for n in (1, 2)] == [0.25, 0.5]

    def plateau_winsize(self, w):
        options = {"lr_policy": '"plateau"', "base_lr": 1, "gamma": 0.5}
        assert [rate_at(2, plateau_winsize=[n], **options) for n in (2, 3)] == [1 / 2, 1]

    def momentum_policy(self, w):
        moves("momentum_policy", '"fixed"', '"poly"', momentum=0.5, max_iter=4)

    def max_momentum(self, w):
        moves("max_momentum", 0.5, 0.9, momentum=0.25, max_iter=4, momentum_policy='"poly"')

    def momentum_power(self, w):
        moves("momentum_power", 1, 2, momentum=0.25, max_iter=4, momentum_policy='"poly"')

    def weight_decay_policy(self, w):
        moves("weight_decay_policy", '"fixed"', '"poly"', weight_decay=0.1, max_weight_decay=0.5, max_iter=4)

    def max_weight_decay(self, w):
        moves("max_weight_decay", 0.5, 1, weight_decay=0.1, weight_decay_policy='"poly"', max_iter=4)

    def weight_decay_power(self, w):
        options = {"weight_decay": 0.1, "max_weight_decay": 0.5, "weight_decay_policy": '"poly"', "max_iter": 4}
        moves("weight_decay_power", 1, 2, **options)

    def larc(self, w):
        moves("larc", "false", "true")

    def larc_policy(self, w):
        moves("larc_policy", '"scale"', '"clip"', larc="true")

    def larc_eta(self, w):
        moves("larc_eta", 0.01, 0.02, larc="true")

    def local_lr_auto(self, w):
        moves("local_lr_auto", "false", "true")

    def local_gw_ratio(self, w):
        moves("local_gw_ratio", 0.01, 0.02, local_lr_auto="true")

    def momentum(self, w):
        moves("momentum", 0.5, 0.9)

    def momentum2(self, w):
        moves("momentum2", 0.5, 0.9, type='"Adam"')

    def rms_decay(self, w):
        moves("rms_decay", 0.5, 0.9, type='"RMSProp"')

    def delta(self, w):
        for kind in ("AdaGrad", "RMSProp", "AdaDelta", "Adam"):
            moves("delta", 0.5, 0.9, type=f'"{kind}"')

    def weight_decay(self, w):
        moves("weight_decay", 0, 0.5)

    def regularization_type(self, w):
        moves("regularization_type", '"L1"', '"L2"', weight_decay=0.1)

    def clip_gradients(self, w):
        moves("clip_gradients", 0.01, -1)

    def iter_size(self, w):
        solver = make(NET, iter_size=3)
        passes = []
        iteration = solver.net.iteration
        solver.net.iteration = lambda *args, **kwargs: passes.append(1) or iteration(*args, **kwargs)
        solver.step(2)
        assert len(passes) == 6

    def type(self, w):
        moves("type", '"SGD"', '"Adam"')

    def solver_type(self, w):
        moves("solver_type", "SGD", "ADAM")

    def display(self, w):
        shown = [m for m in w.log("", 5, display=2) if ", loss = " in m]
        assert [m.split(" (")[0] for m in shown] == ["Iteration 0", "Iteration 2", "Iteration 4"]

    def average_loss(self, w):
        def last(**options):
            return float([m for m in w.log("", 3, display=1, **options) if ", loss = " in m][-1].split("loss = ")[1])

        single = make(NET)
        losses = [single.step(1) or single.net.loss() for _ in range(3)]
        assert last() == pytest.approx(losses[-1], rel=1e-5)
        assert last(average_loss=2) == pytest.approx(np.mean(losses[-2:]), rel=1e-5)

    def debug_info(self, w):
        assert not any("[Forward]" in m for m in w.log("", 1, display=1))
        assert any("[Forward]" in m for m in w.log("", 1, display=1, debug_info="true"))

    def snapshot(self, w):
        make(NET, snapshot=2, snapshot_prefix='"p"').step(4)
        assert files(w) == [f"p_iter_{k}.{kind}" for k in (2, 4) for kind in ("caffemodel", "solverstate")]

    def snapshot_prefix(self, w):
        make(NET, snapshot_prefix='"q"').snapshot()
        (w.folder / "there").mkdir()
        make(NET, snapshot_prefix='"there"', file="dir/s.prototxt").snapshot()
        assert files(w) == ["q_iter_0.caffemodel", "q_iter_0.solverstate", "there"]
        assert (w.folder / "there" / "s_iter_0.caffemodel").exists()

    def snapshot_diff(self, w):
        for prefix, written in (("p", "true"), ("q", "false")):
            solver = make(NET, snapshot_prefix=f'"{prefix}"', snapshot_diff=written)
            solver.step(1)
            solver.snapshot()
        sizes = [(w.folder / f"{p}_iter_1.caffemodel").stat().st_size for p in "pq"]
        assert sizes[0] - sizes[1] >= 4 * (5 * 3 + 5)

    def snapshot_format(self, w):
        pytest.importorskip("h5py")
        make(NET, snapshot_prefix='"p"', snapshot_format="HDF5").snapshot()
        assert files(w) == ["p_iter_0.caffemodel.h5", "p_iter_0.solverstate.h5"]

    def snapshot_after_train(self, w):
        make(NET, snapshot_prefix='"p"', max_iter=2, snapshot_after_train="false").solve()
        assert files(w) == []
        make(NET, snapshot_prefix='"p"', max_iter=2, snapshot_after_train=None).solve()
        assert files(w) == ["p_iter_2.caffemodel", "p_iter_2.solverstate"]

    def random_seed(self, w):
        first = [values(make(NET, random_seed=s))[0].tobytes() for s in (3, 3, 4, -1, -1)]
        assert first[0] == first[1] and len(set(first)) == 4

    def weights(self, w):
        source = make(NET, random_seed=8)
        save(source.net, "w.caffemodel")
        assert (values(make(NET, weights='"w.caffemodel"'))[0] == values(source)[0]).all()

    def _asked(self, w, **options):
        """Return what `train` asks of `devices.choose`."""
        (w.folder / "s.prototxt").write_text(solver_text(NET, **options))
        asked = {}

        class Enough(Exception):
            pass

        def choose(args, lms, **kwargs):
            asked.update(kwargs)
            raise Enough

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(train_command.devices, "choose", choose)
            with pytest.raises(Enough):
                train_command.run(flags.parse(train_command.build_parser(), ["--solver=s.prototxt"]))
        return asked["solver_mode"], asked["device_id"]

    def solver_mode(self, w):
        assert [self._asked(w, solver_mode=m)[0] for m in ("CPU", "GPU", None, 0, 1)] == [0, 1, None, 0, 1]

    def device_id(self, w):
        assert [self._asked(w, device_id=i)[1] for i in (2, None)] == [2, 0]

    def layer_wise_reduce(self, w):
        """Check that it changes nothing for one process: it says when several exchange gradients."""
        runs = [make(NET, layer_wise_reduce=v) for v in ("true", "false", None)]
        for solver in runs:
            solver.step(2)
        assert bits(runs[0]) == bits(runs[1]) == bits(runs[2])
        assert [solver.param.layer_wise_reduce for solver in runs] == [True, False, True]

    def eval_type(self, w):
        assert [name for name, _ in solver_of().test()] == ["map"]
        assert len(solver_of(eval_type='"classification"').test()) > 1  # every number of the rows by itself

    def ap_version(self, w):
        assert len({solver_of(ap_version=f'"{version}"').test()[0][1] for version in ("11point", "Integral")}) == 2

    def show_per_class_result(self, w):
        for value in ("true", "false"):
            w.caplog.clear()
            solver_of(show_per_class_result=value).test()
            assert any(line.startswith("class1: ") for line in messages(w.caplog)) == (value == "true")


@pytest.mark.parametrize("name", [field.name for field in SolverParameter.DESCRIPTOR.fields])
def test_field(name, world):
    getattr(Fields(), name)(world)


# -- what no field may say ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(
            (name, v, f"{name} {v} is not finite")
            for name in (
                "base_lr",
                "momentum",
                "weight_decay",
                "delta",
                "gamma",
                "power",
                "rms_decay",
                "momentum2",
                "larc_eta",
            )
            for v in ("nan", "inf")
        ),
        *(
            (name, -2, f"{name} -2 is negative")
            for name in ("display", "max_iter", "snapshot", "test_interval", "device_id", "test_iter", "warmup_iter")
        ),
        *((name, 0, f"{name} 0 is not positive") for name in ("average_loss", "iter_size")),
        ("clip_gradients", "nan", "clip_gradients nan is not a limit"),
        ("regularization_type", '"L3"', 'regularization_type "L3" is unknown'),
        ("lr_policy", '"Fixed"', 'lr_policy "Fixed" is unknown'),
    ],
)
def test_impossible(name, value, said):
    """The error names the file and the line."""
    options = {"test_iter": -2, "test_interval": 1} if name == "test_iter" else {name: value}
    with pytest.raises(SolverError) as caught:
        make(NET, file="s.prototxt", **options)
    lines = solver_text(NET, **options).splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.startswith(f"{name}:"))
    assert caught.value.message == said and caught.value.fix
    assert (caught.value.where.file, caught.value.where.line) == ("s.prototxt", line)


def test_an_infinite_clip_only_logs_nothing():
    """Norms are computed, and none is larger."""
    moved, plain = make(NET, clip_gradients="inf"), make(NET)
    for solver in (moved, plain):
        solver.step(2)
    assert bits(moved) == bits(plain)
