"""What the benchmarks share: a solver on a model with synthetic images that are made once, not per iteration."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import pycaffe_lms as caffe  # noqa: E402
from pycaffe_lms.backend import get_device  # noqa: E402
from pycaffe_lms.backend.device import Device  # noqa: E402
from pycaffe_lms.cli.bench import hardware  # noqa: E402
from pycaffe_lms.cli.views.shapes import with_shapes  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import read_net  # noqa: E402
from pycaffe_lms.lms.config import LMSConfig  # noqa: E402
from pycaffe_lms.net.build.filter import filter_net  # noqa: E402
from pycaffe_lms.net.tuning import Tuning  # noqa: E402
from pycaffe_lms.parallel.communicator import TIMEOUT_S  # noqa: E402
from pycaffe_lms.parallel.data_parallel import DataParallel  # noqa: E402
from pycaffe_lms.parallel.host import HostCommunicator  # noqa: E402
from pycaffe_lms.parallel.launch import Rank  # noqa: E402
from pycaffe_lms.parallel.nccl import NCCL  # noqa: E402
from pycaffe_lms.proto import caffe_pb2  # noqa: E402
from pycaffe_lms.solvers import SGDSolver  # noqa: E402

_LABELS = {"unet-2d": (1, 388, 388)}  # of an item, where it has more than one


def dummy_net(model: str, batch: int):
    """The net of models/<model>, for training, with `batch` items per iteration: its train_dummy.prototxt, or its
    train_val.prototxt with data of the shape in its deploy.prototxt. The data stay what somebody writes into them.
    """
    folder = ROOT / "models" / model
    if (path := folder / "train_dummy.prototxt").exists():
        net = read_net(path).message
    else:
        item = read_net(folder / "deploy.prototxt").message.layer[0].input_param.shape[0].dim[1:]
        given = {"data": (batch, *item), "label": (batch, *_LABELS.get(model, ()))}
        shapes = [f"{name}={','.join(map(str, shape))}" for name, shape in given.items()]
        whole = with_shapes(read_net(folder / "train_val.prototxt").message, shapes)
        whole.state.phase = caffe_pb2.TRAIN
        net = filter_net(whole)[0]
    dummy = next(layer for layer in net.layer if layer.type == "DummyData").dummy_data_param
    for shape in dummy.shape:
        shape.dim[0] = batch
    for filler in dummy.data_filler:
        filler.Clear()
        filler.type = "constant"
    return net


def make_solver(
    model: str,
    batch: int,
    lms: LMSConfig,
    *,
    backend: str = "cuda",
    seed: int = 1,
    index: int = 0,
    half: bool = False,
    device: Device | None = None,
    net: caffe_pb2.NetParameter | None = None,
    **options,
) -> SGDSolver:
    """An SGD solver on the net of models/<model> with `batch` images per iteration, kept the same throughout: the data
    top is constant, so the net leaves what we write into it alone. index: of the GPU. half: hidden activations
    as bfloat16. device: in place of the backend's. net: in place of that net, with data of its own. options: of the
    solver.
    """
    own = net is not None
    net = net or dummy_net(model, batch)
    param = caffe_pb2.SolverParameter(
        base_lr=0.01,
        momentum=0.9,
        weight_decay=1e-4,
        lr_policy="fixed",
        max_iter=1000,
        random_seed=seed,
        snapshot_after_train=False,
    )
    param.net_param.CopyFrom(net)
    device = device or get_device(backend, index=index)
    if not device.is_host:
        device.set_budget(None)  # one left over from an earlier solver
    if options or lms.enabled:  # several ranks, or with Large Model Support: as the command line does
        solver = SGDSolver(param, device=device, lms=lms, tuning=Tuning(pack=True, half=half), **options)
    else:
        solver = _as_users_do(param, device, half)
    if not own:
        give_images(solver, net, seed)
    return solver


def give_images(solver: SGDSolver, net, seed: int) -> None:
    """Write random images and labels, which take as long to make as some parts of a start."""
    rng = np.random.default_rng(seed)
    data, label = solver.net.blobs["data"], solver.net.blobs["label"]
    data.data = rng.standard_normal(data.shape, dtype=np.float32)
    classes = next(solver.net.blobs[n.bottom[0]].shape[1] for n in net.layer if n.type == "SoftmaxWithLoss")
    label.data = rng.integers(0, classes, label.shape)


def _as_users_do(param, device, half: bool) -> SGDSolver:
    """The solver that a Python script has of a file with these settings."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "solver.prototxt"
        file.write_text(str(param))
        if half:
            caffe.set_math("bf16")
        try:
            return caffe.get_solver(file, device=device)
        finally:
            if half:
                caffe.set_math("tf32")


def over_network(rank: Rank) -> None:
    """Let this process be a host of its own to NCCL, which reaches the others through sockets; ranks may then share a
    GPU. Call it before any communicator is made."""
    ways = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
    os.environ.update(ways, NCCL_HOSTID=f"rank{rank.index}")


def ranked_solver(
    model: str,
    batch: int,
    lms: LMSConfig,
    rank: Rank,
    *,
    device: Device,
    capture: bool = False,
    timeout: float = TIMEOUT_S,
    **options,
) -> tuple[SGDSolver, DataParallel]:
    """A rank's solver, with images of its own and the weights of rank 0, and what joins it to the others. capture: let
    CUDA graphs contain the sums. timeout: seconds to wait for another rank. options: as of `make_solver`."""
    solver = make_solver(
        model,
        batch,
        lms,
        seed=1 + rank.index,
        device=device,
        solver_count=rank.count,
        solver_rank=rank.index,
        **options,
    )
    if device.name == "cuda":
        parallel: DataParallel = NCCL(solver, rank.place, capture=capture, timeout=timeout, beats=rank.beats)
    else:
        place = HostCommunicator(device, rank.place, rank.count, rank.index, timeout=timeout)
        parallel = DataParallel(solver, place)
    parallel.bcast()
    return solver, parallel


def versions() -> str:
    """Hardware and versions, for a report."""
    return hardware.versions(get_device("cuda"))
