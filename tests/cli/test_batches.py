"""Batch sizes in a net's message."""

from __future__ import annotations

import pytest

from pycaffe_lms.cli.views.batches import batch_of, parse_sweep, with_batch
from pycaffe_lms.errors import UsageError
from pycaffe_lms.formats.prototxt.parser import parse_net


def test_sweeps():
    assert parse_sweep("batch=8..512") == [8, 16, 32, 64, 128, 256, 512]
    assert parse_sweep("batch=3..20") == [3, 6, 12] and parse_sweep("batch=7,7,3") == [7, 7, 3]
    for wrong in ("", "8..16", "batch=", "batch=0,4", "batch=9..8", "batch=1...8", "batch=-1..8", "batch=a..b"):
        with pytest.raises(UsageError, match="-sweep"):
            parse_sweep(wrong)


@pytest.mark.parametrize(
    "source, after",
    [
        (
            'type: "DummyData" dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 } shape { dim: 9 dim: 4 } }',
            'type: "DummyData" dummy_data_param { shape { dim: 6 dim: 3 } shape { dim: 6 } shape { dim: 9 dim: 4 } }',
        ),
        (
            'type: "Input" input_param { shape { dim: 4 dim: 4 } }',
            'type: "Input" input_param { shape { dim: 6 dim: 4 } }',
        ),
        (
            'type: "Data" data_param { source: "x" batch_size: 4 }',
            'type: "Data" data_param { source: "x" batch_size: 6 }',
        ),
        (
            'type: "ImageData" image_data_param { batch_size: 4 }',
            'type: "ImageData" image_data_param { batch_size: 6 }',
        ),
        ('type: "HDF5Data" hdf5_data_param { batch_size: 4 }', 'type: "HDF5Data" hdf5_data_param { batch_size: 6 }'),
        (
            'type: "MemoryData" memory_data_param { batch_size: 4 channels: 4 }',
            'type: "MemoryData" memory_data_param { batch_size: 6 channels: 4 }',
        ),
        (
            'type: "DummyData" dummy_data_param { num: 4 channels: 4 height: 1 width: 1 }',
            'type: "DummyData" dummy_data_param { num: 6 channels: 4 height: 1 width: 1 }',
        ),
    ],
)
def test_every_way_to_say_it(source, after):
    rest = ' layer { name: "i" type: "InnerProduct" bottom: "d" top: "i" inner_product_param { num_output: 4 } }'
    before, wanted = (parse_net(f'layer {{ name: "d" top: "d" {x} }}{rest}').message for x in (source, after))
    assert batch_of(before, [0, 1]) == 4 and with_batch(before, [0, 1], 6) == wanted


def test_a_net_that_does_not_say():
    net = parse_net('layer { name: "i" type: "InnerProduct" bottom: "d" top: "i" }').message
    assert batch_of(net, [0]) is None
    with pytest.raises(UsageError, match="-shape"):
        with_batch(net, [0], 2)
