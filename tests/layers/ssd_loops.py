"""SSD's definitions once more, in plain loops over Python numbers, for tests: boxes, suppression, matches, losses."""

from __future__ import annotations

import math

import numpy as np


def overlap(a, b, more=0):
    w = min(a[2], b[2]) - max(a[0], b[0]) + more
    h = min(a[3], b[3]) - max(a[1], b[1]) + more
    if w <= 0 or h <= 0:
        return 0.0
    return w * h / (area(a, more) + area(b, more) - w * h)


def area(a, more=0):
    return 0.0 if a[2] < a[0] or a[3] < a[1] else (a[2] - a[0] + more) * (a[3] - a[1] + more)


def decoded(code, prior, variance, t):
    v, w, h = [variance[k] * t[k] for k in range(4)], prior[2] - prior[0], prior[3] - prior[1]
    if code == "CORNER":
        return [prior[k] + v[k] for k in range(4)]
    if code == "CORNER_SIZE":
        return [prior[k] + v[k] * (w, h)[k % 2] for k in range(4)]
    x, y = v[0] * w + (prior[0] + prior[2]) / 2, v[1] * h + (prior[1] + prior[3]) / 2
    w, h = math.exp(v[2]) * w, math.exp(v[3]) * h
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def encoded(code, prior, variance, box):
    w, h = prior[2] - prior[0], prior[3] - prior[1]
    if code == "CENTER_SIZE":
        t = [
            (box[0] + box[2] - prior[0] - prior[2]) / 2 / w,
            (box[1] + box[3] - prior[1] - prior[3]) / 2 / h,
            math.log((box[2] - box[0]) / w),
            math.log((box[3] - box[1]) / h),
        ]
    else:
        t = [(box[k] - prior[k]) / ((w, h)[k % 2] if code == "CORNER_SIZE" else 1) for k in range(4)]
    return [t[k] / variance[k] for k in range(4)]


def suppressed(boxes, scores, threshold, top_k=None, eta=1.0):
    """Return the indices that remain, best first."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:top_k]
    kept = []
    for i in order:
        if all(overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return kept


def detections(loc, conf, priors, *, classes, code, shared=True, background=0, least=-math.inf, threshold=0.3, **more):
    """Return DetectionOutput's rows; more: top_k, eta, keep, by_target."""
    n, p = len(loc), priors.size // 8
    boxes, variances = priors.reshape(2, p, 4).tolist()
    if more.get("by_target"):
        variances = [[1.0] * 4] * p
    places = loc.reshape(n, p, -1, 4).tolist()
    scores = conf.reshape(n, p, classes).tolist()
    rows, defaults = [], boxes
    for i in range(n):
        own = []
        if "refinement" in more:
            moved = more["refinement"].reshape(n, p, 4)[i].tolist()
            boxes = [decoded(code, defaults[j], variances[j], moved[j]) for j in range(p)]
        for j in range(p):
            if "objectness" in more and more["objectness"].reshape(n, p, 2)[i, j, 1] < more["least_object"]:
                scores[i][j] = [1.0] + [0.0] * (classes - 1)
        for c in range(classes):
            if c == background:
                continue
            those = [j for j in range(p) if scores[i][j][c] > least]
            at = [decoded(code, boxes[j], variances[j], places[i][j][0 if shared else c]) for j in those]
            s = [scores[i][j][c] for j in those]
            own += [(i, c, s[k], *at[k]) for k in suppressed(at, s, threshold, more.get("top_k"), more.get("eta", 1.0))]
        if more.get("keep") is not None:
            own = sorted(sorted(own, key=lambda r: -r[2])[: more["keep"]], key=lambda r: (r[1], -r[2]))
        rows += own
    return np.array(rows).reshape(-1, 7)


def matches(boxes, truth, threshold, bipartite=False, ignore_outside=False):
    """Return ([index of a true box, -1 or -2], [overlap])."""
    found, best = [-1] * len(boxes), [0.0] * len(boxes)
    if not truth:
        return found, best
    pairs = {}
    for i, box in enumerate(boxes):
        if ignore_outside and not all(0 <= v <= 1 for v in box):
            found[i] = -2
            continue
        for j, other in enumerate(truth):
            if overlap(box, other) > 1e-6:
                pairs[i, j] = overlap(box, other)
                best[i] = max(best[i], pairs[i, j])
    free = set(range(len(truth)))
    while True:
        open_pairs = [(-v, i, j) for (i, j), v in pairs.items() if found[i] == -1 and j in free]
        if not open_pairs:
            break
        v, i, j = min(open_pairs)
        found[i], best[i] = j, -v
        free.remove(j)
    for i in range(len(boxes) if not bipartite else 0):
        mine = [(-v, j) for (k, j), v in pairs.items() if k == i and v >= threshold]
        if found[i] == -1 and mine:
            found[i] = min(mine)[1]
            best[i] = -min(mine)[0]
    return found, best


def multibox_loss(loc, conf, priors, truth, *, classes, code, **o):
    """Return MultiBoxLoss's value. Options as in the layer's message, in lower case, with its defaults."""
    n, p, background = len(loc), priors.size // 8, o.get("background", 0)
    boxes, variances = priors.reshape(2, p, 4).tolist()
    shared, by_target, mining = o.get("shared", True), o.get("by_target", False), o.get("mining", "MAX_NEGATIVE")
    coded = [[1.0] * 4] * p if by_target else variances
    places, scores = loc.reshape(n, p, -1, 4).tolist(), conf.reshape(n, p, classes).tolist()
    rows = [r for r in truth.reshape(-1, 8).tolist() if r[0] >= 0 and (o.get("use_difficult", True) or not r[7])]

    def logistic(x, wanted):
        return sum(max(v, 0) - v * (c in wanted) + math.log1p(math.exp(-abs(v))) for c, v in enumerate(x))

    def softmax(x, c):
        return math.log(sum(math.exp(v - max(x)) for v in x)) + max(x) - x[c]

    def of_class(x, c):
        return logistic(x, {c}) if o.get("logistic") else softmax(x, c)

    def of_place(i, j, c, box):
        t, total = encoded(code, boxes[j], coded[j], box), 0.0
        shown = boxes[j] if o.get("by_priors", True) else decoded(code, boxes[j], coded[j], places[i][j][c])
        for k in range(4):
            d = (places[i][j][c][k] - t[k]) / (variances[j][k] if by_target else 1)
            if o.get("inside") and not 0 <= shown[k] <= 1:
                continue
            total += d * d / 2 if abs(d) < 1 or o.get("l2") else abs(d) - 0.5
        return total

    place_loss = class_loss = 0.0
    count, defaults = 0, list(boxes)
    for i in range(n):
        if "refinement" in o:
            moved = o["refinement"].reshape(n, p, 4)[i].tolist()
            boxes[:] = [decoded(code, defaults[j], coded[j], moved[j]) for j in range(p)]
        own = [r for r in rows if r[0] == i]
        at, labels = [r[3:7] for r in own], [int(r[1]) for r in own]
        if o.get("agnostic"):
            labels_shown = [background + 1] * len(own)
        else:
            labels_shown = labels
        args = o.get("overlap_threshold", 0.5), o.get("bipartite", False), o.get("ignore_outside", False)

        def predicted(c, i=i):
            return [decoded(code, boxes[j], coded[j], places[i][j][c]) for j in range(p)]

        if shared:
            found, best = matches(boxes if o.get("by_priors", True) else predicted(0), at, *args)
            table = {0: found}
        elif o.get("by_priors", True):
            found, best = matches(boxes, at, *args)
            table = {
                c: [j if j > -1 and labels[j] == c else -1 for j in found] for c in range(classes) if c != background
            }
        else:
            table = {}
            for c in range(classes):
                those = [k for k in range(len(own)) if labels[k] == c]
                if c != background:
                    found, best = matches(predicted(c), [at[k] for k in those], *args)
                    table[c] = [those[j] if j > -1 else -1 for j in found]
        negatives = set()
        if mining != "NONE" and own:
            found = table[0]
            losses = [of_class(scores[i][j], labels_shown[found[j]] if found[j] > -1 else background) for j in range(p)]
            if mining == "HARD_EXAMPLE":
                losses = [v + (of_place(i, j, 0, at[found[j]]) if found[j] > -1 else 0) for j, v in enumerate(losses)]
                those, most = list(range(p)), o["sample_size"]
            else:
                those = [j for j in range(p) if found[j] == -1 and best[j] < o.get("neg_overlap", 0.5)]
                most = int(sum(j > -1 for j in found) * o.get("ratio", 3))
            if "objectness" in o:
                those = [j for j in those if o["objectness"].reshape(n, p, 2)[i, j, 1] >= o["least_object"]]
            those.sort(key=lambda j: (-losses[j], j))
            if o.get("nms"):
                seen = boxes if o.get("nms_priors") else predicted(0)
                those = those[: o.get("top_k")]
                those = [j for j in those if area(seen[j]) >= 1e-5]
                those = [those[k] for k in suppressed([seen[j] for j in those], [losses[j] for j in those], o["nms"])]
            those = set(those[:most])
            negatives = {j for j in those if found[j] == -1}
            if mining == "HARD_EXAMPLE":
                table[0] = [-1 if j > -1 and k not in those else j for k, j in enumerate(found)]
        for c, found in table.items():
            for j in range(p):
                if found[j] > -1:
                    count += 1
                    place_loss += of_place(i, j, c if not shared else 0, at[found[j]])
        for j in range(p):
            wanted = [labels_shown[table[c][j]] for c in sorted(table) if table[c][j] > -1]
            if wanted and o.get("logistic") and mining == "NONE":
                class_loss += logistic(scores[i][j], set(wanted))
            elif wanted:
                class_loss += of_class(scores[i][j], wanted[-1])
            elif mining == "NONE" and o.get("logistic"):
                class_loss += logistic(scores[i][j], set())
            elif mining == "NONE" or j in negatives:
                class_loss += of_class(scores[i][j], background)
    z = {"FULL": n * p, "VALID": count, "BATCH_SIZE": n, "NONE": 1}[o.get("normalization", "VALID")]
    return (o.get("loc_weight", 1) * place_loss + class_loss) / max(1, z)
