"""caffe.Net and the solvers as pycaffe users know them: a thin face over `net.Net` and `solvers`.

Source of the behaviour: BVLC/caffe, python/caffe/pycaffe.py and _caffe.cpp.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from . import solvers
from .backend import get_device
from .errors import UsageError, Where
from .formats.hdf5_weights import write_hdf5_weights
from .formats.prototxt import Parsed, read_solver
from .layers.registry import LAYERS
from .lms.config import LMSConfig
from .net import net as core
from .net import weights
from .progress import make_bar, shown

TRAIN, TEST = 0, 1
_log = logging.getLogger(__name__)

_mode = {"backend": "cpu", "index": 0, "seed": None}


def set_mode_cpu() -> None:
    """Nets and solvers made from now on run on the CPU (the default)."""
    _mode["backend"] = "cpu"


def set_mode_gpu() -> None:
    """Nets and solvers made from now on run on the GPU of `set_device`."""
    _mode["backend"] = "cuda"


def set_device(index: int) -> None:
    """Which GPU `set_mode_gpu` means."""
    _mode["index"] = index


def set_random_seed(seed: int) -> None:
    """Seed of nets made from now on."""
    _mode["seed"] = seed


def layer_type_list() -> list[str]:
    """Names of all layer types, sorted."""
    importlib.import_module("pycaffe_lms.layers")
    return sorted(LAYERS)


def _device(device):
    return device or get_device(_mode["backend"], index=_mode["index"])


class PycaffeNet(core.Net):
    """pycaffe's methods on a net."""

    @property
    def blob_loss_weights(self) -> OrderedDict[str, float]:
        """Loss weight of every blob, by name."""
        values = self.graph.values
        return OrderedDict((name, values[v].loss_weight) for name, v in self.graph.last.items())

    @property
    def layer_dict(self) -> OrderedDict:
        return OrderedDict((node.name, node.layer.face) for node in self.graph.nodes)

    @property
    def top_names(self) -> OrderedDict[str, list[str]]:
        """Names of every layer's tops, by layer."""
        return OrderedDict((n.name, [self.graph.values[t].name for t in n.tops]) for n in self.graph.nodes)

    @property
    def bottom_names(self) -> OrderedDict[str, list[str]]:
        """Names of every layer's bottoms, by layer."""
        return OrderedDict((n.name, [self.graph.values[b].name for b in n.bottoms]) for n in self.graph.nodes)

    def forward(self, blobs=None, start: str | None = None, end: str | None = None, **kwargs) -> dict[str, np.ndarray]:
        """Run layers start..end (names, both included; default: all). Keyword arguments are arrays for every input.

        Returns views of the outputs (or of the tops of `end`) and of the blobs named in `blobs`.
        """
        first = 0 if start is None else self.layer_index(start)
        last = len(self.graph.nodes) - 1 if end is None else self.layer_index(end)
        names = self.outputs if end is None else self.top_names[end]
        names = list(dict.fromkeys([*names, *(blobs or [])]))
        if kwargs:
            if set(kwargs) != set(self.inputs):
                raise UsageError("Input blob arguments do not match net inputs.", fix=f"give exactly {self.inputs}")
            for name, values in kwargs.items():
                self._fill(name, values, "data", "Input is not batch sized")
        self.forward_range(first, last)
        return {name: self.blobs[name].data for name in names}

    def backward(self, diffs=None, start: str | None = None, end: str | None = None, **kwargs) -> dict[str, np.ndarray]:
        """Run backward from layer start down to end. Keyword arguments are gradients for every output.

        Returns views of the gradients of the inputs (or of the bottoms of `end`) and of the blobs named in `diffs`.
        """
        first = len(self.graph.nodes) - 1 if start is None else self.layer_index(start)
        last = 0 if end is None else self.layer_index(end)
        names = self.inputs if end is None else self.bottom_names[end]
        names = list(dict.fromkeys([*names, *(diffs or [])]))
        if kwargs:
            if set(kwargs) != set(self.outputs):
                raise UsageError("Top diff arguments do not match net outputs.", fix=f"give exactly {self.outputs}")
            for name, values in kwargs.items():
                self._fill(name, values, "diff", "Diff is not batch sized")
        self.backward_range(first, last)
        return {name: self.blobs[name].diff for name in names}

    def _fill(self, name: str, values, which: str, complaint: str) -> None:
        values, blob = np.asarray(values), self.blobs[name]
        if values.shape[:1] != blob.shape[:1] and (blob.shape or values.size != 1):
            raise UsageError(complaint, fix=f"give an array of shape {blob.shape}").at(blob=name)
        setattr(blob, which, values.reshape(blob.shape) if values.size == blob.count else values)

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Let the first layer, a MemoryData, deliver these arrays: data (n, c, h, w), labels (n) or (n, 1, 1, 1)."""
        layer = self.layers[0]
        if not hasattr(layer, "set_input_arrays"):
            raise UsageError(
                "set_input_arrays may only be called if the first layer is a MemoryData layer",
                fix="write to net.blobs[...].data, or call it on the layer itself",
            )
        layer.set_input_arrays(data, labels)

    def copy_from(self, path: str | os.PathLike) -> None:
        """Load weights (binary or HDF5) by layer name."""
        weights.copy_from(self, path)

    load_hdf5 = copy_from

    def save(self, path: str | os.PathLike) -> None:
        """Write a .caffemodel."""
        weights.save(self, path)

    def save_hdf5(self, path: str | os.PathLike) -> None:
        """Write the weights as HDF5."""
        write_hdf5_weights(path, weights.hdf5_arrays(self))

    def _forward(self, start: int, end: int) -> float:
        return self.forward_range(start, end)

    def _backward(self, start: int, end: int) -> None:
        self.backward_range(start, end)


class Net(PycaffeNet):
    """Net(network_file, phase, level=0, stages=None, weights=None), or the older Net(network_file, weights, phase).

    lms: an LMSConfig. device: a backend device; default: what set_mode_* chose. Missing files: RuntimeError.
    """

    def __init__(
        self,
        network_file,
        *args,
        phase: int | None = None,
        level: int = 0,
        stages=None,
        weights=None,
        lms: LMSConfig | None = None,
        device=None,
        **options,
    ):
        if args and isinstance(args[0], (str, os.PathLike)):  # the older order
            _log.warning('Net(file, weights, phase) is deprecated: use Net(file, phase, weights="...")')
            weights, args = args[0], args[1:]
        if args:
            phase, args = args[0], args[1:]
        rest = dict(zip(("level", "stages", "weights"), args, strict=False))
        level, stages = rest.get("level", level), rest.get("stages", stages)
        weights = rest.get("weights", weights)
        if phase is None:
            raise UsageError("a net needs a phase", fix="Net(file, caffe.TEST) or Net(file, caffe.TRAIN)")
        options.setdefault("seed", _mode["seed"])
        super().__init__(
            network_file, phase, level=level, stages=stages or (), device=_device(device), lms=lms, **options
        )
        if weights is not None:
            self.copy_from(weights)


class SGDSolver(solvers.SGDSolver):
    """SGDSolver(file): the class decides the algorithm, `type` in the file is ignored (and that is said).

    lms: an LMSConfig. device: a backend device; default: what set_mode_* chose. options: those of `solvers.Solver`.
    `param` is the solver's SolverParameter: what is written to its numbers takes effect in the next iteration.
    """

    net_class = PycaffeNet

    def __init__(self, solver_file: str | os.PathLike | Parsed, *, lms: LMSConfig | None = None, device=None,
                 **options):  # fmt: skip
        parsed = solver_file if isinstance(solver_file, Parsed) else read_solver(solver_file)
        param = parsed.message
        if param.HasField("type") and param.type != self.rule.type:
            line = parsed.lines.field("type") or parsed.lines.field("solver_type")
            where = Where(file=parsed.filename, line=line)
            _log.warning('%s: type "%s" is ignored: this is a %s', where, param.type, type(self).__name__)
        if param.random_seed < 0 and _mode["seed"] is not None:
            param.random_seed = _mode["seed"]
        options |= {"file": parsed.filename, "lines": parsed.lines}
        super().__init__(param, device=_device(device), lms=lms, **options)

    @property
    def base_lr(self) -> float:
        """The setting that learning rate policies begin with."""
        return self.param.base_lr

    @base_lr.setter
    def base_lr(self, rate: float) -> None:
        self.param.base_lr = rate

    def solve(self, resume_file: str | os.PathLike | None = None, *, progress: bool | None = None) -> None:
        """Train to max_iter, from where a .solverstate was if one is given.

        progress: whether to show a bar; None: on a terminal and in a notebook. It is rich's where that is installed.
        """
        bar = None
        if progress is not False:
            bar = make_bar(self.net.name or "training", self.param.max_iter, always=bool(progress))
        with shown(self, bar):
            super().solve(resume_file)

    def add_callback(self, on_start, on_gradients_ready: Callable[[], None] | None = None) -> None:
        """Call on_start before the forward of every iteration, on_gradients_ready between backward and update, where
        it may read and change gradients. Both take no argument. Or give one object that has both as methods.

        Raises UsageError for what cannot be called."""
        if on_gradients_ready is None:
            both = tuple(getattr(on_start, name, None) for name in ("on_start", "on_gradients_ready"))
        else:
            both = (on_start, on_gradients_ready)
        if not all(map(callable, both)):
            raise UsageError(
                f"add_callback: {on_start!r} and {on_gradients_ready!r} cannot be called",
                fix="give two functions without arguments, or an object with on_start() and on_gradients_ready()",
            )
        self.callbacks.append(both)

    def share_weights(self, net: core.Net) -> None:
        """Let `net` use the train net's parameters, by layer name, from now on. Raises UsageError where it lies on
        another device, WeightsError where shapes differ."""
        ours, theirs = self.net.device, net.device
        if theirs is not ours and not (ours.is_host and theirs.is_host):
            raise UsageError(
                f"the net is on {theirs.describe()}, the solver on {ours.describe()}: memory cannot be shared",
                fix="make the net with device=solver.net.device",
            )
        net.share_with(self.net)


class NesterovSolver(SGDSolver):
    """NesterovSolver(file): Nesterov's accelerated gradient; see `solvers.NesterovSolver`."""

    rule = solvers.NesterovSolver.rule


class AdaGradSolver(SGDSolver):
    """AdaGradSolver(file): see `solvers.AdaGradSolver`."""

    rule = solvers.AdaGradSolver.rule


class RMSPropSolver(SGDSolver):
    """RMSPropSolver(file): see `solvers.RMSPropSolver`."""

    rule = solvers.RMSPropSolver.rule


class AdaDeltaSolver(SGDSolver):
    """AdaDeltaSolver(file): see `solvers.AdaDeltaSolver`."""

    rule = solvers.AdaDeltaSolver.rule


class AdamSolver(SGDSolver):
    """AdamSolver(file): see `solvers.AdamSolver`."""

    rule = solvers.AdamSolver.rule


_SOLVERS = {
    cls.rule.type: cls for cls in (SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver)
}


def get_solver(solver_file: str | os.PathLike, **options) -> SGDSolver:
    """The solver that the file's `type` names. options: as of its class, such as lms and device. Raises SolverError
    for a type that is none."""
    parsed = read_solver(solver_file)
    chosen = solvers.solver_class(parsed.message, parsed.filename, parsed.lines)
    return _SOLVERS[chosen.rule.type](parsed, **options)
