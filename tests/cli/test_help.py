"""The help of commands: a screen of usual flags, all of them on request, defaults that are true."""

from __future__ import annotations

import re

import pytest

from pycaffe_lms.cli import flags, help
from pycaffe_lms.cli.catalogue import COMMANDS, module_of
from pycaffe_lms.cli.main import main

LINES, COLUMNS = 40, 80  # of a screen


def printed(capsys, *argv):
    with pytest.raises(SystemExit) as ended:
        main([*argv])
    assert ended.value.code == 0
    return capsys.readouterr().out


def of_flags(words):
    return [a for a in module_of(words).build_parser()._actions if a.option_strings and a.dest != "help"]


@pytest.mark.parametrize("words", COMMANDS)
def test_help_fits_on_a_screen(words, capsys):
    lines = printed(capsys, *words.split(), "-help").splitlines()
    assert len(lines) <= LINES
    assert all(len(line) <= COLUMNS for line in lines if "pycaffe-lms" not in line)  # a command is not broken


@pytest.mark.parametrize("words", COMMANDS)
def test_short_help_names_every_flag_and_all_explains_it(words, capsys):
    short, whole = (printed(capsys, *words.split(), *argv) for argv in (["-help"], ["-help", "all"]))
    text = " ".join(whole.split())
    for action in of_flags(words):
        name = action.option_strings[0].lstrip("-")
        assert re.search(rf"(^|[ ,])-{name}\b", short, re.MULTILINE), name
        assert all(f"-{o.lstrip('-')}" in whole for o in action.option_strings)
        assert " ".join((action.help % {**vars(action), "prog": ""}).split()) in text, name


def test_short_help_promises_no_flags_where_all_are_usual(capsys):
    """import_onnx has four, all of them usual; more is said about what it does."""
    short = printed(capsys, "import_onnx", "-help")
    assert "more flags" not in short and "`pycaffe-lms import_onnx -help all` says more.\n" in short


def test_common_flags_come_first_and_others_by_name():
    p = flags.parser("train", "Do it.\n\nAt length.", common="second third")
    p.add_argument("--first", type=int, default=7, metavar="N", help="the first; and more of it")
    p.add_argument("--second", default="", metavar="FILE", help="the second; and more of it")
    p.add_argument("--third", type=float, default=0.5, metavar="X", help="the third")
    lines = help.short(p, p.common).splitlines()
    assert lines[:8] == [
        "usage: pycaffe-lms train [flags]",
        "",
        "Do it.",
        "",
        "flags:",
        "  -second FILE            the second",
        "  -third X                the third (default: 0.5)",
        "",
    ]
    assert lines[8:10] == ["more flags, which `pycaffe-lms train -help all` explains:", "  -first"]
    whole = help.full(p, p.common)
    assert "At length." in whole and "the first; and more of it (default: 7)" in whole


@pytest.mark.parametrize("words", COMMANDS)
def test_defaults_in_help_are_the_flags_own(words):
    """A number, a size or a choice after "default:" is what the parser sets; words describe what follows from None."""
    for action in of_flags(words):
        text = action.help % {**vars(action), "prog": ""}
        for said in re.findall(r"\(default: ([^ ()]+)\)", text):
            if isinstance(action.default, float):
                assert float(said) == action.default, action.dest
            elif action.default is not None:  # where it is None the command chooses, and its own tests see that
                assert said == str(action.default), action.dest


@pytest.mark.parametrize(
    ("words", "name", "rest"),
    [
        ("train", "solver", []),
        ("test", "model", ["-weights", "w"]),
        ("time", "model", []),
        ("plan", "model", []),
        ("benchmark", "model", []),
        ("summarize", "model", []),
        ("draw_net", "model", ["net.png"]),
        ("export_onnx", "model", ["-weights", "w", "-o", "f"]),
        ("export_caffe", "model", ["-weights", "w", "-o", "f", "-for", "rknn"]),
        ("classify", "model", ["cat.jpg", "-weights", "w"]),
        ("classify", "model", ["cat.jpg", "scores", "-weights", "w"]),
        ("detect", "model", ["windows.csv", "out.csv", "-weights", "w"]),
        ("extract_features", "weights", ["net", "fc7", "db", "10", "lmdb", "GPU"]),
    ],
)
def test_a_word_and_its_flag_are_one(words, name, rest):
    module = module_of(words)
    as_word = flags.parse(module.build_parser(), ["x.file", *rest])
    for argv in (["-" + name, "x.file", *rest], [*rest, f"--{name}=x.file"]):
        assert vars(flags.parse(module.build_parser(), argv)) == vars(as_word)
    assert getattr(as_word, name) == "x.file"


def test_the_mould_and_caffes_own_order_of_extract_features():
    p = module_of("extract_features").build_parser
    mould = flags.parse(p(), ["net.prototxt", "-weights", "w.caffemodel", "fc7", "db", "10", "lmdb"])
    caffes = flags.parse(p(), ["w.caffemodel", "net.prototxt", "fc7", "db", "10", "lmdb"])
    assert vars(mould) == vars(caffes) and mould.model == "net.prototxt" and mould.batches == 10


def test_caffes_spelling_of_classify():
    p = module_of("classify").build_parser
    caffes = flags.parse(p(), ["cat.jpg", "out.npy", "--model_def", "m", "--pretrained_model", "w"])
    assert vars(caffes) == vars(flags.parse(p(), ["m", "cat.jpg", "out.npy", "-weights", "w"]))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["test", "-weights", "w"], "MODEL is missing: prototxt of the net, whose TEST phase is scored"),
        (["train"], "SOLVER is missing: prototxt of the solver"),
        (["train", "a", "-solver", "b"], "unexpected word 'a'; SOLVER is given as a flag already"),
        (["classify", "cat.jpg", "-weights", "w"], "too few words: there must be MODEL INPUT"),
        (["draw_net", "net.prototxt"], "too few words: there must be MODEL PICTURE"),
    ],
)
def test_slips(argv, said, capsys):
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_without_a_command_all_are_listed_and_how_to_begin(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in COMMANDS:
        assert " " in name or any(line.startswith(f"  {name} ") for line in lines), name
    begin = [line.split("  ")[1].split() for line in lines if line.startswith("  pycaffe-lms ")]
    assert [words[:2] for words in begin] == [["pycaffe-lms", "train"], ["pycaffe-lms", "init"]]
    for words in begin:  # as they are typed
        flags.parse(module_of(words[1]).build_parser(), words[2:])
