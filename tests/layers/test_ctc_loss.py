"""CTCLoss, CtcLoss and WarpCTCLoss against sums over all paths, against numbers of PyTorch, and their gradients."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient


def marks_of(lengths, steps):
    """Return marks (steps, items) of sequences of these lengths."""
    marks = (np.arange(steps)[:, None] < np.array(lengths)).astype(np.float64)
    marks[0] = 0
    return marks


def column_labels(labels, most, end=-1):
    """Return labels (most, items), filled up with `end`."""
    found = np.full((most, len(labels)), float(end))
    for i, some in enumerate(labels):
        found[: len(some), i] = some
    return found


def drawn(rng, shapes):
    """Draw scores, lengths and labels that fit them."""
    steps, items, classes = shapes[0][:3]
    lengths = rng.integers(min(2, steps), steps + 1, items)
    labels = [rng.integers(0, classes - 1, min(shapes[2][0], length // 2)) for length in lengths]
    return [
        rng.normal(size=shapes[0]),
        marks_of(lengths, steps).reshape(shapes[1]),
        column_labels(labels, shapes[2][0]).reshape(shapes[2]),
    ]


def drawn_rows(rng, shapes):
    labels = rng.integers(1, shapes[0][2], shapes[1]).astype(np.float64)
    labels[:, -1] = 0
    return [rng.normal(size=shapes[0]), labels]


CTC, WARP, OCR = "CTCLoss", "CtcLoss", "WarpCTCLoss"
FIELDS = "ctc_loss_param {{ {} }}"
CASES: list[Case] = [
    Case(CTC, "", ((6, 1, 4), (6, 1), (3, 1)), maker=drawn),
    Case(CTC, "", ((9, 3, 5, 1), (9, 3, 1, 1), (4, 3, 1, 1)), maker=drawn),
    Case(CTC, FIELDS.format("preprocess_collapse_repeated: true"), ((9, 5, 3), (9, 5), (4, 5)), maker=drawn),
    Case(CTC, FIELDS.format("ctc_merge_repeated: false"), ((9, 5, 3), (9, 5), (4, 5)), maker=drawn),
    Case(
        CTC,
        FIELDS.format("blank_index: 4 output_delay: 1") + " loss_weight: 0.5",
        ((9, 2, 5), (9, 2), (2, 2)),
        maker=drawn,
    ),
    Case(CTC, "", ((40, 7, 300), (40, 7), (20, 7)), maker=drawn),
    Case(WARP, FIELDS.format("time_step: 9 alphabet_size: 6"), ((9, 4, 6), (4, 3)), maker=drawn_rows),
    Case(WARP, FIELDS.format("time_step: 150 alphabet_size: 5"), ((150, 2, 5), (2, 70)), maker=drawn_rows),
    Case(OCR, "", ((9, 4, 6), (4, 3)), maker=drawn_rows),
    Case(OCR, FIELDS.format("blank_index: 2"), ((9, 4, 6, 1), (4, 3, 1, 1)), maker=drawn_rows),
]


def all_paths_loss(x, labels, blank, merge=True):
    """Return -log of the sum of the probabilities of every path of x (steps, classes) that reads as the labels."""
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    total = 0.0
    for path in product(range(x.shape[1]), repeat=len(x)):
        read = [c for c, _ in groupby(path)] if merge else path
        if [c for c in read if c != blank] == list(labels):
            total += np.prod(p[range(len(x)), path])
    return -np.log(total) if total else np.inf


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize(
    "fields, labels, read",
    [
        ("", [[0, 0], [1, 2]], [[0, 0], [1, 2]]),
        ("blank_index: 0", [[1], [2, 3]], [[1], [2, 3]]),
        ("preprocess_collapse_repeated: true", [[0, 0], [1, 1]], [[0], [1]]),
        ("ctc_merge_repeated: false", [[2, 2, 2], [0, 1]], [[2, 2, 2], [0, 1]]),
        ("loss_calculation_t: 2", [[1, 0], [1]], [[1, 0], [1]]),
    ],
)
def test_is_the_sum_over_all_paths(fields, labels, read, dtype, tolerance):
    lengths, blank = [5, 3], 0 if "blank_index" in fields else 3
    bench = LayerBench(CTC, FIELDS.format(fields), ((5, 2, 4), (5, 2), (3, 2)), dtype=dtype)
    x = np.random.default_rng(3).normal(size=(5, 2, 4)).astype(dtype)
    (loss,) = bench.forward([x, marks_of(lengths, 5), column_labels(labels, 3)])
    merge = "merge_repeated: false" not in fields
    wanted = [all_paths_loss(x[: lengths[i], i].astype(np.float64), read[i], blank, merge) for i in range(2)]
    assert float(loss) == pytest.approx(np.mean(wanted), rel=tolerance)


def test_output_delay_passes_over_the_first_steps():
    bench = LayerBench(CTC, FIELDS.format("output_delay: 2"), ((6, 1, 3), (6, 1), (2, 1)))
    x = np.random.default_rng(3).normal(size=(6, 1, 3))
    (loss,) = bench.forward([x, marks_of([5], 6), column_labels([[0, 1]], 2)])
    assert float(loss) == pytest.approx(all_paths_loss(x[2:5, 0], [0, 1], 2))
    ((dx, *_), _) = bench.backward([np.array(1.0)])
    assert np.flatnonzero(np.abs(dx).sum(axis=(1, 2))).tolist() == [2, 3, 4]


# torch 2.15: torch.nn.functional.ctc_loss of these scores, in float64, reduction "none"
SCORES = 3 * np.sin(1 + np.arange(12 * 4 * 7) * 0.37).reshape(12, 4, 7)
TORCH_LOSSES = [20.406927714982068, 10.093250053449557, 10.489889814423254, 10.02708084848782]
TORCH_GRADIENT = [  # of the sum of losses, for item 1 at steps 0 to 2
    [0.2969116845757694, 0.12197941512244555, 0.0674036917782166, -0.06050917662450874, 0.06561604137670247]
    + [0.11601635190927695, -0.6074180081379023],
    [0.3154246914984327, 0.3161799658857731, 0.2126047545328626, -0.5882374785586875, 0.0376942259556391]
    + [0.012560957364894005, -0.306227116678914],
    [0.0026414889169308546, 0.006411451390601589, 0.018586616909316307, -0.34992939384625105, 0.14889321350945076]
    + [0.31045406674084663, -0.13705744362089503],
]
TORCH_ABSOLUTE = [14.543076417352857, 7.485793315199981, 11.417454176704151, 5.456289327123435]
WARP_LOSSES = [20.17465924247146, 27.441745400499848, 14.117933733081141, 18.25505124452543]  # blank 0, all 12 steps
WARP_ABSOLUTE = [14.406356104302654, 16.490431605826608, 12.15664872274429, 15.48421461711844]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-11)], ids=["f32", "f64"])
def test_numbers_of_pytorch(dtype, tolerance):
    bench = LayerBench(CTC, "", ((12, 4, 7), (12, 4), (6, 4)), dtype=dtype)
    labels = column_labels([[1, 2, 2, 5], [3], [0, 0, 1, 4, 1], [4, 3, 0]], 6)
    (loss,) = bench.forward([SCORES, marks_of([12, 5, 9, 3], 12), labels])
    assert float(loss) == pytest.approx(np.mean(TORCH_LOSSES), rel=tolerance)
    ((dx, *_), _) = bench.backward([np.array(1.0)])
    np.testing.assert_allclose(dx[:3, 1], TORCH_GRADIENT, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(np.abs(dx).sum(axis=(0, 2)), TORCH_ABSOLUTE, rtol=tolerance)


def test_rows_of_labels_give_the_numbers_of_pytorch():
    bench = LayerBench(WARP, FIELDS.format("time_step: 12 alphabet_size: 7 blank_label: 0"), ((12, 4, 7), (4, 6)))
    labels = column_labels([[1, 2, 2, 5], [3], [6, 6, 1, 4, 1], [4, 0, 3, 3]], 6, end=0).T  # a blank between counts not
    (loss,) = bench.forward([SCORES, labels])
    assert float(loss) == pytest.approx(np.mean(WARP_LOSSES), rel=1e-12)
    ((dx, _), _) = bench.backward([np.array(0.5)])
    np.testing.assert_allclose(2 * np.abs(dx).sum(axis=(0, 2)), WARP_ABSOLUTE, rtol=1e-11)


@pytest.mark.parametrize("blank, labels", [(0, [[3, 0, 1], [2, 2, 0]]), (2, [[3, 2, 1], [0, 1, 2]])])
def test_rows_of_labels_with_a_blank_index(blank, labels):
    """caffe_ocr, warp_ctc_loss_layer.cpp: labels that are the blank are left out; all steps count."""
    fields = FIELDS.format(f"blank_index: {blank}") if blank else ""
    bench = LayerBench(OCR, fields, ((5, 2, 4), (2, 3)))
    x = np.random.default_rng(3).normal(size=(5, 2, 4))
    (loss,) = bench.forward([x, np.array(labels, float)])
    read = [[c for c in row if c != blank] for row in labels]
    wanted = [all_paths_loss(x[:, i], read[i], blank) for i in range(2)]
    assert float(loss) == pytest.approx(np.mean(wanted), rel=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if case.shapes[0][1] == 1], ids=str)
def test_gradient_of_one_sequence_is_the_slope(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)))


def one(labels, length=4, fields=""):
    """Return the loss and the gradient of one sequence with scores of 0."""
    bench = LayerBench(CTC, fields, ((4, 1, 3), (4, 1), (4, 1)))
    (loss,) = bench.forward([np.zeros((4, 1, 3)), marks_of([length], 4), column_labels([labels], 4)])
    return float(loss), bench.backward([np.array(1.0)])[0][0]


def test_sequences_without_labels():
    assert one([], 1)[0] == 0
    assert not one([], 1)[1].any()
    assert one([], 3)[0] == pytest.approx(3 * np.log(3))  # one path: blanks


def test_labels_without_time_for_them():
    loss, dx = one([0, 0, 1], 3)  # a blank between the equal ones makes it 4 steps
    assert loss == np.inf
    np.testing.assert_allclose(dx[:, 0], [[1 / 3] * 3] * 3 + [[0] * 3])


@pytest.mark.parametrize("labels", [[0, 3, 1], [2, 0], [np.nan]], ids=str)
def test_wrong_labels_make_the_loss_nan(labels):
    loss, dx = one(labels)
    assert np.isnan(loss)
    assert np.isnan(dx).all()


@pytest.mark.parametrize("end", [2, 3, -1, -7])
def test_labels_end_with_what_names_no_label(end):
    assert one([0, 1, end])[0] == one([0, 1])[0]


def test_a_wrong_label_of_a_row_makes_the_loss_nan():
    bench = LayerBench(WARP, FIELDS.format("time_step: 4 alphabet_size: 3"), ((4, 1, 3), (1, 2)))
    for wrong in (-1, 3, np.nan):
        assert np.isnan(bench.forward([np.zeros((4, 1, 3)), [[1, wrong]]])[0])


@pytest.mark.parametrize(
    "type, fields, shapes, error",
    [
        (CTC, "", ((6, 2), (6, 2), (3, 2)), ShapeError),
        (CTC, "", ((6, 2, 4), (5, 2), (3, 2)), ShapeError),
        (CTC, "", ((6, 2, 4), (6, 2), (3, 1)), ShapeError),
        (CTC, "", ((6, 2, 4, 2), (6, 2), (3, 2)), ShapeError),
        (CTC, "blank_index: 4", ((6, 2, 4), (6, 2), (3, 2)), LayerParamError),
        (CTC, "output_delay: -1", ((6, 2, 4), (6, 2), (3, 2)), LayerParamError),
        (WARP, "time_step: 6 alphabet_size: 4", ((6, 2, 4), (3, 3)), ShapeError),
        (OCR, "", ((6, 2, 4), (3, 2)), ShapeError),
        (OCR, "blank_index: -1", ((6, 2, 4), (2, 3)), LayerParamError),
        (OCR, "", ((6, 2, 4), (6, 2), (3, 2)), BlobCountError),
        (WARP, "time_step: 5 alphabet_size: 4", ((6, 2, 4), (2, 3)), LayerParamError),
        (WARP, "time_step: 6", ((6, 2, 4), (2, 3)), LayerParamError),
        (WARP, "time_step: 6 alphabet_size: 4 blank_label: -1", ((6, 2, 4), (2, 3)), LayerParamError),
    ],
)
def test_refused(type, fields, shapes, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(type, FIELDS.format(fields), shapes)
