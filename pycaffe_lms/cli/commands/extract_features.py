"""`pycaffe-lms extract_features WEIGHTS MODEL BLOBS DATABASES BATCHES DB_TYPE [CPU|GPU] [DEVICE_ID]`: blobs of a net as
databases."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack

from ...data.sets.conversion import WRITERS, check_target
from ...data.sets.features import FeatureWriter, feature_shape
from ...errors import GraphError, UsageError
from ...net.net import Net
from .. import devices, flags, overrides
from ..progress import Progress, add_progress

_log = logging.getLogger(__name__)
_EVERY = 1000
_ABOUT = """Run a net on its data and write blobs of it as databases of Datums with float values, as Caffe's
extract_features does: one record per item, keys 0000000000, 0000000001, ..
WEIGHTS may be a flag: MODEL -weights WEIGHTS BLOBS DATABASES ..

The net is that of phase TEST; its data layer decides what is read. Without CPU or GPU, -gpu or -backend it runs on the
GPU if there is one. Large Model Support works as in test. A database appears when it is complete."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("extract_features", _ABOUT, common="weights overwrite set gpu backend lms lms_budget")
    flags.add_word(p, "weights", "comma list of .caffemodel files", value="FILES")
    flags.add_word(p, "model", "net prototxt with a data layer")
    p.add_argument("blobs", metavar="BLOB[,BLOB]", help="blobs to write")
    p.add_argument("databases", metavar="DATABASE[,DATABASE]", help="folder to write for each of them; must not exist")
    p.add_argument("batches", metavar="BATCHES", type=int, help="how many batches to run")
    p.add_argument("db_type", metavar="DB_TYPE", choices=sorted(WRITERS), help="kind of database: lmdb or leveldb")
    p.add_argument("mode", metavar="CPU|GPU", nargs="?", choices=("CPU", "GPU"), help="where the net runs")
    p.add_argument("device_id", metavar="DEVICE_ID", nargs="?", help="number of the GPU (default: 0)")
    p.add_argument("--overwrite", action="store_true", help="replace databases that are there")
    add_progress(p)
    overrides.add_set(p, "the net", "layer.data.data_param.batch_size=10")
    flags.add_state(p)
    flags.add_tuning(p, without=("masks",))
    flags.add_device(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the databases."""
    names, paths = _pairs(args)
    _apply_mode(args)
    devices.check_weights(args.weights)
    for path in paths:
        check_target(path, backend=args.db_type, overwrite=args.overwrite)
    net = devices.build_net(args, 1, forward_only=True)
    try:
        _check(net, names, args.model)
        devices.load_weights(net, args.weights)
        net.keep(*names)
        net.prepare_test()
        with ExitStack() as stack:
            writers = [
                stack.enter_context(FeatureWriter(path, name, backend=args.db_type, overwrite=args.overwrite))
                for name, path in zip(names, paths, strict=True)
            ]
            _log.info("Extracting Features")
            progress = stack.enter_context(Progress(args.progress, every=None, unit="items"))
            for batch in range(1, args.batches + 1):
                net.test_forward()
                for writer in writers:
                    _add(writer, net)
                progress(writers[0].count, writers[0].count * args.batches // batch)
        for writer in writers:
            _say(writer)
    finally:
        net.close()
    _log.info("Successfully extracted the features!")
    return 0


def _pairs(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the blobs and the database of each. Raises UsageError."""
    names, paths = args.blobs.split(","), args.databases.split(",")
    if len(names) != len(paths) or not all(names + paths):
        raise UsageError(f"{len(names)} blobs and {len(paths)} databases", fix="name one database for each blob")
    if len(set(paths)) != len(paths):
        raise UsageError("a database is named twice", fix="name another one for each blob")
    if args.batches < 1:
        raise UsageError(f"{args.batches} batches", fix="give 1 or more")
    return names, paths


def _apply_mode(args: argparse.Namespace) -> None:
    """Set -backend and -gpu as the words CPU or GPU say. Raises UsageError."""
    if args.mode is None:
        return
    if args.gpu or args.backend is not None:
        raise UsageError(f"{args.mode} beside -gpu or -backend", fix="say once where the net runs")
    if args.mode == "GPU":
        args.gpu = args.device_id or "0"
    elif args.device_id is not None:
        raise UsageError(f"device {args.device_id!r} of the CPU", fix="leave the number out, or say GPU")
    else:
        args.backend = "cpu"


def _check(net: Net, names: list[str], file: str) -> None:
    """Raise GraphError if a blob is not there or does not fit, or if the net has inputs that nothing fills."""
    for name in names:
        try:
            net.check_blob(name)
            feature_shape(net.blobs[name].shape, name)
        except GraphError as error:
            raise error.at(file=file) from None
    if net.inputs:
        raise GraphError(
            f"nothing fills the inputs {', '.join(net.inputs)}",
            fix="give the net a data layer, such as Data or ImageData",
        ).at(file=file)


def _add(writer: FeatureWriter, net: Net) -> None:
    """Write a batch of the writer's blob."""
    before = writer.count
    writer.add(net.blobs[writer.blob].read_data())
    if writer.count // _EVERY > before // _EVERY:
        _say(writer)


def _say(writer: FeatureWriter) -> None:
    _log.info("Extracted features of %d query images for feature blob %s", writer.count, writer.blob)
