"""`pycaffe-lms train`: train or fine-tune a model."""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType

from ...backend.device import Device
from ...data.sets.zoo import find_model
from ...errors import OutOfDeviceMemory, SnapshotError, UsageError, human_bytes
from ...formats.rawfile import check_readable
from ...lms.config import LMSConfig
from ...parallel.agreement import of_files
from ...parallel.launch import Rank
from ...parallel.mpi import MpiRanks
from ...proto.caffe_pb2 import SolverParameter
from ...solvers import Solver, solver_class
from ...solvers.base import NONE, SNAPSHOT, STOP
from ...solvers.loss_watch import POLICIES
from ...solvers.update.sharing import Sharing
from .. import devices, flags, overrides, ranks
from ..live import watch
from ..live.watcher import watched
from ..ranks import SNAPSHOT_AND_STOP
from ..synthetic import Synthetic, add_shape
from ..views import advice, lms_files, profile
from ..zoo_names import solver_to_train

_log = logging.getLogger(__name__)
_COMMON = "weights snapshot resume set gpu backend lms lms_frac lms_budget"
_EFFECTS = (STOP, SNAPSHOT, SNAPSHOT_AND_STOP, NONE)


class Signals:
    """Note SIGHUP, SIGTERM and SIGINT; the solver polls them, in this order, each cleared when read.

    Args:
        sigint, sighup, sigterm: effects.
        keep: called before the solver stops with a snapshot, whatever its file says.
        insist: if SIGINT means stop, the second is a KeyboardInterrupt at once, and the third ends the process.
    """

    def __init__(
        self,
        sigint: str,
        sighup: str,
        sigterm: str = NONE,
        keep: Callable[[], None] = lambda: None,
        *,
        insist: bool = False,
    ):
        self._effects = {}
        self._insist, self._asked = insist and sigint in (STOP, SNAPSHOT_AND_STOP), False
        self._seen: set[int] = set()
        self._keep = keep
        self.exit_code = 0  # of what stopped the solver: 128 and the signal's number
        for name, effect in (("SIGHUP", sighup), ("SIGTERM", sigterm), ("SIGINT", sigint)):
            if hasattr(signal, name):
                self._effects[getattr(signal, name)] = effect
        self._old = {s: signal.signal(s, self._note) for s in self._effects}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._insist and number == signal.SIGINT:
            if self._asked:
                signal.signal(number, signal.SIG_DFL)
                raise KeyboardInterrupt
            self._asked = True
        self._seen.add(number)

    def poll(self) -> str:
        """Return the effect of a signal that came since the last poll."""
        number = next((n for n in self._effects if n in self._seen), None)
        if number is None:
            return NONE
        self._seen.discard(number)
        effect = self._effects[number]
        if effect == SNAPSHOT_AND_STOP:
            self._keep()
            effect = STOP
        if effect == STOP and not self.exit_code:
            self.exit_code = 128 + (signal.SIGTERM if number == signal.SIGTERM else signal.SIGINT)
        return effect

    def stopped(self) -> None:
        """Do what SIGTERM does, where training stops because another rank was asked to: its host is taken away."""
        if not self.exit_code:
            self._seen.add(signal.SIGTERM)
            self.poll()

    def restore(self) -> None:
        """Handle the signals as before."""
        for number, old in self._old.items():
            signal.signal(number, old)


class NoSignals:
    """Leave signals to the root: other ranks agree with it on what to do."""

    exit_code = 0

    def poll(self) -> str:
        """Return no effect."""
        return NONE

    def stopped(self) -> None: ...

    def restore(self) -> None: ...


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("train", __doc__, common=_COMMON)
    flags.add_word(p, "solver", "prototxt of the solver, which names net, rates, tests; or a model of the zoo")
    p.add_argument(
        "--weights",
        default="",
        metavar="FILES",
        help="comma list of .caffemodel (.h5) or .safetensors files to start from, layer by layer by name",
    )
    p.add_argument(
        "--snapshot",
        default="",
        metavar="FILE",
        help=".solverstate (.h5) file of a snapshot to resume from; it names its weights",
    )
    add_shape(p)
    _add_snapshots(p)
    overrides.add_set(p, "the solver or its nets", "base_lr=0.001")
    p.add_argument(
        "--sigint_effect",
        choices=_EFFECTS,
        default=STOP,
        help="what SIGINT (Ctrl-C) does at the next iteration; stop also snapshots if the solver does so "
        "after training, snapshot_and_stop in any case; a second Ctrl-C ends at once, without a "
        "snapshot",
    )
    p.add_argument("--sighup_effect", choices=_EFFECTS, default=SNAPSHOT, help="what SIGHUP does at the next iteration")
    p.add_argument(
        "--sigterm_effect",
        choices=_EFFECTS,
        default=SNAPSHOT_AND_STOP,
        help="what SIGTERM, which clusters send before they kill, does at the next iteration",
    )
    p.add_argument(
        "--nan",
        choices=POLICIES,
        default=POLICIES[0],
        help="what a loss that is NaN or infinite does: stop ends the run with exit code 1 and a snapshot "
        "named PREFIX_nan_iter_N, warn logs it once and goes on, ignore does not look for it",
    )
    flags.add_profile(p, "the run's iterations 2 to 4, of every rank")
    p.add_argument(
        "--lms_report",
        default="",
        metavar="FILE.html",
        help="write a page about the plan of Large Model Support, with times of an iteration",
    )
    p.add_argument(
        "--lms_stats", default="", metavar="FILE.json", help="write the statistics of Large Model Support at the end"
    )
    ranks.add_timeout(p)
    ranks.add_hang_timeout(p)
    ranks.add_rank_logs(p)
    flags.add_settings(p, Sharing)
    watch.add_watch(p)
    flags.add_state(p)
    flags.add_tuning(p)
    flags.add_device(p, trains=True)
    return p


def run(args: argparse.Namespace) -> int:
    """Train, as a rank where mpirun started this process, or start a process for each of several GPUs that does."""
    rank = ranks.of_mpi()
    for flag in ("weights", "resume"):
        if getattr(args, flag) and args.snapshot:
            fix = "resume with -snapshot alone" if flag == "weights" else "resume with one of them"
            raise UsageError(f"-{flag} and -snapshot exclude each other", fix=fix)
    _refuse_mixed_up(args)
    devices.check_weights(args.weights)
    flags.lms_config(args)
    args.solver = find_model(args.solver, "solver", here=True) if args.shape else solver_to_train(args.solver)
    numbers = devices.gpu_numbers(args)
    flags.settings_of(Sharing, args).check(rank.count if rank is not None else max(1, len(numbers)))
    if rank is None and len(numbers) > 1:
        return ranks.launch(run_rank, args, numbers)
    with ranks.log_file(args.rank_logs, rank):
        return _train(args, rank)


def _refuse_mixed_up(args: argparse.Namespace) -> None:
    """Raise UsageError where weights are given as a snapshot, or a snapshot as weights.

    Raises SnapshotError for a snapshot that is not there."""
    for flag, wrong, other in (("snapshot", "caffemodel", "weights"), ("weights", "solverstate", "snapshot")):
        for path in filter(None, (part.strip() for part in getattr(args, flag).split(","))):
            if path.removesuffix(".h5").endswith(f".{wrong}"):
                begin = "start from weights" if other == "weights" else "resume from a snapshot"
                raise UsageError(f"-{flag} {path}: this is a .{wrong}", fix=f"use -{other} to {begin}")
    if args.snapshot:
        check_readable(args.snapshot, SnapshotError)


def run_rank(args: argparse.Namespace, rank: Rank) -> int:
    """Train as one of several ranks, in a process of its own."""
    with ranks.logging_as(rank.index), ranks.log_file(args.rank_logs, rank):
        return _train(args, rank)


def _add_snapshots(p: argparse.ArgumentParser) -> None:
    """Declare -resume, -snapshot_keep and -snapshot_best: which snapshots a training begins with and leaves."""
    p.add_argument(
        "--resume",
        choices=("latest",),
        default=None,
        help="latest: go on from the newest complete snapshot of the solver's prefix; damaged ones are skipped, and if "
        "there is none, training begins anew (from -weights, if given)",
    )
    p.add_argument(
        "--snapshot_keep",
        type=_count,
        default=None,
        metavar="N",
        help="keep the newest N snapshots of the prefix and remove older ones once a new one is complete; with 2 or "
        "more, -resume latest can fall back to the one before (default: keep all)",
    )
    p.add_argument(
        "--snapshot_best",
        default="",
        metavar="OUTPUT",
        help="also keep the snapshot of the best test, as PREFIX_best_iter_N; the score is this output of a test net: "
        "the smallest is best for a loss, the largest for others (accuracy), or as OUTPUT:min and OUTPUT:max say",
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text[:10]) > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of snapshots")
    return int(text)


def _train(args: argparse.Namespace, rank: Rank | None) -> int:
    root = rank is None or rank.index == 0
    lms, watchers = flags.lms_config(args), watch.watchers(args) if root else []
    files = lms_files.LmsFiles(*(args.lms_report, args.lms_stats) if root else ("", ""))
    parsed = overrides.solver_of(args)
    param = parsed.message
    mode = param.solver_mode if param.HasField("solver_mode") else None
    index, count = (rank.index, rank.count) if rank is not None else (0, 1)
    pick = rank.place.gpu if rank is not None and isinstance(rank.place, MpiRanks) else None
    device = devices.choose(args, lms, solver_mode=mode, device_id=param.device_id, rank=index, pick=pick)
    param.train_state.level = args.level
    param.train_state.stage.extend(flags.stages(args))
    if args.snapshot or args.weights:
        del param.weights[:]
    if args.weights:
        param.weights.append(args.weights)
    effects = args.sigint_effect, args.sighup_effect, args.sigterm_effect
    insist = rank is None or pick is not None  # else the process that started the ranks insists
    synthetic = Synthetic(args.shape)
    signals: Signals | NoSignals = NoSignals()
    if root:
        signals = Signals(*effects, keep=lambda: _set_last_snapshot(param), insist=insist)
    elif pick is not None and args.sigterm_effect in (STOP, SNAPSHOT_AND_STOP):
        signals = Signals(NONE, NONE, STOP)  # the root writes the snapshot

    def make(lms: LMSConfig, device: Device) -> Solver:
        with synthetic.building(args.solver):
            return solver_class(param, parsed.filename, parsed.lines)(
                param,
                file=parsed.filename,
                lines=parsed.lines,
                device=device,
                lms=lms,
                action=signals.poll,
                tuning=flags.tuning(args),
                solver_count=count,
                solver_rank=index,
                **asdict(flags.settings_of(Sharing, args)),
                change_net=synthetic.replace,
            )

    def make_another(lms: LMSConfig) -> None:
        make(lms, devices.choose(args, lms, solver_mode=mode, device_id=param.device_id)).close()

    refused: OutOfDeviceMemory | None = None
    try:
        try:
            solver = make(lms, device)
        except OutOfDeviceMemory as error:
            if rank is not None:
                raise
            refused = error.with_traceback(None)
        if refused is not None:
            advice.set_fix(refused, lms, make_another)
            raise refused
        for net in (solver.net, *solver.test_nets):
            synthetic.fill(net)
        title = f"pycaffe-lms train: {solver.net.name}, {device.describe()}"
        # the first builds kernels
        record = profile.Profile(args.profile, solver.runtime, title, first=2, last=4, root=root)
        files.follow(solver)
        solver.nan = args.nan
        solver.around_iteration = lambda: _both(record, files)
        solver.on_stop = signals.stopped
        solver.snapshots.keep = args.snapshot_keep
        if args.snapshot_best:
            solver.snapshots.keep_best(args.snapshot_best)
        _log_memory(solver)
        _log.info("Starting Optimization")
        with ranks.joined(solver, rank, args) as compare:
            if solver.ranks is not None:
                record.gather = solver.ranks.gather
            with watched(solver, watchers):
                if args.resume:
                    found = solver.restore_latest()
                    compare({"the snapshot to resume from": found or "none"} | of_files([found] if found else []))
                solver.solve(args.snapshot or None)
            record.write()
            _log_totals(solver)
            if solver.ranks is not None:
                solver.rank_report.total(solver.ranks.gather)
            files.write()
        solver.close()
    finally:
        signals.restore()
    return signals.exit_code if root else 0


def _set_last_snapshot(param: SolverParameter) -> None:
    param.snapshot_after_train = True


@contextmanager
def _both(record: profile.Profile, files: lms_files.LmsFiles) -> Iterator[None]:
    with record.iteration(), files.iteration():
        yield


def _log_memory(solver: Solver) -> None:
    """Log what device and host memory is used for, and the plans."""
    runtime = solver.runtime
    if runtime.device.is_host:
        return
    _log.info(
        "Device memory: %s resident, %s of workspace, budget %s.",
        human_bytes(runtime.resident_bytes),
        human_bytes(runtime.workspace_bytes),
        human_bytes(runtime.device.capacity()),
    )
    if not runtime.active:
        return
    for net in (solver.net, *solver.test_nets):
        for name, plan in net.memory.plans().items():
            if plan is None:
                _log.info("LMS: nothing is managed in program %s.", name)
                continue
            _log.info(
                "LMS plan of %s: %d buffers managed, %s of device memory for them, %s in and %s out per run, "
                "%s of host memory.",
                name,
                len(plan.buffers),
                human_bytes(plan.arena_bytes),
                human_bytes(plan.bytes_in),
                human_bytes(plan.bytes_out),
                human_bytes(runtime.slab.nbytes),
            )


def _log_totals(solver: Solver) -> None:
    """Log what Large Model Support copied."""
    runtime = solver.runtime
    if runtime.active:
        stats = runtime.stats
        _log.info(
            "LMS: %d runs, %s copied in, %s copied out, at most %s of managed buffers on the device.",
            stats.runs,
            human_bytes(stats.bytes_in),
            human_bytes(stats.bytes_out),
            human_bytes(stats.held_peak),
        )
