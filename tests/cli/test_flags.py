"""Flags in gflags and GNU spelling, and what the LMS flags become."""

from __future__ import annotations

import pytest

from pycaffe_lms.cli import flags
from pycaffe_lms.cli.catalogue import COMMANDS
from pycaffe_lms.cli.commands import dataset
from pycaffe_lms.cli.main import main
from pycaffe_lms.data.sets.datasets import DATASETS
from pycaffe_lms.errors import UsageError


def _lms(*argv):
    p = flags.parser("train", "")
    p.add_argument("--solver")
    flags.add_device(p)
    return flags.lms_config(flags.parse(p, list(argv)))


@pytest.mark.parametrize("argv", [["-lms", "2000"], ["--lms", "2000"], ["-lms=2000"], ["--lms=2000"]])
def test_gflags_and_gnu_spellings_are_one(argv):
    assert _lms(*argv).threshold_kb == 2000


@pytest.mark.parametrize("argv", [["-lms"], ["--lms"], ["-lms", "-solver", "s"], ["-solver", "s", "-lms"]])
def test_bare_lms_is_a_thousand_kb(argv):
    assert _lms(*argv).threshold_kb == 1000


@pytest.mark.parametrize("argv", [[], ["-lms", "-1"], ["-lms=-1"], ["-lms", "0"], ["-lms", "-10000000000"]])
def test_zero_or_negative_is_off(argv):
    assert not _lms(*argv).enabled


def test_any_size_of_integer():
    assert _lms("-lms", "10000000000").min_bytes == 10_240_000_000_000


def test_every_lms_flag_arrives():
    config = _lms(
        "-lms",
        "7",
        "-lms_frac",
        "0.4",
        "-lms_budget=16GB",
        "--lms_ahead",
        "3",
        "-lms_sync=2",
        "-lms_host",
        "64GB",
        "-lms_split",
        "4",
    )
    assert (config.threshold_kb, config.frac, config.ahead, config.sync) == (7, 0.4, 3, 2)
    assert (config.budget, config.host_limit) == (16 << 30, 64 << 30)
    assert config.split == 4 and _lms("-lms_split", "off").parts == 0
    assert _lms("-lms_split_outputs", "8").blocks == 8
    assert _lms("-lms_split_outputs", "off").blocks == 0 == _lms("-lms_split", "off").blocks
    assert _lms("-lms_split", "off", "-lms_split_outputs", "2").blocks == 2


def test_parts_are_chosen_only_where_that_is_asked_for():
    """For sums are rounded otherwise then. None: as few as fit."""
    assert (_lms().parts, _lms().blocks) == (0, 0) == (_lms("-lms", "auto").parts, _lms("-lms", "auto").blocks)
    assert (_lms("-lms_split", "auto").parts, _lms("-lms_split", "auto").blocks) == (None, None)
    assert (_lms("-lms_split", "4").parts, _lms("-lms_split", "4").blocks) == (4, 0)
    more = _lms("-lms_split", "auto", "-lms_split_outputs", "off")
    assert (more.parts, more.blocks, more.slabs) == (None, 0, None)
    assert _lms().slabs == 0 == _lms("-lms_split", "auto", "-lms_split_slabs", "off").slabs
    assert (_lms("-lms_split_slabs", "auto").slabs, _lms("-lms_split_slabs", "8").slabs) == (None, 8)
    assert (_lms("-lms_split_outputs", "auto").parts, _lms("-lms_split_outputs", "auto").blocks) == (0, None)


@pytest.mark.parametrize(
    "argv",
    [
        ["-lms", "many"],
        ["-lms", "1.5"],
        ["-lms="],
        ["-lms_frac", "half"],
        ["-lms_frac", "nan"],
        ["-lms_frac", "2"],
        ["-lms_ahead", "1.5"],
        ["-lms_budget", "16XB"],
        ["-lms_sync", "4"],
        ["-lms_host", "0"],
        ["-lms_split", "some"],
        ["-lms_split", "0"],
        ["-lms_split", "-2"],
        ["-lms_split_outputs", "few"],
        ["-lms_split_outputs", "0"],
        ["-lms_split_slabs", "few"],
        ["-backend", "tpu"],
        ["-lms_budget"],
    ],
    ids=" ".join,
)
def test_wrong_values_are_usage_errors_that_name_the_flag(argv):
    with pytest.raises(UsageError) as caught:
        _lms(*argv)
    assert argv[0].strip("-=") in str(caught.value) and caught.value.fix


@pytest.mark.parametrize(
    "argv, near",
    [
        (["-lms_fra", "0.2"], "-lms_frac"),
        (["-lms_f", "0.2"], ""),  # never taken for -lms with a value, nor for a short form
        (["--lms-frac=0.2"], "-lms_frac"),
        (["-bakend", "cpu"], "-backend"),
    ],
)
def test_an_unknown_flag_is_refused_with_a_near_one(argv, near):
    with pytest.raises(UsageError) as caught:
        _lms(*argv)
    assert argv[0].strip("-").split("=")[0] in str(caught.value)
    assert f"did you mean {near}" in str(caught.value)


def test_an_unknown_flag_is_named_even_where_a_required_one_is_missing(capsys):
    """`-solvr x` for `-solver x`: what is wrong is the typo."""
    assert main(["train", "-solvr", "x"]) == 2
    assert "solvr" in capsys.readouterr().err


def test_a_word_too_many_is_refused():
    with pytest.raises(UsageError, match="unexpected word 'fast'"):
        _lms("-lms", "5", "fast")


def test_numbers_and_what_follows_two_dashes_are_left_alone():
    assert flags.gflags_style(["-lms", "-1", "-x.5", "-.5", "--", "-model"]) == [
        "--lms",
        "-1",
        "--x.5",
        "-.5",
        "--",
        "-model",
    ]


@pytest.fixture
def asked(monkeypatch):
    """What `dataset digits` asks of the data set's maker."""
    seen = {}

    def make(out, **options):
        seen.update(options, out=out)
        return {}

    monkeypatch.setitem(
        DATASETS,
        "digits",
        type("Fake", (), {"make": staticmethod(make), "needs_source": False, "description": "ten digits"}),
    )
    return seen


@pytest.mark.parametrize(
    "argv, overwrite",
    [
        ([], False),
        (["-overwrite"], True),
        (["--overwrite"], True),
        (["-nooverwrite"], False),
        (["--nooverwrite"], False),
        (["-overwrite", "-nooverwrite"], False),
        (["-overwrite=true"], True),
        (["-overwrite=false"], False),
        (["-overwrite=True"], True),
        (["-overwrite", "--overwrite=False"], False),
        (["-overwrite=y", "-overwrite=F"], False),
    ],
    ids=str,
)
def test_booleans_take_no_as_gflags_do(argv, overwrite, asked, tmp_path):
    dataset.run(flags.parse(dataset.build_parser(), ["digits", "-out", str(tmp_path), *argv]))
    assert asked["overwrite"] is overwrite


def test_the_action_is_found_among_the_flags(asked, tmp_path, capsys):
    assert main(["-out", str(tmp_path / "made"), "dataset", "digits"]) == 0
    assert asked["out"] == tmp_path / "made"


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["-help"]])
def test_help_lists_the_actions_on_stdout(argv, capsys):
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert all(f"  {words} " in shown.out for words in COMMANDS if " " not in words) and not shown.err


@pytest.mark.parametrize("spelling", ["--help", "-help", "-h"])
@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_every_action_that_is_listed_is_there(words, spelling, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*words.split(), spelling])
    assert caught.value.code == 0
    assert f"pycaffe-lms {words}" in capsys.readouterr().out


@pytest.mark.parametrize("argv, hint", [(["trian"], '"train"'), (["-lms", "5"], ""), (["xyz"], "")])
def test_a_wrong_action_is_refused_with_a_near_one(argv, hint, capsys):
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and hint in said and "train, test" in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("train s -backend cua", "-backend 'cua' does not exist\n  fix: use cpu, cuda, sim\n"),
        (
            "test n -weights w -iterations x",
            "-iterations 'x' is not a whole number\n  fix: see pycaffe-lms test --help\n",
        ),
        ("plot_training_log x p.png l", "CHART 'x' is not a whole number\n"),
        ("train s -snapshot_keep 0", "-snapshot_keep: '0' is no number of snapshots\n"),
        ("plan n -batch 3", "unknown flag '-batch'\n  fix"),  # -math is not near enough
        ("train s s", "unexpected word 's'; SOLVER"),
    ],
)
def test_wrong_values_in_the_words_of_the_user(argv, said, capsys):
    """With one hyphen, as the documents write flags, and with what exists."""
    if argv == "train s s":
        argv, said = "train s -solver s", "unexpected word 's'; SOLVER is given as a flag already\n"
    assert main(argv.split()) == 2
    assert f"error: {said}" in capsys.readouterr().err
