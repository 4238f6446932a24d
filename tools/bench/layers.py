"""How near to the copy bandwidth of a GPU each layer's kernels come: forward and backward of one layer at a time.

    python tools/bench/layers.py                  all rows, as a table in Markdown
    python tools/bench/layers.py ReLU Eltwise     these types

Bytes are those that must move: every array that the pass declares, once. A share of 1 is the speed of a copy from
device memory to device memory of the same size, measured in the same run.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from common import versions
from google.protobuf import text_format

from pycaffe_lms.backend import cuda
from pycaffe_lms.layers.base import BuildContext, Lives, Pass, ShapesChanged
from pycaffe_lms.layers.registry import layer_class
from pycaffe_lms.ops import load_ops
from pycaffe_lms.proto import caffe_pb2

BIG = (64, 128, 56, 56)  # 103 MB of float32
ROWS = [  # type, text, shapes of bottoms, number of tops
    *((t, "", (BIG,), 1) for t in ("AbsVal", "BNLL", "ELU", "Exp", "ReLU", "ReLU6", "Sigmoid", "Swish", "TanH")),
    ("Clip", "clip_param { min: -1 max: 1 }", (BIG,), 1),
    ("Log", "log_param { shift: 30 }", (BIG,), 1),
    ("Power", "power_param { scale: 2 shift: 1 }", (BIG,), 1),
    ("Power", "power_param { power: 2 }", (BIG,), 1),
    ("PReLU", "", (BIG,), 1),
    ("Threshold", "", (BIG,), 1),
    ("Dropout", "", (BIG,), 1),
    ("Eltwise", "", (BIG, BIG), 1),
    ("Eltwise", "eltwise_param { coeff: 1 coeff: -2 }", (BIG, BIG), 1),
    ("Eltwise", "eltwise_param { operation: PROD }", (BIG, BIG), 1),
    ("Eltwise", "eltwise_param { operation: MAX }", (BIG, BIG), 1),
    ("Scale", "", (BIG,), 1),
    ("Scale", "scale_param { bias_term: true }", (BIG,), 1),
    ("Bias", "", (BIG,), 1),
    ("Axpy", "", ((64, 128), BIG, BIG), 1),
    ("BatchNorm", "", (BIG,), 1),
    ("MVN", "", (BIG,), 1),
    ("Normalize", "norm_param { across_spatial: false channel_shared: false }", (BIG,), 1),
    ("LRN", "", (BIG,), 1),
    ("Softmax", "", (BIG,), 1),
    ("Pooling", "pooling_param { kernel_size: 2 stride: 2 }", (BIG,), 1),
    ("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", (BIG,), 1),
    ("Pooling", "pooling_param { kernel_size: 3 stride: 2 pool: AVE }", (BIG,), 1),
    ("Pooling", "pooling_param { global_pooling: true pool: AVE }", (BIG,), 1),
    ("DepthwiseConvolution", "convolution_param { num_output: 128 group: 128 kernel_size: 3 pad: 1 }", (BIG,), 1),
    ("Concat", "", (BIG, BIG), 1),
    ("Slice", "", (BIG,), 2),
    ("Split", "", (BIG,), 2),
    ("Tile", "tile_param { tiles: 2 }", (BIG,), 1),
    ("Reduction", "reduction_param { axis: 1 }", (BIG,), 1),
    ("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", (BIG,), 1),
    ("ShuffleChannel", "shuffle_channel_param { group: 4 }", (BIG,), 1),
    ("Crop", "crop_param { offset: 2 }", (BIG, (64, 128, 50, 50)), 1),
    ("Filter", "", (BIG, (64,)), 1),
    ("BatchReindex", "", (BIG, (64,)), 1),
    ("Interp", "interp_param { zoom_factor: 2 }", ((64, 128, 28, 28),), 1),
    ("Upsample", "", ((64, 128, 28, 28),), 1),
    ("EuclideanLoss", "", (BIG, BIG), 1),
    ("SmoothL1Loss", "", (BIG, BIG), 1),
    ("SigmoidCrossEntropyLoss", "", (BIG, BIG), 1),
    ("SoftmaxWithLoss", "", (BIG, (64, 1, 56, 56)), 1),
]


class OneLayer:
    """A layer with its arrays on the GPU, and how many bytes each of its passes must move."""

    def __init__(self, kind: str, text: str, shapes, n_top: int):
        self.cupy = cuda.require()
        message = text_format.Parse(text, caffe_pb2.LayerParameter())
        message.type, message.name = kind, kind.lower()
        message.bottom.extend(f"b{i}" for i in range(len(shapes)))
        message.top.extend(f"t{i}" for i in range(n_top))
        self.layer = layer = layer_class(kind)(message, BuildContext())
        layer.setup(list(shapes))
        own = layer.declares
        layer.update_context(needs_backward=own.no_backward is not None and len(own.no_backward) < len(shapes))
        self.rng = self.cupy.random.default_rng(1)
        self.bottom = [self._fill(s) for s in shapes]
        self.tops_shapes = layer.infer_shapes(list(shapes))
        if own.dynamic_shape_bottoms:
            try:
                read = sorted(own.dynamic_shape_bottoms)
                layer.read_dynamic_shapes([self.cupy.asnumpy(self.bottom[i]) for i in read])
            except ShapesChanged:
                self.tops_shapes = layer.infer_shapes(list(shapes))
        ops = load_ops("cuda")
        layer.declare(list(shapes), self.tops_shapes, ops)
        empty = self.cupy.zeros
        shared = layer.shares_data()
        self.top = [
            self.bottom[shared[i]].reshape(s) if i in shared else empty(s, np.float32)
            for i, s in enumerate(self.tops_shapes)
        ]
        self.param = [self._fill(p.shape) for p in layer.params]
        self.scratch = {s.name: empty(s.shape, s.dtype) for s in layer.scratches.values()}
        self.propagate = [layer.context.needs_backward and i not in own.no_backward for i in range(len(shapes))]
        self.param_propagate = [p.lr_mult != 0 for p in layer.params]
        self._make_passes(ops, shared)

    def _fill(self, shape):
        small = len(shape) < 3 or shape[1] == 1
        if small:  # labels, selectors, indices
            return self.rng.integers(1, 8, shape).astype(np.float32)
        return self.rng.standard_normal(shape, dtype=np.float32)

    def _make_passes(self, ops, shared) -> None:
        layer, empty = self.layer, self.cupy.zeros
        needs, updates = layer.forward_needs(), layer.forward_updates()
        scratch = layer.scratches
        self.forward_pass = Pass(
            ops=ops,
            bottom=[b if i in needs.bottoms else None for i, b in enumerate(self.bottom)],
            top=self.top,
            param=[p if i in needs.params | updates else None for i, p in enumerate(self.param)],
            scratch={n: a for n, a in self.scratch.items() if scratch[n].forward},
        )
        kept = [a for n, a in self.scratch.items() if scratch[n].lives is not Lives.CALL]
        written = [t for i, t in enumerate(self.top) if i not in shared]
        self.forward_bytes = _bytes([self.bottom[i] for i in needs.bottoms if shared.get(0) != i], written, kept)
        if not layer.context.needs_backward:
            self.backward_pass = None
            return
        needs = layer.backward_needs(self.propagate, self.param_propagate)
        top_diff = [self.cupy.ones(s, np.float32) for s in self.tops_shapes]
        bottom_diff = [
            empty(b.shape, np.float32) if p else None for b, p in zip(self.bottom, self.propagate, strict=True)
        ]
        for t, b in layer.shares().items():
            bottom_diff[b] = top_diff[t].reshape(self.bottom[b].shape)
        self.backward_pass = Pass(
            ops=ops,
            bottom=[b if i in needs.bottoms else None for i, b in enumerate(self.bottom)],
            top=[t if i in needs.tops else None for i, t in enumerate(self.top)],
            param=[p if i in needs.params else None for i, p in enumerate(self.param)],
            scratch={n: a for n, a in self.scratch.items() if scratch[n].backward},
            top_diff=top_diff,
            bottom_diff=bottom_diff,
            param_diff=[empty(p.shape, np.float32) for p in self.param],
            accumulate=[False] * len(self.param),
        )
        read = [self.bottom[i] for i in needs.bottoms] + [self.top[i] for i in needs.tops]
        self.backward_bytes = _bytes(read, top_diff, [d for d in bottom_diff if d is not None], kept)

    def time(self, run, io) -> float:
        """Seconds of one pass."""
        return _time(self.cupy, lambda: run(io))


def _time(cupy, run, rounds: int = 5, times: int = 20) -> float:
    """Seconds of one `run`: the median of some rounds of many, queued without a pause, by device events."""
    found = []
    for _ in range(rounds + 1):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        run()  # keeps the device busy while the first of the others is queued
        start.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        found.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / times)
    return float(np.median(found[1:]))


def _bytes(*groups) -> int:
    return sum(a.nbytes for group in groups for a in group)


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a device-to-device copy of 103 MB."""
    cupy = cuda.require()
    source = cupy.zeros(BIG, np.float32)
    target = cupy.empty_like(source)
    copy = cupy.cuda.runtime.memcpyAsync
    return 2 * source.nbytes / _time(cupy, lambda: copy(target.data.ptr, source.data.ptr, source.nbytes, 3, 0))


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("types", nargs="*", help="layer types; default: all")
    args = p.parse_args()
    cuda.set_math("tf32")
    copy = copy_bandwidth()
    print(f"{versions()}\ncopy: {copy / 1e9:.0f} GB/s read and written\n")
    print("| layer | forward us | GB/s | share of copy | backward us | GB/s | share of copy |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for kind, text, shapes, n_top in ROWS:
        if args.types and kind not in args.types:
            continue
        one = OneLayer(kind, text, shapes, n_top)
        cells = []
        for run, io, nbytes in (
            (one.layer.forward, one.forward_pass, one.forward_bytes),
            (one.layer.backward, one.backward_pass, getattr(one, "backward_bytes", 0)),
        ):
            if io is None or not nbytes or (io is one.forward_pass and one.layer.declares.runs_on.value == "nowhere"):
                cells += ["-", "-", "-"]
                continue
            seconds = one.time(run, io)
            cells += [f"{seconds * 1e6:.0f}", f"{nbytes / seconds / 1e9:.0f}", f"{nbytes / seconds / copy:.2f}"]
        brief = " ".join(text.replace("_param", "").split())
        print(f"| {kind} {f'`{brief}`' if brief else ''} | {' | '.join(cells)} |", flush=True)
        del one
        cuda.require().get_default_memory_pool().free_all_blocks()
    return 0


if __name__ == "__main__":
    sys.exit(main())
