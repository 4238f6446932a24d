"""The table of commands: what each does, in a line, and an example; and where its module is.

A command is a module in `cli/commands/` named after its words ("dataset imagenet": `cli/commands/dataset_imagenet.py`)
with `build_parser()`, which returns its parser, and `run(args)`, which does the work and returns the exit code.
"""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from .flags import Parser


class Command(NamedTuple):
    """Describe a command: what it does, and an example, which its help and docs/cli.md show."""

    what: str
    example: str


COMMANDS = {
    "train": Command("train or fine-tune a model", "solver.prototxt -gpu 0 -lms 1000 -lms_frac 0.4"),
    "test": Command("score a model", "train_val.prototxt -weights net.caffemodel -iterations 100"),
    "time": Command("benchmark a model, layer by layer", "train_val.prototxt -iterations 20 -gpu 0"),
    "benchmark": Command(
        "compare images/s and memory by batch, image size and Large Model Support",
        "resnet-152 -batch 8,16,32,64,128,256 -image 224 -lms off,1000,auto -budget 16GB",
    ),
    "plan": Command(
        "whether a model fits a GPU, how fast it is, what limits it and what to change; needs no GPU",
        "train_val.prototxt -shape data=256,3,224,224 -gpu v100 -lms_budget 8GB",
    ),
    "device_query": Command("show what the devices are", "-gpu all"),
    "dataset": Command(
        "make the databases of a known data set, or of folders of pictures or volumes", "mnist -from ~/Downloads/mnist"
    ),
    "dataset imagenet": Command(
        "pictures in a folder per class, ImageNet or any others",
        "-from ~/imagenet -out data/ilsvrc12 -resize_shorter 256 -encode_type jpg",
    ),
    "dataset volumes": Command(
        "volumes (NIfTI, npy) as HDF5 files", "-list scans.txt -from ~/scans/ -out data/volumes -name train"
    ),
    "dataset text": Command("text as files of token ids, for language models", "book.txt -vocabulary characters"),
    "summarize": Command(
        "a net as a table: shapes, parameters, operations, memory",
        "models/resnet-50/train_val.prototxt -shape data=32,3,224,224",
    ),
    "extract_features": Command(
        "blobs of a net, run on its data, as databases",
        "net.prototxt -weights net.caffemodel fc7,prob fc7_lmdb,prob_lmdb 10 lmdb GPU 0",
    ),
    "classify": Command(
        "class scores of pictures",
        "deploy.prototxt -weights net.caffemodel cat.jpg -labels_file synset_words.txt",
    ),
    "detect": Command(
        "objects in pictures and their boxes, or class scores of windows of pictures",
        "deploy.prototxt -weights ssd.caffemodel -mean_value 104,117,123 -draw found street.jpg",
    ),
    "generate": Command(
        "text by a language model, after a prompt", 'char_gpt -weights net.caffemodel -prompt "Mila the mouse" -seed 1'
    ),
    "export_onnx": Command(
        "a net for use, with its weights, as an ONNX model",
        "deploy.prototxt -weights net.caffemodel -o net.onnx",
    ),
    "export_caffe": Command(
        "a net for use, with its weights, as Caffe files for the toolchain of a chip",
        "deploy.prototxt -weights net.caffemodel -for horizon -o net_horizon -check",
    ),
    "import_onnx": Command(
        "an ONNX model, from PyTorch or others, as a net that can be trained",
        "resnet18.onnx -o resnet18.prototxt -check",
    ),
    "draw_net": Command("a net as a picture", "models/googlenet/train_val.prototxt googlenet.svg -phase TRAIN"),
    "plot_training_log": Command("curves of training logs as a picture", "6 loss.png first.log second.log"),
    "diff": Command(
        "what differs between two nets or two solvers",
        "models/resnet-18/train_val.prototxt models/resnet-34/train_val.prototxt",
    ),
    "parse_log": Command("the log of a training run as CSV files", "run.log ."),
    "convert_imageset": Command(
        "pictures that a list names into an LMDB or LevelDB",
        "-shuffle -resize_height=256 -resize_width=256 pictures/ train.txt train_lmdb",
    ),
    "convert_annoset": Command(
        "pictures and the boxes of their objects into an LMDB or LevelDB, for detection",
        "-anno_type detection -label_map_file labelmap.prototxt -encoded VOCdevkit/ trainval.txt trainval_lmdb",
    ),
    "get_image_size": Command(
        "names and sizes of pictures, for DetectionOutput and DetectionEvaluate",
        "VOCdevkit/ test.txt test_name_size.txt",
    ),
    "convert_mnist_data": Command(
        "MNIST's files into an LMDB or LevelDB", "train-images-idx3-ubyte train-labels-idx1-ubyte mnist_train_lmdb"
    ),
    "convert_cifar_data": Command(
        "CIFAR-10's binary files into LMDBs or LevelDBs", "cifar-10-batches-bin data/cifar10 lmdb"
    ),
    "convert_mnist_siamese_data": Command(
        "MNIST's files into a database of pairs",
        "-seed 1 train-images-idx3-ubyte train-labels-idx1-ubyte pairs_leveldb",
    ),
    "compute_image_mean": Command("the mean picture of a database", "-backend=lmdb train_lmdb mean.binaryproto"),
    "upgrade_net_proto_text": Command("an old net prototxt in the current form", "old.prototxt new.prototxt"),
    "upgrade_net_proto_binary": Command("an old .caffemodel in the current form", "old.caffemodel new.caffemodel"),
    "upgrade_solver_proto_text": Command(
        "an old solver prototxt in the current form", "old_solver.prototxt solver.prototxt"
    ),
    "init": Command("begin a classifier of your own pictures: net, solver, databases", "mynet -images photos/ -train"),
    "zoo": Command("list the models that come with the package, or write one's files", "get resnet-50"),
    "weights": Command("list public weights, get them by name, compare and convert files", "get bvlc_alexnet"),
    "weights diff": Command("what differs between two files of weights", "old.caffemodel new.caffemodel"),
    "weights convert": Command("a file of weights in another form", "gpt2/model.safetensors gpt2.caffemodel"),
    "completion": Command(
        "print a script that completes commands and flags in a shell",
        "bash > ~/.local/share/bash-completion/completions/pycaffe-lms",
    ),
}


class CommandModule(Protocol):
    """Describe what a module in `cli/commands/` exports."""

    @staticmethod
    def build_parser() -> Parser: ...

    @staticmethod
    def run(args: argparse.Namespace) -> int: ...


def module_of(words: str) -> CommandModule:
    """Import and return the module of a command of the table."""
    return cast(CommandModule, importlib.import_module(f"pycaffe_lms.cli.commands.{words.replace(' ', '_')}"))
