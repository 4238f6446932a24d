"""Layers as pycaffe users write them."""

from __future__ import annotations

import json

import numpy as np

import pycaffe_lms as caffe


class Tenfold(caffe.Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff


class HostNumbers(caffe.Layer):
    """Data that the host makes, as data layers do: 4 images of 3 x 12 x 12 and labels, others in every forward."""

    def setup(self, bottom, top):
        self.forwards = 0

    def reshape(self, bottom, top):
        top[0].reshape(4, 3, 12, 12)
        top[1].reshape(4)

    def forward(self, bottom, top):
        rng = np.random.default_rng(self.forwards)
        self.forwards += 1
        top[0].data[...] = rng.normal(size=top[0].shape)
        top[1].data[...] = rng.integers(0, 5, 4)

    def backward(self, top, propagate_down, bottom):
        pass


class Euclidean(caffe.Layer):
    """The tutorial's loss: half the mean squared distance."""

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
            if not propagate_down[i]:
                continue
            sign = 1 if i == 0 else -1
            bottom[i].diff[...] = sign * self.diff / bottom[i].num


class EarlyGradient(Euclidean):
    """Writes its gradient in forward; backward does nothing."""

    def forward(self, bottom, top):
        super().forward(bottom, top)
        bottom[0].diff[...] = self.diff / bottom[0].num

    def backward(self, top, propagate_down, bottom):
        pass


class Weight(caffe.Layer):
    """y = w * x, with one learned number per column; counts its forwards in a second parameter."""

    def setup(self, bottom, top):
        self.blobs.add_blob(bottom[0].shape[1])
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = np.arange(1, bottom[0].shape[1] + 1)

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * self.blobs[0].data
        self.blobs[1].data[0] += 1

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += (top[0].diff * bottom[0].data).sum(axis=0)
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.blobs[0].data


class Settings(caffe.Layer):
    """Keeps what it was set up with."""

    def setup(self, bottom, top):
        self.value = json.loads(self.param_str)["value"]

    def reshape(self, bottom, top):
        top[0].reshape(2)

    def forward(self, bottom, top):
        top[0].data[...] = self.value, self.phase


class Ragged(caffe.Layer):
    """A data layer whose batches have 3, 1, 2, 3, 1, 2... rows of 40 numbers. param_str: where the shape is set."""

    def setup(self, bottom, top):
        self.batch = 0

    def _shape(self, top):
        n = (3, 1, 2)[self.batch % 3]
        top[0].reshape(n, 300)
        top[1].reshape(n, 2)

    def reshape(self, bottom, top):
        if self.param_str == "forward":
            top[0].reshape(1, 300)
            top[1].reshape(1, 2)
        else:
            self._shape(top)

    def forward(self, bottom, top):
        if self.param_str == "forward":
            self._shape(top)
        rng = np.random.default_rng(self.batch)
        for blob in top:
            blob.data[...] = rng.normal(size=blob.data.shape)
        self.batch += 1

    def backward(self, top, propagate_down, bottom):
        pass


class Positive(caffe.Layer):
    """Keeps the rows whose first number is positive, and at least one: the shape is known in forward only."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
        top[1].reshape(*bottom[1].shape)

    def forward(self, bottom, top):
        self.rows = np.flatnonzero(bottom[0].data[:, 0] > 0)
        if not self.rows.size:
            self.rows = np.array([0])
        for b, t in zip(bottom, top, strict=True):
            values = b.data[self.rows]
            t.reshape(*values.shape)
            t.data[...] = values

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            if propagate_down[i]:
                bottom[i].diff[self.rows] = top[i].diff


class PlusOneInPlace(caffe.Layer):
    """Changes its first column only: the rest must keep its values."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        top[0].data[:, 0] += 1

    def backward(self, top, propagate_down, bottom):
        pass


class SpecialError(Exception):
    pass


class Failing(Tenfold):
    """Fails where param_str says so, until `mended`."""

    mended = False

    def _fail(self, where):
        if self.param_str == where and not type(self).mended:
            raise SpecialError(where)

    def setup(self, bottom, top):
        self._fail("setup")

    def reshape(self, bottom, top):
        super().reshape(bottom, top)
        self._fail("reshape")

    def forward(self, bottom, top):
        self._fail("forward")
        super().forward(bottom, top)

    def backward(self, top, propagate_down, bottom):
        self._fail("backward")
        super().backward(top, propagate_down, bottom)


class WritesItsBottom(Tenfold):
    """param_str: the statement that writes, in forward or in backward."""

    def forward(self, bottom, top):
        super().forward(bottom, top)
        if "backward" not in self.param_str:
            exec(self.param_str)

    def backward(self, top, propagate_down, bottom):
        super().backward(top, propagate_down, bottom)
        exec(self.param_str)


class Habits(caffe.Layer):
    """What people write, in one layer: y = m * x where x > 0, with a learned m per column, clipped gradients.

    Keeps the array that forward saw; works in place on the gradient that it gets; writes gradients that nobody asked
    for; reads shapes through num and channels; a top that it only ever shapes in setup; numbers in other types.
    """

    def setup(self, bottom, top):
        for blob in top:
            assert blob.count >= 0
        self.blobs.add_blob(bottom[0].channels)
        self.blobs[0].data[...] = 2
        top[1].reshape(1)
        assert len(bottom) == 2 and len(top) == 2 and [b.num for b in bottom] == [bottom[0].num, bottom[1].num]

    def reshape(self, bottom, top):
        top[0].reshape(bottom[0].num, bottom[0].channels)
        self.mask = np.zeros(bottom[0].data.shape, bool)

    def forward(self, bottom, top):
        self.x = bottom[0].data
        self.mask[...] = self.x > 0
        top[0].data.fill(0)
        np.multiply(self.x, self.blobs[0].data, out=top[0].data, where=self.mask)
        top[0].data[:] += bottom[1].data.mean()
        top[1].data.flat = np.float64(self.x.sum())

    def backward(self, top, propagate_down, bottom):
        np.clip(top[0].diff, -1, 1, out=top[0].diff)
        top[0].diff[~self.mask] *= 0
        self.blobs[0].diff[:] += (top[0].diff * self.x).sum(0)
        bottom[0].diff[...] = top[0].diff
        bottom[0].diff[...] *= self.blobs[0].data
        bottom[1].diff[...] = 7
        assert list(propagate_down) == [True, False]


not_a_class = 3


class Pictures(caffe.Layer):
    """As RoIDataLayer of py-faster-rcnn: top shapes come with the data, in forward, by fields of a dictionary."""

    SIZES = ((7, 9), (5, 6), (8, 8))

    def setup(self, bottom, top):
        self._settings = {"TRAIN": 4, "TEST": 2}[str(self.phase)]
        self._channels = json.loads(self.param_str_)["channels"]
        self._cur = 0
        self._name_to_top_map = {}
        for i, (name, shape) in enumerate((("data", (1, self._channels, 10, 10)), ("im_info", (1, 3)))):
            top[i].reshape(*shape)
            self._name_to_top_map[name] = i

    def reshape(self, bottom, top):
        """Reshaping happens during the call to forward."""

    def forward(self, bottom, top):
        height, width = self.SIZES[self._cur % 3]
        self._cur += 1
        rng = np.random.default_rng(self._cur)
        blobs = {"data": rng.normal(size=(1, self._channels, height, width)), "im_info": np.array([[height, width, 1]])}
        for name, blob in blobs.items():
            top_ind = self._name_to_top_map[name]
            top[top_ind].reshape(*blob.shape)
            top[top_ind].data[...] = blob.astype(np.float32, copy=False)

    def backward(self, top, propagate_down, bottom):
        """This layer does not propagate gradients."""


class AnchorLabels(caffe.Layer):
    """As AnchorTargetLayer: labels of the size that scores have now. "wrong": of another one, in its second forward."""

    def setup(self, bottom, top):
        self._wrong = json.loads(self.param_str or "{}").get("wrong", 0)
        top[0].reshape(1, 1, *bottom[0].data.shape[-2:])
        top[1].reshape(*bottom[0].data.shape)

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        height, width = bottom[0].data.shape[-2:]
        assert tuple(bottom[1].data[0, :2]) == (height, width)
        labels = (bottom[0].data[:, :1] > 0).astype(np.float32)
        labels[0, 0, 0, :2] = -1
        labels = labels[..., self._wrong * (height, width)[0] // 2 :]
        top[0].reshape(*labels.shape)
        top[0].data[...] = labels
        top[1].reshape(*bottom[0].data.shape)
        top[1].data[...] = 0.5

    def backward(self, top, propagate_down, bottom):
        pass


class SomeRegions(caffe.Layer):
    """As ProposalLayer: a number of regions that is known in forward only, and scores."""

    def setup(self, bottom, top):
        top[0].reshape(1, 5)
        if len(top) > 1:
            top[1].reshape(1, 1, 1, 1)

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        best = np.argsort(-bottom[0].data[0, 1].ravel())[: 3 + int(bottom[1].data[0, 1]) % 4]
        blob = np.hstack(
            (np.zeros((len(best), 1), np.float32), np.tile([0, 0, 3, 4], (len(best), 1)) + best[:, None] % 3)
        )
        top[0].reshape(*(blob.shape))
        top[0].data[...] = blob
        if len(top) > 1:
            top[1].reshape(len(best), 1)
            top[1].data[...] = bottom[0].data[0, 1].ravel()[best][:, None]

    def backward(self, top, propagate_down, bottom):
        pass
