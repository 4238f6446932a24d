"""Nothing is left out: every layer type has a case, and a case or a test sets every field that a type reads."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import Layer
from pycaffe_lms.layers.registry import LAYERS, layer_class

from .all_cases import all_cases, runnable_cases
from .case_run import Run
from .fields import MESSAGES, fields_set, messages_of, with_field

TESTS = Path(__file__).resolve().parents[1]
layer_class("ReLU")  # registers every type

# Types without a case, and the file that tests them.
TESTED_IN = {
    "ContinuationIndicator": "layers/test_reverse.py",  # likewise a constant top
    "PriorBox": "layers/test_prior_box.py",  # tops that forward fills on the host, once per shape
    "Python": "layers/test_python_layer.py",  # modules of the user's
}

# Fields that no layer reads, and why.
WITHOUT_EFFECT = {
    (message, field): "V1 files alone have it; the upgrade moves it to transform_param (tests/formats/test_upgrade.py)"
    for message in ("data_param", "image_data_param", "window_data_param")
    for field in ("scale", "mean_file", "crop_size", "mirror")
    if (message, field) != ("window_data_param", "scale")  # Caffe's layer reads it here, so it counts
} | {
    ("relu_param", "relu6"): "reading makes the layer a ReLU6 (tests/formats/test_paddings.py)",
    ("pooling_param", "pad_type"): "reading turns it into pad_h and pad_w (tests/formats/test_paddings.py)",
    ("reshape_param", "pixelshuffler"): "reading makes it four layers (tests/formats/test_spread_layers.py)",
    ("transpose_param", "dim"): "reading makes it a Permute (tests/formats/test_spread_layers.py)",
    ("image_gt_data_param", "mean_file"): "the fork reads it nowhere; transform_param.mean_value is the working one",
    ("image_gt_data_param", "mirror"): "the fork reads it nowhere; transform_param.mirror is the working one",
    **{
        (message, f"pad_{side}"): "reading turns it into other fields, or a layer (tests/formats/test_paddings.py)"
        for message in ("convolution_param", "pooling_param")
        for side in "lrtb"
    },
    ("correlation_param", "do_abs"): "the fork reads it and uses it nowhere",
    ("ctc_loss_param", "loss_calculation_t"): "of the fork's tests: every time step gives the same loss",
    ("data_param", "force_encoded_color"): "Caffe reads it nowhere; transform_param.force_color is the working one",
    ("seg_accuracy_param", "metric"): "the fork's layer gives all three numbers, whichever it names",
    ("python_param", "share_in_parallel"): "about several GPUs in one process; every process has its own layers here",
}
# Messages of which a type reads some fields only.
_PLACED = {"scale", "mirror", "crop_size", "mean_file", "mean_value"}
READS_ONLY = {
    ("HDF5Data", "data_param"): {"prefetch"},
    ("TokenData", "data_param"): {"prefetch"},
    ("ImageData", "data_param"): {"prefetch"},
    ("ImageGtData", "data_param"): {"prefetch"},
    ("ImageGtData", "transform_param"): {"mirror", "mean_value"},
    ("DetectionData", "data_param"): {"prefetch"},
    ("DetectionData", "transform_param"): {"mirror", "mean_value", "scale"},
    ("EvalData", "data_param"): {"prefetch"},
    ("EvalData", "transform_param"): {"mean_value", "scale"},
    ("WindowData", "data_param"): {"prefetch"},
    ("HDF5Data", "transform_param"): set(),  # refused
    ("TokenData", "transform_param"): set(),  # refused
    ("ImageData", "transform_param"): _PLACED,  # image_data_param.is_color chooses the channels
    ("WindowData", "transform_param"): _PLACED,  # windows are always in colour
    ("SmoothL1Loss", "loss_param"): {"normalization", "normalize", "pre_fixed_normalizer"},
    ("SmoothL1LossOHEM", "loss_param"): {"normalization", "normalize", "pre_fixed_normalizer"},
    ("BoxOutput", "bbox_reg_param"): {"bbox_mean", "bbox_std"},
    ("BoxGroupOutput", "bbox_reg_param"): {"bbox_mean", "bbox_std"},
    ("DecodeBBox", "bbox_reg_param"): {"bbox_mean", "bbox_std"},
    ("DetectionLoss", "bbox_reg_param"): {"bbox_mean", "bbox_std"},
    ("DetectionAccuracy", "bbox_reg_param"): {"bbox_mean", "bbox_std"},
    ("BboxAccuracy", "bbox_reg_param"): {"bbox_mean", "bbox_std", "cls_aware"},
    ("DetectionGroupLoss", "bbox_reg_param"): {"bbox_mean", "bbox_std"},
    ("DetectionGroupLoss", "loss_param"): {"ignore_label"},
    ("DetectionGroupAccuracy", "bbox_reg_param"): {"bbox_mean", "bbox_std"},
    ("DetectionGroupAccuracy", "loss_param"): {"ignore_label"},
    ("L1Loss", "loss_param"): set(),
    ("DetectionLoss", "loss_param"): {"ignore_label"},
    ("DetectionAccuracy", "loss_param"): {"ignore_label"},
    ("LinearSoftmaxWithLoss", "loss_param"): {"normalization", "normalize", "ignore_label", "pre_fixed_normalizer"},
    ("MultiBoxLoss", "loss_param"): {"normalization", "normalize"},
    ("InfogainLoss", "loss_param"): {"normalization", "normalize", "ignore_label", "pre_fixed_normalizer"},
}


@cache
def _types_with_cases() -> set[str]:
    return {case.type for _, case in all_cases()}


@pytest.mark.parametrize("type_name", sorted(LAYERS))
def test_the_type_has_a_case(type_name):
    if type_name in TESTED_IN:
        text = (TESTS / TESTED_IN[type_name]).read_text()
        assert f'"{type_name}"' in text and "def test_" in text
    else:
        assert type_name in _types_with_cases()


def test_the_table_of_types_without_cases_is_current():
    assert TESTED_IN.keys() <= LAYERS.keys() - _types_with_cases()


# -- fields --------------------------------------------------------------------------------------------------------
@cache
def _set_by_cases() -> dict[str, set]:
    found: dict[str, set] = {}
    for _, case in all_cases():
        found.setdefault(case.type, set()).update(fields_set(case.text))
    return found


def _kin(type_name: str, message: str) -> list[str]:
    """Return the types that read a message by the same code: a common class names it."""
    readers = {c for c in LAYERS[type_name].__mro__ if issubclass(c, Layer) and message in messages_of(c)}
    return [t for t, cls in LAYERS.items() if readers & set(cls.__mro__)]


@cache
def _texts() -> dict[Path, str]:
    """Return the strings of every test file but this one."""
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path != Path(__file__):
            nodes = ast.walk(ast.parse(path.read_text()))
            found[path] = "\n".join(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return found


def _mentioned(type_name: str, message: str, field: str) -> bool:
    """Return whether a test file about this type and message writes the field in prototxt.

    What all data layers do with transform_param is tested in tests/data.
    """
    written = re.compile(rf"\b{field}\s*[:{{]")
    about = re.compile(rf"\b{type_name}\b")
    if message == "transform_param":
        return any(path.parent.name == "data" and written.search(text) for path, text in _texts().items())
    return any(message in text and about.search(text) and written.search(text) for text in _texts().values())


def _fields():
    for name, cls in sorted(LAYERS.items()):
        for message in messages_of(cls):
            for field in MESSAGES[message].fields:
                if field.name in READS_ONLY.get((name, message), {field.name}):
                    yield pytest.param(name, message, field, id=f"{name}-{message}.{field.name}")


@pytest.mark.parametrize("type_name, message, field", list(_fields()))
def test_the_field_is_set_somewhere(type_name, message, field):
    if field.name in _SAME_NUMBERS or _is_filler(field):
        return  # set in every type below
    by_cases = any((message, field.name) in _set_by_cases().get(kin, ()) for kin in _kin(type_name, message))
    without_effect = (message, field.name) in WITHOUT_EFFECT
    assert by_cases or without_effect or _mentioned(type_name, message, field.name)


def test_the_table_of_fields_without_effect_is_true():
    """They exist, and no case sets them."""
    for message, field in WITHOUT_EFFECT:
        assert field in MESSAGES[message].fields_by_name
        assert not any((message, field) in fields for fields in _set_by_cases().values())


# -- fields that every type treats alike -----------------------------------------------------------------------------
def _is_filler(field) -> bool:
    return field.message_type is not None and field.message_type.name == "FillerParameter"


def _with_field(wanted):
    """Return (type's first case, message, field) for every type and field that `wanted(field)` chooses."""
    for name, cls in sorted(LAYERS.items()):
        cases = [c for _, c in runnable_cases() if c.type == name and 0 not in c.shapes[:1]]
        for message in messages_of(cls) if cases else ():
            for field in filter(wanted, MESSAGES[message].fields):
                yield pytest.param(cases, message, field.name, id=f"{name}-{message}.{field.name}")


_SAME_NUMBERS = {"engine": ("DEFAULT", "CAFFE", "CUDNN"), "force_nd_im2col": ("true", "false")}


@pytest.mark.parametrize("cases, message, field", list(_with_field(lambda field: field.name in _SAME_NUMBERS)))
def test_a_field_that_chooses_code_changes_no_number(cases, message, field):
    for value in _SAME_NUMBERS[field]:
        _check_same_numbers(cases, message, field, value)


def _check_same_numbers(cases, message, field, value):
    case, plain = cases[0], Run(cases[0])
    run = Run(case, text=with_field(case.text, message, f"{field}: {value}"))
    for a, b in zip(run.forward(), plain.forward(), strict=True):
        np.testing.assert_array_equal(a, b)
    ours, theirs = run.backward(run.top_diffs()), plain.backward(plain.top_diffs())
    assert all(np.array_equal(ours[k], theirs[k]) for k in theirs)


NO_SUCH_PARAMETER = {  # nothing to fill
    ("Im2col", "convolution_param", "weight_filler"),
    ("Im2col", "convolution_param", "bias_filler"),
    ("DummyData", "dummy_data_param", "data_filler"),  # fills tops: see its cases
    ("Bias", "scale_param", "filler"),  # Scale's
    ("Bias", "scale_param", "bias_filler"),
    ("Scale", "bias_param", "filler"),  # Bias's
}


@pytest.mark.parametrize("cases, message, field", list(_with_field(_is_filler)))
def test_a_filler_reaches_a_parameter(cases, message, field):
    """In at least one of the type's cases: others may have no bias, for example."""
    if (cases[0].type, message, field) in NO_SUCH_PARAMETER:
        return
    fillers = []
    for case in cases:
        if field not in case.text:
            filler = f'{field} {{ type: "constant" value: 0.375 }}'
            try:
                run = Run(case, text=with_field(case.text, message, filler))
            except LayerParamError:  # contradicts the case's other fields
                continue
            fillers += [p.filler for p in run.layer.params]
    assert any(f.type == "constant" and f.value == 0.375 for f in fillers if f is not None)
