"""`pycaffe-lms <action> [flags]`: finds the action, turns errors into one message and an exit code.

Exit codes: 0 done, 1 the user's model or data, 2 usage, 130 interrupted (after a snapshot, if one was due), 143
ended by SIGTERM (after a snapshot).
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
from contextlib import suppress

from ..errors import CaffeError, UsageError
from ..log import log_to_stderr

_ROOM = "check that files and folders exist, may be read and written, and that the disk has room"
_SMALLER = "lower batch_size, or make the blobs smaller"
ACTIONS = {
    "train": "train or fine-tune a model",
    "test": "score a model",
    "time": "benchmark a model, layer by layer",
    "plan": "print the Large Model Support plan of a model; needs no GPU",
    "device_query": "show what the devices are",
    "dataset": "make the databases of a known data set, or of folders of pictures or volumes",
    "summarize": "a net as a table: shapes, parameters, operations, memory",
    "extract_features": "blobs of a net, run on its data, as databases",
    "classify": "class scores of pictures",
    "detect": "class scores of windows of pictures",
    "export_onnx": "a net for use, with its weights, as an ONNX model",
    "draw_net": "a net as a graph, a picture",
    "plot_training_log": "curves of training logs as a picture",
    "diff": "what differs between two nets or two solvers",
    "parse_log": "the log of a training run as CSV files",
    "convert_imageset": "pictures that a list names into an LMDB or LevelDB",
    "convert_mnist_data": "MNIST's files into an LMDB or LevelDB",
    "convert_cifar_data": "CIFAR-10's binary files into LMDBs or LevelDBs",
    "convert_mnist_siamese_data": "MNIST's files into a database of pairs",
    "compute_image_mean": "the mean picture of a database",
    "upgrade_net_proto_text": "an old net prototxt in the current form",
    "upgrade_net_proto_binary": "an old .caffemodel in the current form",
    "upgrade_solver_proto_text": "an old solver prototxt in the current form",
    "weights": "get public weights by name",
    "completion": "print a script that completes commands and flags in a shell",
}


def main(argv: list[str] | None = None) -> int:
    """Run an action; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # names of blobs and files may be any bytes
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()  # not at the interpreter's exit, where a failure could not be told
    except CaffeError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:  # what reads the output (`head`, a pager) has enough
        _drop_output()
        return 1
    except OSError as failure:
        _drop_output()
        place = f"{failure.filename}: " if failure.filename is not None else ""
        return _fail(f"{place}{failure.strerror or failure}\n  fix: {_ROOM}", 1)
    except MemoryError:
        return _fail(f"the host has no memory left\n  fix: {_SMALLER}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130, head="")


def _run(argv: list[str]) -> int:
    action, rest = _find_action(argv)
    if action is None:
        print(_usage())
        return 0
    with log_to_stderr():
        return importlib.import_module(f"pycaffe_lms.cli.commands.{action}").run(rest) or 0


def _fail(text: str, code: int, head: str = "error: ") -> int:
    with suppress(OSError):  # stderr may be closed, or on a full disk: the exit code remains
        print(f"{head}{text}", file=sys.stderr, flush=True)
    return code


def _drop_output() -> None:
    """Let what is left of the output go nowhere, so that the interpreter's exit does not fail on it."""
    with suppress(OSError):  # a stream of a test, or of another program, may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _find_action(argv: list[str]) -> tuple[str | None, list[str]]:
    words = [i for i, a in enumerate(argv) if not a.startswith("-")]
    if not argv or argv[0] in ("-h", "--help", "-help"):
        return None, []
    if argv[0] in ("-version", "--version"):
        from .. import __version__

        print(f"pycaffe-lms {__version__}")
        raise SystemExit(0)
    at = 0 if 0 in words else next((i for i in words if argv[i] in ACTIONS), words[0] if words else None)
    if at is None:
        raise UsageError("no action is given", fix="one of: " + ", ".join(ACTIONS))
    name = argv[at]
    if name not in ACTIONS:
        near = difflib.get_close_matches(name, ACTIONS, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'unknown action "{name}"{hint}', fix="one of: " + ", ".join(ACTIONS))
    return name, argv[:at] + argv[at + 1 :]


def _usage() -> str:
    lines = ["usage: pycaffe-lms <action> [flags]", "", "actions:"]
    lines += [f"  {name:<{1 + max(map(len, ACTIONS))}}{what}" for name, what in ACTIONS.items()]
    return "\n".join([*lines, "", "pycaffe-lms <action> --help lists the flags of one."])


if __name__ == "__main__":
    sys.exit(main())
