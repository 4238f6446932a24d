"""Layers in Python as the tutorials have them: one that makes data, one that is a loss."""

from __future__ import annotations

import json

import numpy as np

import pycaffe_lms as caffe


class PointsDataLayer(caffe.Layer):
    """Batches of points and which of three labels they have; several may be right.

    param_str: JSON with batch_size, items, seed and, optionally, shuffle. Tops: (batch_size, 2) and (batch_size, 3).
    """

    def setup(self, bottom, top):
        params = json.loads(self.param_str)
        missing = {"batch_size", "items", "seed"} - set(params)
        if missing:
            raise Exception(f"Params must include {', '.join(sorted(missing))}")
        if bottom or len(top) != 2:
            raise Exception("A data layer has no bottoms, and this one two tops.")
        self.batch_size, self.shuffle = params["batch_size"], params.get("shuffle", False)
        self.random = np.random.default_rng(params["seed"])
        self.points = self.random.uniform(-1, 1, (params["items"], 2)).astype(np.float32)
        self.labels = labels_of(self.points)
        self.order, self.position = np.arange(params["items"]), 0
        top[0].reshape(self.batch_size, 2)
        top[1].reshape(self.batch_size, 3)

    def reshape(self, bottom, top):
        """The batch size never changes."""

    def forward(self, bottom, top):
        for k in range(self.batch_size):
            if self.position == len(self.order):
                self.position = 0
                if self.shuffle:
                    self.random.shuffle(self.order)
            item = self.order[self.position]
            top[0].data[k, ...], top[1].data[k, ...] = self.points[item], self.labels[item]
            self.position += 1

    def backward(self, top, propagate_down, bottom):
        pass


def labels_of(points):
    """Right of the middle; above the middle; x larger than y: three half planes, which one matrix product can learn."""
    x, y = points.T
    return np.stack([x > 0, y > 0, x > y], axis=1).astype(np.float32)


class EuclideanLossLayer(caffe.Layer):
    """Half the mean squared distance of two blobs, as the built-in EuclideanLoss."""

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("Need two inputs to compute distance.")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("Inputs must have the same dimension.")
        self.diff = np.zeros_like(bottom[0].data, dtype=np.float32)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.diff[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.diff**2) / bottom[0].num / 2.0

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            if propagate_down[i]:
                bottom[i].diff[...] = (1 if i == 0 else -1) * top[0].diff[0] * self.diff / bottom[i].num
