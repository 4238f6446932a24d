"""Compute the loss of sequences whose labels have no known places (connectionist temporal classification, CTC).

A path names a class at every time step; without repetitions and blanks it is a sequence of labels. The probability of
the labels is that of all their paths together. Positions on a path are those of `paths`: a blank before each label and
one at the end. All sums of probabilities are logarithms in float64. Source: Graves, Supervised Sequence Labelling with
Recurrent Neural Networks, chapter 7.
"""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import CtcRule, CtcSums
from ..compiled import kernel
from ..threads import parallel

__all__ = ["ctc_loss_backward", "ctc_loss_forward", "ctc_paths"]

_NONE = -np.inf  # the logarithm of probability 0


def ctc_paths(marks: HostArray | None, labels: HostArray, paths: HostArray, rule: CtcRule) -> None:
    """Write what paths go through: paths (items, 2 + 2 * most + 1), int32, has time steps, positions, classes.

    marks (steps, items): a sequence ends before the first one after step 0 that is 0 when rounded; None: none ends
    early. Positions are 0 for an empty sequence without labels, and -1 where a label names no class.
    """
    steps = np.full(rule.items, rule.steps, np.int32)
    if marks is not None:
        ends = np.trunc(marks.reshape(rule.steps, rule.items)[1:] + 0.5) == 0
        steps = np.where(ends.any(axis=0), ends.argmax(axis=0) + 1, steps)
    _write_paths(labels.reshape(-1), steps.astype(np.int32), paths, *rule)


@kernel
def _write_paths(
    labels: HostArray,
    steps: HostArray,
    paths: HostArray,
    _: int,
    items: int,
    classes: int,
    most: int,
    blank: int,
    delay: int,
    collapse: bool,
    merge: bool,
    by_item: bool,
) -> None:
    for i in range(items):
        found, wrong, over = 0, False, False
        paths[i, 2:] = blank
        for k in range(most):
            value = labels[i * most + k] if by_item else labels[k * items + i]
            if by_item:
                if value > -1 and value < classes:
                    if np.trunc(value) == blank:
                        continue
                else:
                    wrong = True
                    continue
            else:
                if value < 0:
                    break
                if collapse and k > 0 and value == labels[(k - 1) * items + i]:
                    continue
                if not value + 0.5 < classes or np.trunc(value + 0.5) == blank:
                    over = True
                    wrong = wrong or value != value
                    continue
                wrong = wrong or over
                value += 0.5
            paths[i, 3 + 2 * found] = np.int32(value)
            found += 1
        paths[i, 0] = max(0, steps[i] - delay)
        paths[i, 1] = 2 * found + 1
        if wrong:
            paths[i, 1] = -1
        elif found == 0 and steps[i] <= 1 and not by_item:
            paths[i, 1] = 0


def ctc_loss_forward(
    x: HostArray,
    paths: HostArray,
    loss: HostArray,
    sums: CtcSums,
    rule: CtcRule,
) -> None:
    """Compute loss = the mean over items of -log(probability of its labels), x (steps, items, classes) being scores.

    Probabilities of classes are the softmax of x. An empty item adds 0, one without a path infinity, one with a wrong
    label NaN. `sums` is written but for its beta.
    """
    x = x.reshape(rule.steps, rule.items, rule.classes)
    parallel(_norms, rule.steps, x, sums.norm)
    args = sums.norm, sums.alpha, sums.score, rule.delay, rule.blank, rule.merge
    parallel(_alphas, rule.items, x, paths, *args)
    with np.errstate(invalid="ignore"):
        loss.fill(-sums.score.sum() / max(1, rule.items))


def ctc_loss_backward(
    x: HostArray,
    paths: HostArray,
    dloss: HostArray,
    sums: CtcSums,
    dx: HostArray,
    rule: CtcRule,
) -> None:
    """Compute dx = dloss * (softmax - share of the paths that name the class at that step); 0 outside sequences.

    An item without a path has share 0, one with a wrong label gives NaN.
    """
    shape = rule.steps, rule.items, rule.classes
    x, dx = x.reshape(shape), dx.reshape(shape)
    scale = float(dloss.reshape(-1)[0])
    parallel(_gradients, rule.items, x, paths, *sums, dx, scale, rule.delay, rule.blank, rule.merge)


@kernel
def _norms(first: int, last: int, x: HostArray, norm: HostArray) -> None:
    for t in range(first, last):
        for i in range(x.shape[1]):
            row = x[t, i]
            most = np.float64(row[0])
            for c in range(1, row.size):
                most = max(most, np.float64(row[c]))
            total = 0.0
            for c in range(row.size):
                total += np.exp(np.float64(row[c]) - most)
            norm[t, i] = most + np.log(total)


@kernel
def _add(a: float, b: float) -> float:
    """Return log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + np.log1p(np.exp(b - a))


@kernel
def _alphas(
    first: int,
    last: int,
    x: HostArray,
    paths: HostArray,
    norm: HostArray,
    alpha: HostArray,
    score: HostArray,
    delay: int,
    blank: int,
    merge: bool,
) -> None:
    for i in range(first, last):
        steps, n, path = paths[i, 0], paths[i, 1], paths[i, 2:]
        score[i] = 0.0 if n == 0 else np.nan if n < 0 else -np.inf
        alpha[i] = 0
        if n <= 0 or steps == 0:
            continue
        for u in range(n):
            alpha[i, 0, u] = x[delay, i, path[u]] - norm[delay, i] if u < 2 else -np.inf
        for t in range(1, steps):
            for u in range(n):
                total = alpha[i, t - 1, u] if merge or path[u] == blank else -np.inf
                if u > 0:
                    total = _add(total, alpha[i, t - 1, u - 1])
                if u > 1 and path[u] != blank and not (merge and path[u] == path[u - 2]):
                    total = _add(total, alpha[i, t - 1, u - 2])
                alpha[i, t, u] = total + (x[delay + t, i, path[u]] - norm[delay + t, i])
        score[i] = alpha[i, steps - 1, n - 1]
        if n > 1:
            score[i] = _add(score[i], alpha[i, steps - 1, n - 2])


@kernel
def _gradients(
    first: int,
    last: int,
    x: HostArray,
    paths: HostArray,
    norm: HostArray,
    alpha: HostArray,
    score: HostArray,
    beta: HostArray,
    dx: HostArray,
    scale: float,
    delay: int,
    blank: int,
    merge: bool,
) -> None:
    for i in range(first, last):
        steps, n, path = paths[i, 0], paths[i, 1], paths[i, 2:]
        for t in range(dx.shape[0]):
            inside = t >= delay and t < delay + steps and n > 0
            for c in range(dx.shape[2]):
                dx[t, i, c] = scale * np.exp(x[t, i, c] - norm[t, i]) if inside else np.nan if n < 0 else 0.0
        if n <= 0 or steps == 0 or score[i] == -np.inf:
            continue
        for u in range(n):
            beta[i, steps - 1, u] = 0.0 if u >= n - 2 else -np.inf
        for t in range(steps - 2, -1, -1):
            for u in range(n):
                total = -np.inf
                for v in range(u, min(n, u + 3)):
                    if v == u and not (merge or path[u] == blank):
                        continue
                    if v == u + 2 and (path[u] == blank or (merge and path[u] == path[v])):
                        continue
                    total = _add(total, beta[i, t + 1, v] + (x[delay + t + 1, i, path[v]] - norm[delay + t + 1, i]))
                beta[i, t, u] = total
        for t in range(steps):
            for u in range(n):
                before = False
                for v in range(u):
                    before = before or path[v] == path[u]
                if before:
                    continue
                total = -np.inf
                for v in range(u, n):
                    if path[v] == path[u]:
                        total = _add(total, alpha[i, t, v] + beta[i, t, v])
                c, at = path[u], delay + t
                dx[at, i, c] = scale * (np.exp(x[at, i, c] - norm[at, i]) - np.exp(total - score[i]))
