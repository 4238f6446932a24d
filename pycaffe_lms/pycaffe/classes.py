"""Offers caffe.Net and the solvers with pycaffe's constructors, over `net.py` and the package `solvers`.

Source of the behaviour: BVLC/caffe, python/caffe/pycaffe.py and _caffe.cpp.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias, overload

from .. import solvers
from ..backend.device import Device
from ..errors import UsageError, Where
from ..formats.prototxt.parser import Parsed, read_solver
from ..layers.registry import LAYERS
from ..lms.config import LMSConfig
from ..net import net as core
from ..net.fold_norms import fold_norms
from ..net.tuning import Tuning
from ..parallel.data_parallel import DataParallel
from ..progress import make_bar, shown
from ..proto.caffe_pb2 import NetParameter, SolverParameter
from ..vectors import NetVec, StringVec
from ..viz.history import History
from ..viz.notebook import NotebookCurves
from .mode import device_of as _device
from .mode import lms_of, with_math
from .mode import settings as _mode
from .net import PycaffeNet
from .reading import ReadBlobs

TRAIN, TEST = 0, 1
Source: TypeAlias = "str | os.PathLike[str] | NetParameter"  # what a net is made of
_log = logging.getLogger(__name__)
_OF_A_FILE = ("level", "stages", "lines", "file", "dtype", "seed", "random")  # options that say what the net is


def layer_type_list() -> StringVec:
    """Return the names of all layer types, sorted."""
    importlib.import_module("pycaffe_lms.layers")
    return StringVec(sorted(LAYERS))


class Net(PycaffeNet):
    """Build a net: Net(network_file, phase, level=0, stages=None, weights=None), or the older form
    Net(network_file, weights, phase).

    Args:
        network_file: path of a prototxt, or a NetParameter.
        phase: TRAIN or TEST.
        level, stages: number and names that the layers' `include` and `exclude` rules are compared with.
        weights: a .caffemodel (.h5) to load.
        lms: `caffe.LMS(...)`, or 1000 (KB), "auto", "off"; default: what `set_lms` or a surrounding
            `with caffe.LMS(...)` set.
        device: a backend device; default: the one that `set_mode_cpu`, `set_mode_gpu` or `set_mode_sim` chose.
        optimise: for inference, with `weights` and phase TEST: fold BatchNorm, Scale and Bias into the layers before
            them, run chains of layers as one, and let hidden blobs use the same memory in turn. Outputs are equal to
            rounding. Hidden blobs have values where `forward(blobs=[...])` or `keep` names them; those that were folded
            away are not in the net.
        options: further keywords of `pycaffe_lms.net.net.Net`.

    Raises:
        CaffeError (a RuntimeError): a missing file, a bad prototxt or weights that do not fit; the error names file,
            line, layer and what to change.
    """

    @overload
    def __init__(
        self,
        network_file: Source,
        phase: int,
        level: int = 0,
        stages: Sequence[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        *,
        lms: LMSConfig | int | str | None = None,
        device: Device | None = None,
        optimise: bool = False,
        **options: Any,
    ) -> None: ...

    @overload
    def __init__(
        self,
        network_file: Source,
        weights: str | os.PathLike[str],
        phase: int,
        *,
        lms: LMSConfig | int | str | None = None,
        device: Device | None = None,
        optimise: bool = False,
        **options: Any,
    ) -> None: ...

    def __init__(
        self,
        network_file: Source,
        *args: Any,
        phase: int | None = None,
        level: int = 0,
        stages: Sequence[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        lms: LMSConfig | int | str | None = None,
        device: Device | None = None,
        optimise: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(network_file, (str, bytes, os.PathLike, NetParameter)):
            raise UsageError(
                f"{type(network_file).__name__} is not a prototxt to make a net of",
                fix="give the path of a file, or a NetParameter, as NetSpec's to_proto() makes it",
            )
        if args and isinstance(args[0], (str, os.PathLike)):  # the older order
            _log.warning('Net(file, weights, phase) is deprecated: use Net(file, phase, weights="...")')
            weights, args = args[0], args[1:]
        if args:
            phase, args = args[0], args[1:]
        if len(args) > 3:
            raise UsageError(f"Net takes at most 5 positional arguments, not {len(args) + 2}")
        _check_options(core.Net, options)
        rest = dict(zip(("level", "stages", "weights"), args, strict=False))
        level, stages = rest.get("level", level), rest.get("stages", stages)
        weights = rest.get("weights", weights)
        if phase not in (TRAIN, TEST):
            given = "" if phase is None else f", not {phase!r}"
            raise UsageError(f"a net needs a phase{given}", fix="Net(file, caffe.TEST) or Net(file, caffe.TRAIN)")
        if isinstance(stages, str):
            raise UsageError(f"stages is {stages!r}, not a list", fix=f"give stages=[{stages!r}]")
        options.setdefault("seed", _mode.seed)
        if optimise:
            network_file = _folded(network_file, phase, weights, level=level, stages=stages or (), **options)
            options = {"tuning": Tuning(pack=True), "forward_only": True} | options
            self.optimised, weights = True, None
        options = with_math(options, self.tuning_by_hand)
        super().__init__(
            network_file, phase, level=level, stages=stages or (), device=_device(device), lms=lms_of(lms), **options
        )
        if weights is not None:
            self.copy_from(weights)


def _folded(source: Source, phase: int, weights: str | os.PathLike[str] | None, **options: Any) -> NetParameter:
    """Return a net with its weights, in which normalisation is folded. Raises UsageError where that cannot be."""
    if phase != TEST:
        raise UsageError("optimise=True is for inference", fix="build the net with phase caffe.TEST")
    if weights is None:
        raise UsageError(
            "optimise=True needs the weights when the net is built, since it folds them into each other",
            fix="give weights=...",
        )
    net = PycaffeNet(source, phase, **{name: value for name, value in options.items() if name in _OF_A_FILE})
    net.copy_from(weights)
    return fold_norms(net)


class SGDSolver(solvers.SGDSolver):
    """Train with the algorithm of the class; another `type` in the file is ignored, with a warning.

    `param` is the solver's SolverParameter: numbers written to it take effect in the next iteration.

    Args:
        solver_file: path of a solver prototxt.
        lms: `caffe.LMS(...)`, or 1000 (KB), "auto", "off"; default: what `set_lms` or a surrounding
            `with caffe.LMS(...)` set.
        device: a backend device; default: the one that `set_mode_cpu`, `set_mode_gpu` or `set_mode_sim` chose.
        options: further keywords of `pycaffe_lms.solvers.Solver`.
    """

    net_class = PycaffeNet
    net: PycaffeNet
    test_nets: NetVec[PycaffeNet]

    def __init__(
        self,
        solver_file: str | os.PathLike[str] | Parsed[SolverParameter],
        *,
        lms: LMSConfig | int | str | None = None,
        device: Device | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(solver_file, (str, bytes, os.PathLike, Parsed)):
            raise _no_solver(solver_file)
        _check_options(solvers.Solver, options)
        parsed = solver_file if isinstance(solver_file, Parsed) else read_solver(solver_file)
        param = parsed.message
        if param.HasField("type") and param.type != self.rule.type:
            line = parsed.lines.field("type") or parsed.lines.field("solver_type")
            where = Where(file=parsed.filename, line=line)
            _log.warning('%s: type "%s" is ignored: this is a %s', where, param.type, type(self).__name__)
        if param.random_seed < 0 and _mode.seed is not None:
            param.random_seed = _mode.seed
        options = {"solver_count": _mode.solver_count, "solver_rank": _mode.solver_rank} | options
        on, config, alone = _device(device), lms_of(lms), options["solver_count"] == 1
        managed = config is not None and config.enabled
        learns = options.get("tuning") is None and alone and not managed and not on.is_host
        options = with_math(options | ({"tuning": Tuning(pack=True)} if learns else {}), Tuning())
        self._reading: ReadBlobs | None = None
        super().__init__(param, device=on, lms=config, **options | {"file": parsed.filename, "lines": parsed.lines})
        if learns:
            self._reading = ReadBlobs([self.net, *self.test_nets], self._plan_unpacked)
        self.test_nets = NetVec(self.test_nets)
        if _mode.join is not None:
            _mode.join(self)

    def _begin_iteration(self, last: bool) -> None:
        if self._reading is not None:
            self._reading.begin(last=last)

    def _plan_unpacked(self) -> None:
        """Plan what will run, and raise OutOfDeviceMemory where values have no room for memory of their own."""
        self._prepare()
        for key, _, _ in self.updates.kinds():
            bound = self.net.memory.programs.bound[key]
            self.net.memory.refuse_oom(bound.sequenced.program, bound.plan)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of net {self.net.name!r}: iteration {self.iter} of {self.param.max_iter}>"

    @property
    def base_lr(self) -> float:
        """Return the setting `base_lr`, from which policies compute the learning rate."""
        return self.param.base_lr

    @base_lr.setter
    def base_lr(self, rate: float) -> None:
        self.param.base_lr = rate

    def solve(self, resume_file: str | os.PathLike[str] | None = None, *, progress: bool | None = None) -> None:
        """Train to max_iter.

        Args:
            resume_file: a .solverstate to continue from.
            progress: show a progress bar; None: where stderr is a terminal or a notebook.
        """
        bar = None
        if progress is not False:
            bar = make_bar(self.net.name or "training", self.param.max_iter, always=bool(progress))
        with shown(self, bar):
            super().solve(resume_file)

    def fit(self, iterations: int | None = None, *, progress: bool | None = None, curves: bool = False) -> History:
        """Train some iterations and return their losses, learning rates and tests.

        As `step` does it tests, displays and writes snapshots where the solver's settings say so, and calls callbacks.
        It reads the loss after every iteration, which waits for the device; `step` does not.

        Args:
            iterations: how many; None: up to max_iter.
            progress: show a progress bar; None: where stderr is a terminal or a notebook.
            curves: draw losses, test outputs and learning rates in a notebook while they grow.

        Raises:
            UsageError: `iterations` is no count; `curves` outside of a notebook.
            MissingDependency: `curves` without Matplotlib.
        """
        n = max(0, self.param.max_iter - self.iter) if iterations is None else iterations
        if iterations is not None and (not isinstance(n, SupportsIndex) or operator.index(n) < 0):
            raise UsageError(f"fit: {iterations!r} is not a number of iterations", fix="give 0 or more")
        name = self.net.name or "training"
        history = History(name)
        drawing = NotebookCurves(history.panels, name) if curves else None
        bar = make_bar(name, self.iter + n, always=bool(progress)) if progress is not False else None
        try:
            with history.following(self, drawing.show if drawing else lambda: None), shown(self, bar):
                self.step(n)
        finally:
            if drawing and len(history):
                drawing.show(now=True)
        return history

    def add_callback(
        self, on_start: Callable[[], None] | object, on_gradients_ready: Callable[[], None] | None = None
    ) -> None:
        """Call two functions without arguments in every iteration: on_start before its forward, on_gradients_ready
        between backward and update, where it may read and change gradients.

        You may also give one object with both as methods, or `caffe.NCCL(...)`, which averages gradients over several
        GPUs before other callbacks see them. Raises UsageError for what cannot be called."""
        if isinstance(on_start, DataParallel) and on_gradients_ready is None:
            on_start.join(layer_wise=False)
            return
        if on_gradients_ready is None:
            first, second = (getattr(on_start, name, None) for name in ("on_start", "on_gradients_ready"))
        else:
            first, second = on_start, on_gradients_ready
        if not callable(first) or not callable(second):
            raise UsageError(
                f"add_callback: {on_start!r} and {on_gradients_ready!r} cannot be called",
                fix="give two functions without arguments, or an object with on_start() and on_gradients_ready()",
            )
        self.callbacks.append((first, second))

    def share_weights(self, net: core.Net) -> None:
        """Let `net` use the train net's parameters, by layer name, from now on. Raises UsageError where it is on
        another device, WeightsError where shapes differ."""
        if not isinstance(net, core.Net):
            raise UsageError(f"{net!r} is no net to share parameters with", fix="give a caffe.Net")
        ours, theirs = self.net.device, net.device
        if theirs is not ours and not (ours.is_host and theirs.is_host):
            raise UsageError(
                f"the net is on {theirs.describe()}, the solver on {ours.describe()}: memory cannot be shared",
                fix="make the net with device=solver.net.device",
            )
        net.share_with(self.net)


class NesterovSolver(SGDSolver):
    """Train with Nesterov's accelerated gradient; see `solvers.NesterovSolver`."""

    rule = solvers.NesterovSolver.rule


class AdaGradSolver(SGDSolver):
    """Train with AdaGrad; see `solvers.AdaGradSolver`."""

    rule = solvers.AdaGradSolver.rule


class RMSPropSolver(SGDSolver):
    """Train with RMSProp; see `solvers.RMSPropSolver`."""

    rule = solvers.RMSPropSolver.rule


class AdaDeltaSolver(SGDSolver):
    """Train with AdaDelta; see `solvers.AdaDeltaSolver`."""

    rule = solvers.AdaDeltaSolver.rule


class AdamSolver(SGDSolver):
    """Train with Adam; see `solvers.AdamSolver`."""

    rule = solvers.AdamSolver.rule


class AdamWSolver(SGDSolver):
    """Train with AdamW; see `solvers.AdamWSolver`."""

    rule = solvers.AdamWSolver.rule


class LionSolver(SGDSolver):
    """Train with Lion; see `solvers.LionSolver`."""

    rule = solvers.LionSolver.rule


_SOLVERS = {
    cls.rule.type: cls
    for cls in (
        SGDSolver,
        NesterovSolver,
        AdaGradSolver,
        RMSPropSolver,
        AdaDeltaSolver,
        AdamSolver,
        AdamWSolver,
        LionSolver,
    )
}


def get_solver(
    solver_file: str | os.PathLike[str],
    *,
    lms: LMSConfig | int | str | None = None,
    device: Device | None = None,
    **options: Any,
) -> SGDSolver:
    """Return a solver of the type that the file names. lms, device, options: those of `SGDSolver`.

    Raises SolverError for an unknown type."""
    if not isinstance(solver_file, (str, bytes, os.PathLike)):
        raise _no_solver(solver_file)
    parsed = read_solver(solver_file)
    chosen = solvers.solver_class(parsed.message, parsed.filename, parsed.lines)
    return _SOLVERS[chosen.rule.type](parsed, lms=lms, device=device, **options)


def _no_solver(given: object) -> UsageError:
    return UsageError(
        f"{type(given).__name__} is not a solver prototxt",
        fix="give the path of a file; a SolverParameter is written to one: file.write(str(param))",
    )


def _check_options(cls: type, options: dict[str, Any]) -> None:
    """Raise TypeError for a keyword that neither `cls` nor a base takes. The message names `cls`."""
    known = {
        name
        for base in cls.__mro__
        if "__init__" in vars(base)
        for name, p in inspect.signature(vars(base)["__init__"]).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }
    wrong = [name for name in options if name not in known]
    if wrong:
        raise TypeError(f"{wrong[0]!r} is not a keyword of a {cls.__name__}; it takes: {', '.join(sorted(known))}")
