"""CTCGreedyDecoder and LabelsequenceAccuracy against small examples and loops."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench
from .test_ctc_loss import column_labels, marks_of

DECODER, SHARE = "CTCGreedyDecoder", "LabelsequenceAccuracy"
FIELDS = "ctc_decoder_param {{ {} }}"


def drawn(rng, shapes):
    lengths = rng.integers(1, shapes[0][0] + 1, shapes[0][1])
    bottoms = [rng.normal(size=shapes[0]), marks_of(lengths, shapes[0][0]).reshape(shapes[1])]
    return bottoms + [rng.integers(-1, shapes[0][2], s).astype(np.float64) for s in shapes[2:]]


def lines_drawn(rng, shapes):
    """Scores, and rows of labels of which some are blanks and some end early."""
    return [rng.normal(size=shapes[0]), rng.integers(-1, shapes[0][2], shapes[1]).astype(np.float64)]


CASES: list[Case] = [
    Case(DECODER, "", ((7, 3, 4), (7, 3)), maker=drawn),
    Case(DECODER, "", ((7, 3, 4, 1), (7, 3, 1, 1)), n_top=2, maker=drawn),
    Case(DECODER, FIELDS.format("blank_index: 0"), ((7, 3, 4), (7, 3), (5, 3)), n_top=2, maker=drawn),
    Case(DECODER, FIELDS.format("ctc_merge_repeated: false"), ((70, 5, 90), (70, 5), (60, 5)), n_top=3, maker=drawn),
    Case(DECODER, "", ((7, 3, 4),)),
    Case(DECODER, FIELDS.format("blank_index: 2 ctc_merge_repeated: false"), ((7, 5, 4, 1),)),
    Case(DECODER, "", ((7, 3, 4), (3, 5)), maker=lambda rng, shapes: lines_drawn(rng, shapes)),
    Case(DECODER, FIELDS.format("blank_index: 2"), ((9, 300, 3), (300, 7, 1, 1)), maker=lambda *a: lines_drawn(*a)),
    Case(SHARE, "", ((3, 7, 4), (3, 5)), integer_bottoms=((1, 4),)),
    Case(SHARE, "labelsequence_accuracy_param { blank_label: 2 }", ((300, 2, 3), (300, 2)), integer_bottoms=((1, 3),)),
]


def edit_distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(edit_distance(a[1:], b) + 1, edit_distance(a, b[1:]) + 1, edit_distance(a[1:], b[1:]) + (a[0] != b[0]))


@pytest.mark.parametrize("merge", [True, False])
def test_decoder_is_a_loop(merge):
    bench = LayerBench(
        DECODER, FIELDS.format(f"ctc_merge_repeated: {str(merge).lower()}"), ((6, 9, 3), (6, 9), (4, 9)), n_top=3
    )
    rng = np.random.default_rng(2)
    x, lengths = rng.normal(size=(6, 9, 3)), rng.integers(1, 7, 9)
    wanted = [rng.integers(0, 2, n).tolist() for n in rng.integers(0, 5, 9)]
    labels, score, accuracy = bench.forward([x, marks_of(lengths, 6), column_labels(wanted, 4)])
    assert labels.shape == (6, 9, 1, 1) and score.shape == (9, 1, 1, 1) and accuracy.shape == (1, 1, 1, 1)
    shares = []
    for i, length in enumerate(lengths):
        path = x[:length, i].argmax(axis=1).tolist()
        found = [c for c in ([k for k, _ in groupby(path)] if merge else path) if c != 2]
        assert labels[:, i, 0, 0].tolist() == found + [-1] * (6 - len(found))
        assert score[i, 0, 0, 0] == pytest.approx(-x[:length, i].max(axis=1).sum())
        longer = max(len(found), len(wanted[i]))
        shares.append(edit_distance(found, wanted[i]) / longer if longer else 0)
    assert accuracy.item() == pytest.approx(1 - np.mean(shares))


@pytest.mark.parametrize("fields, blank", [("", 0), ("blank_index: 1", 1), ("blank_index: -1", 2)])
def test_scores_alone(fields, blank):
    """caffe_ocr: whole sequences, the blank is class 0 by default, a row of labels for each sequence."""
    x = np.random.default_rng(5).normal(size=(6, 9, 3))
    (labels,) = LayerBench(DECODER, FIELDS.format(fields), ((6, 9, 3),)).forward([x])
    assert labels.shape == (9, 6, 1, 1)
    for i in range(9):
        found = [c for c, _ in groupby(x[:, i].argmax(axis=1).tolist()) if c != blank]
        assert labels[i, :, 0, 0].tolist() == found + [-1] * (6 - len(found))


@pytest.mark.parametrize("fields, blank", [("", 0), ("blank_index: 1", 1), ("blank_index: -1", 2)])
def test_scores_and_lines_of_labels(fields, blank):
    """caffe_ocr: the accuracy by edit distances, and the share of lines without a fault."""
    rng = np.random.default_rng(7)
    x, labels = rng.normal(size=(4, 60, 3)), rng.integers(0, 3, (60, 5)).astype(np.float64)
    labels[rng.uniform(size=labels.shape) < 0.3] = -1
    x[:, 0], labels[0] = np.eye(3)[blank], blank  # nothing to find, nothing found
    (both,) = LayerBench(DECODER, FIELDS.format(fields), (x.shape, labels.shape)).forward([x, labels])
    assert both.shape == (1, 2, 1, 1)
    shares, right = [], 0
    for i in range(60):
        found = [c for c, _ in groupby(x[:, i].argmax(axis=1).tolist()) if c != blank]
        line = labels[i].tolist()
        wanted = [int(c) for c in line[: line.index(-1) if -1 in line else None] if c != blank]
        longer = max(len(found), len(wanted))
        shares.append(edit_distance(found, wanted) / longer if longer else 0)
        right += longer > 0 and found == wanted
    assert right > 0 and both.reshape(-1) == pytest.approx([1 - np.mean(shares), right / 60])


def test_marks_stay_marks():
    """(T, N), or with a second top: ChWick's form."""
    x = np.random.default_rng(8).normal(size=(3, 3, 4))
    (labels,) = LayerBench(DECODER, "", ((3, 3, 4), (3, 3))).forward([x, marks_of([3, 2, 1], 3)])
    assert labels.shape == (3, 3, 1, 1)
    with pytest.raises(ShapeError, match='blob "b1"'):
        LayerBench(DECODER, "", ((6, 2, 4), (2, 6)), n_top=2)


def test_two_tops_of_three_bottoms_are_labels_and_accuracy():
    bench = LayerBench(DECODER, FIELDS.format("blank_index: 0"), ((4, 1, 3), (4, 1), (2, 1)), n_top=2)
    x = np.eye(3)[[1, 1, 0, 2]].reshape(4, 1, 3)
    labels, accuracy = bench.forward([x, marks_of([4], 4), [[1], [1]]])
    assert labels.reshape(-1).tolist() == [1, 2, -1, -1]
    assert accuracy.item() == 0.5


def test_share_of_exact_sequences():
    x = np.stack([np.eye(3)[[1, 1, 0, 1]], np.eye(3)[[0, 2, 2, 1]], np.eye(3)[[0, 0, 0, 0]]])
    bench = LayerBench(SHARE, "", ((3, 4, 3), (3, 3)))
    for labels, share in (
        ([[1, 1, 0], [2, 1, 0], [0, 0, 0]], 1),
        ([[1, 0, 1], [0, 2, 0], [0, 0, 0]], 2 / 3),
        ([[1, 0, 0], [2, 1, 1], [0, 0, 1]], 0),
        ([[1, 1, 0], [2, 1.5, 0], [0, 0, np.nan]], 1 / 3),
    ):
        assert float(bench.forward([x, labels])[0]) == pytest.approx(share)


@pytest.mark.parametrize(
    "type, fields, shapes, n_top, error",
    [
        (DECODER, "", ((6, 2, 4), (6, 2)), 3, LayerParamError),
        (DECODER, FIELDS.format("blank_index: 4"), ((6, 2, 4), (6, 2)), 1, LayerParamError),
        (DECODER, "", ((6, 2), (6, 2)), 1, ShapeError),
        (DECODER, "", ((6, 2, 4), (5, 2)), 1, ShapeError),
        (DECODER, "", ((6, 2, 4), (6, 2), (3, 3)), 1, ShapeError),
        (SHARE, "labelsequence_accuracy_param { blank_label: 4 }", ((2, 6, 4), (2, 3)), 1, LayerParamError),
        (SHARE, "", ((2, 6), (2, 3)), 1, ShapeError),
        (SHARE, "", ((2, 6, 4), (3, 3)), 1, ShapeError),
    ],
)
def test_refused(type, fields, shapes, n_top, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(type, fields, shapes, n_top=n_top)
