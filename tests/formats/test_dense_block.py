"""DenseBlock: a block of DenseNet in one layer, against its definition in NumPy; weights of files of the forks."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms import Net
from pycaffe_lms.errors import PrototxtError, WeightsError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.proto import caffe_pb2

TEXT = """
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: [2, 4, 5, 6] }} }} }}
layer {{ name: "block" type: "DenseBlock" bottom: "x" top: "y" denseblock_param {{ numTransition: 3 growthRate: 2
  initChannel: 4 Filter_Filler {{ type: "msra" }} BN_Scaler_Filler {{ value: 1.5 }} BN_Bias_Filler {{ value: 0.25 }}
  {} }} }}
"""
DEEP = "use_BC: true workspace_MB: 32 gpuIdx: 1"
EPS = 1e-5


def normalised(x, scale, bias, mean, var):
    """BatchNorm with these statistics, or the batch's, then ReLU."""
    if mean is None:
        mean, var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    column = (1, -1, 1, 1)
    y = (x - mean.reshape(column)) / np.sqrt(var.reshape(column) + EPS)
    return np.maximum(y * scale.reshape(column) + bias.reshape(column), 0)


def convolved(x, w):
    """A convolution that keeps the size of the maps, tap by tap."""
    pad = w.shape[2] // 2
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    y = np.zeros((len(x), len(w), *x.shape[2:]))
    for i, j in np.ndindex(w.shape[2:]):
        part = wide[:, :, i : i + x.shape[2], j : j + x.shape[3]]
        y += np.einsum("nchw,oc->nohw", part, w[:, :, i, j])
    return y


def block(x, blobs, count, deep, running):
    """The fork's loop over transitions: blobs[kind * count + t]. running: the statistics' weight; None: the batch's."""

    def kind(k, t):
        return np.asarray(blobs[k * count + t], np.float64)

    def statistics(k, t):
        return (None, None) if running is None else (kind(k, t) / running, kind(k + 1, t) / running)

    for t in range(count):
        y = normalised(x, kind(1, t), kind(2, t), *statistics(3, t))
        if deep:
            y = normalised(convolved(y, kind(5, t)), kind(6, t), kind(7, t), *statistics(8, t))
        x = np.concatenate([x, convolved(y, kind(0, t))], axis=1)
    return x


def random_blobs(deep, count=3, growth=2, channels=4):
    rng, kinds = np.random.default_rng(3), [[] for _ in range(10 if deep else 5)]
    for t in range(count):
        c = channels + t * growth
        inside = 4 * growth if deep else c
        kinds[0].append(rng.normal(size=(growth, inside, 3, 3)))
        for first, n in ((1, c), (6, inside))[: 2 if deep else 1]:
            for i in range(4):
                low = 0.5 if i == 3 else -1.0
                kinds[first + i].append(rng.uniform(low, 2, size=(1, n, 1, 1)))
        if deep:
            kinds[5].append(rng.normal(size=(inside, c, 1, 1)))
    return [blob for kind in kinds for blob in kind]


def file_of(path, blobs, factor):
    """What the forks write: the parameters have another number there, and are not known."""
    net = caffe_pb2.NetParameter(name="n")
    layer = net.layer.add(name="block", type="DenseBlock", bottom=["x"], top=["y"])
    for values in [*blobs, np.array([factor])]:
        layer.blobs.add(double_data=values.ravel()).shape.dim.extend(values.shape)
    path.write_bytes(net.SerializeToString())
    return path


@pytest.mark.parametrize("factor", [0.0, 4.0], ids=["averages", "sums"])
@pytest.mark.parametrize("deep", [False, True], ids=["plain", "BC"])
def test_weights_of_a_file_give_the_forks_values(deep, factor, tmp_path):
    net = Net(parse_net(TEXT.format(DEEP if deep else "")).message, caffe_pb2.TEST, dtype="float64")
    blobs, x = random_blobs(deep), np.random.default_rng(4).normal(size=(2, 4, 5, 6))
    net.copy_from(file_of(tmp_path / "w.caffemodel", blobs, factor))
    net.blobs["x"].data[...] = x
    net.forward()
    assert net.blobs["y"].data.shape == (2, 10, 5, 6)
    np.testing.assert_allclose(net.blobs["y"].data, block(x, blobs, 3, deep, factor or 1.0), rtol=1e-9, atol=1e-9)
    net.close()


@pytest.mark.parametrize("deep", [False, True], ids=["plain", "BC"])
def test_training_normalises_by_the_batch(deep, tmp_path):
    """With dropout between, of which the expectation is that without: here of share 0."""
    text = TEXT.format((DEEP if deep else "") + " use_dropout: true dropout_amount: 0")
    net = Net(parse_net(text).message, caffe_pb2.TRAIN, dtype="float64")
    blobs, x = random_blobs(deep), np.random.default_rng(4).normal(size=(2, 4, 5, 6))
    net.copy_from(file_of(tmp_path / "w.caffemodel", blobs, 0.0))
    net.blobs["x"].data[...] = x
    net.forward()
    np.testing.assert_allclose(net.blobs["y"].data, block(x, blobs, 3, deep, None), rtol=1e-9, atol=1e-9)
    # running averages: 0.9 times the old, weight 1, and the batch's mean
    name = "block/1/narrow/norm" if deep else "block/1/grow/norm"
    mean, _, factor, *_ = (blob.data for blob in net.params[name])
    np.testing.assert_allclose(mean, 0.9 * blobs[9].ravel() + x.mean(axis=(0, 2, 3)), rtol=1e-6, atol=1e-9)
    assert factor[0] == pytest.approx(1.9)
    net.close()


def test_gradients_of_the_whole_block(tmp_path):
    """Central differences of the definition, for the bottom and a filter of the second transition."""
    net = Net(parse_net("force_backward: true\n" + TEXT.format(DEEP)).message, caffe_pb2.TRAIN, dtype="float64")
    rng, blobs = np.random.default_rng(5), random_blobs(True)
    x, weights = rng.normal(size=(2, 4, 5, 6)), rng.normal(size=(2, 10, 5, 6))
    net.copy_from(file_of(tmp_path / "w.caffemodel", blobs, 0.0))
    net.blobs["x"].data[...] = x
    net.forward()
    net.blobs["y"].diff[...] = weights
    net.backward()
    blobs = [np.array(b) for b in blobs]
    for values, slopes in ((x, net.blobs["x"].diff), (blobs[1], net.params["block/2/grow/conv"][0].diff)):
        flat, found = values.reshape(-1), np.array(slopes).reshape(-1)
        for i in rng.choice(flat.size, 25, replace=False):
            ends = []
            for step in (1e-5, -1e-5):
                before, flat[i] = flat[i], flat[i] + step
                ends.append((block(x, blobs, 3, True, None) * weights).sum())
                flat[i] = before
            assert found[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=2e-5, abs=2e-6)
    net.close()


def test_layers_names_and_fillers():
    read = parse_net(TEXT.format("use_dropout: true dropout_amount: 0.25"))
    kinds = [layer.type for layer in read.message.layer]
    assert kinds == ["Input", *["BatchNorm", "ReLU", "Convolution", "Dropout", "Concat"] * 3]
    norm, _, conv, dropout, joined = read.message.layer[-5:]
    assert (norm.batch_norm_param.scale_filler.value, norm.batch_norm_param.bias_filler.value) == (1.5, 0.25)
    assert norm.batch_norm_param.moving_average_fraction == pytest.approx(0.9)
    assert conv.convolution_param.weight_filler.type == "msra" and conv.convolution_param.num_output == 2
    assert dropout.dropout_param.dropout_ratio == 0.25
    assert (joined.name, list(joined.top), list(joined.bottom)) == ("block", ["y"], ["block/2", "block/3/grow/conv"])


def test_fillers_that_are_not_given_are_zeros():
    """As every filler of Caffe without a type: the fork has no other default."""
    text = TEXT.format("").replace('Filter_Filler { type: "msra" } BN_Scaler_Filler { value: 1.5 }', "")
    net = Net(parse_net(text).message, caffe_pb2.TEST)
    _, _, _, scale, bias = (blob.data for blob in net.params["block/2/grow/norm"])
    assert not scale.any() and (bias == 0.25).all() and not net.params["block/2/grow/conv"][0].data.any()
    net.close()


@pytest.mark.parametrize("fields", ["numTransition: 0", "growthRate: 0"])
def test_refused(fields):
    with pytest.raises(PrototxtError, match='line 3: layer "block".*transitions that add'):
        parse_net(TEXT.format("").replace(f"{fields.split(':')[0]}: {'3' if 'num' in fields else '2'}", fields))


def test_a_file_with_other_blobs_is_refused(tmp_path):
    net = Net(parse_net(TEXT.format("")).message, caffe_pb2.TEST)
    with pytest.raises(WeightsError, match='layer "block".*has 15 blobs, not 5 or 10 for each'):
        net.copy_from(file_of(tmp_path / "w.caffemodel", random_blobs(False)[:-1], 0.0))
    net.close()
