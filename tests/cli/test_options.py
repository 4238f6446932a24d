"""One option, one place: a setting's field makes its flag, its check, its Python keyword and its documentation."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.cli import flags
from pycaffe_lms.cli.catalogue import COMMANDS, module_of
from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.config import LMSConfig, parse_size
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.options import Limit, option, options_of, switch, whole_number

FILES = {"--lms_report", "--lms_stats"}  # of `train`: no settings, but files that it writes


def _actions(words):
    return {a.option_strings[0]: a for a in module_of(words).build_parser()._actions if a.option_strings}


def test_every_field_of_the_lms_settings_is_an_option():
    assert [*options_of(LMSConfig)] == [f.name for f in fields(LMSConfig)]
    assert all(len(o.help.split()) > 3 for o in options_of(LMSConfig).values())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_lms_flag_comes_from_a_field(words):
    """All of a command that has -lms but what means nothing there, none of another one; -lms_plan where it trains."""
    found = {name for name in _actions(words) if name.startswith("--lms")} - FILES
    options = [o for o in options_of(LMSConfig).values() if o.has_flag and (words == "train" or not o.for_training)]
    without = {"plan": {"--lms_sync"}, "benchmark": {"--lms_budget"}}  # no copies wait; -budget says it
    assert found in (set(), {f"--{o.flag}" for o in options} - without.get(words, set()))
    assert bool(found) == ("--math" in _actions(words) and words != "export_onnx")  # there it is that of the model


@pytest.mark.parametrize(
    ("words", "there"), [("train", True), ("time", True), ("test", False), ("extract_features", False)]
)
def test_masks_of_a_backward_are_a_flag_only_where_there_is_one(words, there):
    assert ("--masks" in _actions(words)) == there and "--layout" in _actions(words)


@pytest.mark.parametrize("settings", [LMSConfig, Tuning])
def test_a_flag_is_what_its_field_says(settings):
    actions = _actions("train")
    for described in options_of(settings).values():
        if described.has_flag:
            action = actions[f"--{described.flag}"]
            assert (action.help, action.const) == (described.help, described.bare)
            assert (action.metavar or "", tuple(action.choices or ())) == (described.value, described.choices)


def test_every_field_is_a_keyword_with_a_line_of_help():
    assert list(inspect.signature(caffe.LMS).parameters) == list(options_of(LMSConfig))
    for name, described in options_of(LMSConfig).items():
        lines = [line for line in inspect.getdoc(caffe.LMS).splitlines() if line.startswith(f"    {name}: ")]
        assert len(lines) == 1 and lines[0].endswith(f"). {described.help[:1].upper()}{described.help[1:]}")


def test_flags_and_keywords_give_the_same_settings():
    argv = "-lms 7 -lms_frac 0.4 -lms_budget 16GB -lms_ahead 3 -lms_sync 2 -lms_host 64GB -lms_recompute on "
    argv += "-lms_exclude 5 -lms_pages off -lms_compress bf16 -lms_plan p -lms_split 4 -lms_split_outputs auto"
    argv += " -lms_split_slabs 3"
    p = flags.parser("train", "")
    flags.add_device(p, trains=True)
    given = {"frac": 0.4, "budget": "16GB", "ahead": 3, "sync": 2, "host_limit": "64GB", "recompute": True}
    given |= {"exclude": "5MB", "pages": False, "compress": "bf16", "plan_file": "p", "split": 4}
    keyword = caffe.LMS(7, **given, split_outputs="auto", split_slabs=3)
    flag = flags.lms_config(flags.parse(p, argv.split()))
    assert {f.name: getattr(flag, f.name) for f in fields(flag)} == {
        f.name: getattr(keyword, f.name) for f in fields(flag)
    }


@dataclass(frozen=True)
class Oven:
    """Settings that are declared here, and nowhere else."""

    degrees: int = option(
        180,
        flag="degrees",
        value="C",
        parse=whole_number,
        limits=(Limit(lambda c: c > 0, "{flag} {value} is no heat", "for example {flag} 200"),),
        help="how hot it is inside",
    )
    room: int | None = option(
        None, flag="room", value="SIZE", parse=parse_size, is_size=True, help="how large it is inside"
    )
    fan: bool = switch(True, flag="fan", help="whether the air moves")
    grill: bool = option(False, flag="fan grill", help="a value of another flag, so it has none of its own")

    def __post_init__(self):
        for name, described in options_of(Oven).items():
            described.check(getattr(self, name))


def _oven(*argv, **declared):
    p = flags.parser("oven", "")
    flags.add_settings(p, Oven, **declared)
    return flags.settings_of(Oven, flags.parse(p, list(argv)))


def test_a_new_field_is_a_flag_with_its_check():
    assert _oven() == Oven(180, None, True) and _oven("-degrees=90", "-fan", "off") == Oven(90, None, False)
    assert _oven("-room", "2KB").room == 2048
    with pytest.raises(UsageError, match="-degrees 0 is no heat\n  fix: for example -degrees 200"):
        _oven("-degrees", "0")
    with pytest.raises(UsageError, match="-degrees 'hot' is not a whole number"):
        _oven("-degrees", "hot")
    with pytest.raises(UsageError, match="-degrees 3000000000 is too large"):
        _oven("-degrees", "3000000000")
    with pytest.raises(UsageError, match="-room 'large' is not a size"):
        _oven("-room", "large")


def test_a_command_may_leave_a_flag_out_name_it_twice_and_begin_elsewhere():
    assert _oven("-heat", "90", names={"degrees": ["--heat"]}) == Oven(90)
    assert not _oven(defaults={"fan": "off"}).fan
    with pytest.raises(UsageError, match="unknown flag '-fan'"):
        _oven("-fan", "on", without=["fan"])
