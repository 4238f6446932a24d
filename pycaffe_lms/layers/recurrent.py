"""Recurrent layers: RNN, LSTM, what they share, Lstm of forks, and LSTMUnit, one step of an LSTM.

Caffe unrolls an RNN or LSTM into a net of T copies; here it is one layer with the same parameters. The products with
the inputs are one product over all T x N items; only the products with the states are done step by step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..arrays import AnyArray
from ..ops.records import LstmState
from .base import Declaration, Layer, Lives, Needs, Ops, Pass, Shape, Shapes, between, count, exactly
from .registry import register_layer

_log = logging.getLogger(__name__)


class RecurrentLayer(Layer):
    """What RNN and LSTM share.

    Bottoms: x (T, N, ...), cont (T, N), optionally x_static (N, ...), then with expose_hidden the first states, each
    (1, N, D). Tops: the outputs (T, N, D), then with expose_hidden the last states. D is num_output.

    The states of the step before are multiplied by cont: 0 where a new sequence begins, else 1. Without expose_hidden
    a forward begins with the last states of the forward before (zero before the first forward, and after N changes).
    The first and last states neither receive nor pass on gradients.
    """

    states: tuple[str, ...] = ("h",)
    gates = 1  # each has D rows of the weights
    bias = 1  # index of b
    carries = True  # whether states go from one forward to the next
    # all parameters' gradients, as in Caffe, whose unrolled net has no lr_mult: clip_gradients counts them
    declares = Declaration(
        no_backward=frozenset({1}), ignores_force_backward=frozenset({1}), computes_all_param_gradients=True
    )

    def check_counts(self, n_bottom: int, n_top: int) -> None:
        exposed = len(self.states) if self.param.recurrent_param.expose_hidden else 0
        bottoms, tops = between(2 + exposed, 3 + exposed), exactly(1 + exposed)
        self.declares = replace(self.declares, bottoms=bottoms, tops=tops)
        super().check_counts(n_bottom, n_top)
        self.exposed = exposed
        self.static = n_bottom == 3 + exposed

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.recurrent_param
        self.dim = p.num_output
        if self.dim < 1:
            raise self.error("num_output is 0", fix="add recurrent_param { num_output: ... } of at least 1")
        if p.debug_info:
            _log.warning("%s: recurrent_param.debug_info shows nothing: the layer has no net inside", self.where)
        self.inputs = self._width(bottom_shapes, 0, 2)
        rows = self.gates * self.dim
        self.add_param((rows, self.inputs), p.weight_filler)
        self.add_param((rows,), p.bias_filler)
        if self.static:
            self.inputs_static = self._width(bottom_shapes, 2, 1)
            self.add_param((rows, self.inputs_static), p.weight_filler)
        self.hidden = len(self.params)  # index of the recurrent weights
        self.add_param((rows, self.dim), p.weight_filler)

    def _width(self, bottom_shapes: Shapes, bottom: int, axis: int) -> int:
        """Return the number of values per item: of the axes from `axis` on. Raises ShapeError if there are none."""
        shape = tuple(bottom_shapes[bottom])
        if len(shape) <= axis or count(shape, axis) < 1:
            form = "(T, N, ...)" if axis == 2 else "(N, ...)"
            raise self.shape_error(
                f"has shape {shape}, not {form} with at least one value per item", bottom=bottom, fix=f"give {form}"
            )
        return count(shape, axis)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.check_kept("values per item", self._width(bottom_shapes, 0, 2), self.inputs)
        if self.static:
            self.check_kept("values per item", self._width(bottom_shapes, 2, 1), self.inputs_static, bottom=2)
        steps, items = bottom_shapes[0][:2]
        if steps < 1:
            raise self.shape_error(f"has shape {tuple(bottom_shapes[0])}: no time step", bottom=0, fix="give T >= 1")
        state = (1, items, self.dim)
        wanted: dict[int, Shape] = {1: (steps, items)} if len(bottom_shapes) > 1 else {}
        wanted |= {2 + self.static + j: state for j in range(self.exposed)}
        for i, shape in wanted.items():
            if tuple(bottom_shapes[i]) != shape:
                raise self.shape_error(
                    f"has shape {tuple(bottom_shapes[i])}, but bottom 0 of shape {tuple(bottom_shapes[0])} asks for "
                    f"{shape}",
                    bottom=i,
                    fix=f"give it shape {shape}",
                )
        if self.static and bottom_shapes[2][0] != items:
            raise self.shape_error(
                f"has {bottom_shapes[2][0]} items, but bottom 0 has {items}", bottom=2, fix=f"give ({items}, ...)"
            )
        return [(steps, items, self.dim)] + [state] * self.exposed

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.steps, self.items, d = top_shapes[0]
        self.n, self.rows = self.steps * self.items, self.gates * d
        kept = Lives.SAVED if self.context.needs_backward else Lives.CALL
        all_steps = (self.steps, self.items)
        self.scratch("gates", (*all_steps, self.rows), lives=kept)
        self.scratch("hidden", (*all_steps, d) if self.context.needs_backward else (self.items, d), lives=kept)
        self.scratch("dgates", (*all_steps, self.rows), lives=Lives.CALL, forward=False)
        self.scratch("back", (self.items, d), lives=Lives.CALL, forward=False)
        if self.static:
            self.scratch("static", (self.items, self.rows), lives=Lives.CALL)
        if not self.exposed:
            lives = Lives.STATE if self.carries else Lives.CALL
            for name in self.states:
                self.scratch(name, (self.items, d), lives=lives, backward=False)

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        """Return two operations per weight and item of every step; per item alone for the weights of x_static."""
        static = count(self.params[2].shape) if self.static else 0
        others = sum(count(p.shape) for p in self.params if len(p.shape) > 1) - static
        return 2 * (self.n * others + self.items * static)

    # -- shared by forward and backward ------------------------------------------------------------------------------
    def _ends(self, io: Pass) -> tuple[list[AnyArray], list[AnyArray]]:
        """Return (first states, last states): one array each, in the order of `states`."""
        if not self.exposed:
            states = [io.scratch[name] for name in self.states]
            return states, states
        return io.bottom[-self.exposed :], io.top[1:]

    def _input_products(self, io: Pass) -> AnyArray:
        """Write gates = x W' for all steps. Return what every step adds to it: b, or x_static W_static' + b."""
        ops = io.ops
        ops.inner_product.forward(
            io.bottom[0], io.param[0], None, io.scratch["gates"], self.n, self.rows, self.inputs, False
        )
        if not self.static:
            return io.param[self.bias]
        add = io.scratch["static"]
        size = (self.items, self.rows, self.inputs_static, False)
        ops.inner_product.forward(io.bottom[2], io.param[2], io.param[1], add, *size)
        return add

    def _gate_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> tuple[set[int], set[int]]:
        """Return (bottoms, parameters) that `_from_gates` reads."""
        bottoms = {0} if param_propagate[0] else set()
        params = {0} if propagate_down[0] else set()
        if self.static:
            bottoms |= {2} if param_propagate[2] else set()
            params |= {2} if propagate_down[2] else set()
        return bottoms, params

    def _from_gates(self, io: Pass) -> None:
        """Compute from `dgates` the gradients of the inputs and parameters that the gates are computed from."""
        ops, dgates, rows = io.ops, io.scratch["dgates"], self.rows
        diff, add, down = io.param_diff, io.accumulate, io.bottom_diff
        hidden = self.hidden
        if diff[hidden] is not None:
            size = (self.n, rows, self.dim, False)
            ops.inner_product.backward_weight(io.scratch["hidden"], dgates, diff[hidden], *size, add[hidden])
        if diff[0] is not None:
            size = (self.n, rows, self.inputs, False)
            ops.inner_product.backward_weight(io.bottom[0], dgates, diff[0], *size, add[0])
        if down[0] is not None:
            size = (self.n, rows, self.inputs, False)
            ops.inner_product.backward_data(dgates, io.param[0], down[0], *size, False)
        if not self.static:
            if diff[self.bias] is not None:
                ops.inner_product.backward_bias(dgates, diff[self.bias], self.n, rows, add[self.bias])
            return
        if diff[1] is None and diff[2] is None and down[2] is None:
            return
        over_steps = io.scratch["static"]
        ops.inner_product.backward_bias(dgates, over_steps, self.steps, self.items * rows, False)
        if diff[1] is not None:
            ops.inner_product.backward_bias(over_steps, diff[1], self.items, rows, add[1])
        size = (self.items, rows, self.inputs_static, False)
        if diff[2] is not None:
            ops.inner_product.backward_weight(io.bottom[2], over_steps, diff[2], *size, add[2])
        if down[2] is not None:
            ops.inner_product.backward_data(over_steps, io.param[2], down[2], *size, False)

    def _no_gradient(self, io: Pass, params: Iterable[int]) -> None:
        """Set the gradients of these parameters and of all bottoms to zero."""
        for i in params:
            if io.param_diff[i] is not None and not io.accumulate[i]:
                io.ops.fill(io.param_diff[i], 0)
        for diff in io.bottom_diff:
            if diff is not None:
                io.ops.fill(diff, 0)

    def _no_gradient_of_states(self, io: Pass) -> None:
        for diff in io.bottom_diff[2 + self.static :]:
            if diff is not None:
                io.ops.fill(diff, 0)


@register_layer("RNN")
class RNNLayer(RecurrentLayer):
    """h_t = tanh(W_hh (cont_t h_(t-1)) + W_xh x_t + b_h [+ W_xh_static x_static]), o_t = tanh(W_ho h_t + b_o).

    Bottoms and tops: as RecurrentLayer says; the output is o, the only state h.
    Parameters: W_xh (D, I), b_h (D), [W_xh_static (D, S)], W_hh (D, D), W_ho (D, D), b_o (D).
    Backward reads o, W_ho, cont and W_hh; x and W_xh each for the gradient of the other, as x_static and W_xh_static;
    and h, which forward saves. If only W_ho and b_o learn, it reads o and h alone.
    Raises: LayerParamError for num_output 0; ShapeError for shapes that do not fit, no time step, or if x or x_static
    have other sizes than at set-up.
    Source: BVLC/caffe, src/caffe/layers/recurrent_layer.cpp and rnn_layer.cpp; there T may not change.
    """

    def setup(self, bottom_shapes: Shapes) -> None:
        super().setup(bottom_shapes)
        p = self.param.recurrent_param
        self.add_param((self.dim, self.dim), p.weight_filler)
        self.add_param((self.dim,), p.bias_filler)

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        super().declare(bottom_shapes, top_shapes, ops)
        self.scratch("dout", top_shapes[0], lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        bottoms, params = self._gate_needs(propagate_down, param_propagate)
        if any(propagate_down) or any(param_propagate[: self.hidden + 1]):
            bottoms |= {1}
            params |= {self.hidden, self.hidden + 1}
        return Needs(bottoms=frozenset(bottoms), tops=frozenset({0}), params=frozenset(params))

    def forward(self, io: Pass) -> None:
        add = self._input_products(io)
        (first,), (last,) = self._ends(io)
        h, weight, top = io.scratch["gates"], io.param[self.hidden], io.top[0]
        io.ops.rnn.forward(h, add, weight, io.bottom[1], first, last, io.scratch["hidden"])
        size = (self.n, self.dim, self.dim, False)
        io.ops.inner_product.forward(h, io.param[self.hidden + 1], None, top, *size)
        io.ops.bias_tanh(top, io.param[self.hidden + 2])

    def backward(self, io: Pass) -> None:
        ops, h, diff, out = io.ops, io.scratch["gates"], io.param_diff, self.hidden + 1
        if io.top_diff[0] is None:
            self._no_gradient(io, range(len(diff)))
            return
        dout, dh, size = io.scratch["dout"], io.scratch["dgates"], (self.n, self.dim, self.dim, False)
        ops.tanh.backward(io.top[0], io.top_diff[0], dout)
        if diff[out] is not None:
            ops.inner_product.backward_weight(h, dout, diff[out], *size, io.accumulate[out])
        if diff[out + 1] is not None:
            ops.inner_product.backward_bias(dout, diff[out + 1], self.n, self.dim, io.accumulate[out + 1])
        if any(d is not None for d in (*io.bottom_diff, *diff[:out])):
            ops.inner_product.backward_data(dout, io.param[out], dh, *size, False)
            ops.rnn.backward(h, io.bottom[1], io.param[self.hidden], dh, io.scratch["back"])
            self._from_gates(io)
        self._no_gradient_of_states(io)


@register_layer("LSTM")
class LSTMLayer(RecurrentLayer):
    """(i, f, o, g) = W_hc (cont_t h_(t-1)) + W_xc x_t + b_c [+ W_xc_static x_static], D values each,
    c_t = cont_t sigmoid(f) c_(t-1) + sigmoid(i) tanh(g), h_t = sigmoid(o) tanh(c_t).

    Bottoms and tops: as RecurrentLayer says; the output is h, the states are h and c.
    Parameters: W_xc (4D, I), b_c (4D), [W_xc_static (4D, S)], W_hc (4D, D).
    Backward reads cont and W_hc; x and W_xc each for the gradient of the other, as x_static and W_xc_static; and the
    gates and states, which forward saves.
    Raises: as RNN.
    Source: BVLC/caffe, src/caffe/layers/recurrent_layer.cpp, lstm_layer.cpp and lstm_unit_layer.cpp; there T may not
    change, and the gradient of f on the CPU is the derivative only if cont is 0 or 1; here it always is.
    """

    states = ("h", "c")
    gates = 4
    limit = 0.0  # of the gradients of the gates; 0: none

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        super().declare(bottom_shapes, top_shapes, ops)
        if self.context.needs_backward:
            self.scratch("cells", top_shapes[0])
        self.scratch("carry", (self.items, self.dim), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        bottoms, params = self._gate_needs(propagate_down, param_propagate)
        return Needs(bottoms=frozenset(bottoms | {1}), params=frozenset(params | {self.hidden}))

    def forward(self, io: Pass) -> None:
        add = self._input_products(io)
        first, last = (LstmState(*ends) for ends in self._ends(io))
        own, kept = io.scratch, LstmState(io.scratch["hidden"], io.scratch.get("cells"))
        arrays = own["gates"], add, io.param[self.hidden], self._cont(io)
        io.ops.lstm.forward(*arrays, first, io.top[0], last, kept)

    def backward(self, io: Pass) -> None:
        if io.top_diff[0] is None:
            self._no_gradient(io, range(len(io.param_diff)))
            return
        own = io.scratch
        arrays = (own["gates"], own["cells"], self._cont(io), io.param[self.hidden], io.top_diff[0])
        io.ops.lstm.backward(*arrays, own["dgates"], LstmState(own["back"], own["carry"]), self.limit)
        self._from_gates(io)
        self._no_gradient_of_states(io)

    def _cont(self, io: Pass) -> AnyArray:
        """Return where sequences go on, T x N numbers."""
        return io.bottom[1]


@register_layer("Lstm")
class SequenceLSTMLayer(LSTMLayer):
    """(i, f, o, g) = W_h h_(t-1) + W_x x_t + b, D values each, c_t = sigmoid(f) c_(t-1) + sigmoid(i) tanh(g),
    h_t = sigmoid(o) tanh(c_t), as LSTM, but from zero states in every forward and without a bottom that says so.

    Bottom 0: x, (T, N, ...). Bottom 1, if given: cont (T, N), by which h_(t-1) and c_(t-1) are multiplied; then a
    forward begins with the last states of the one before, as in LSTM. Top 0: h, (T, N, D). D is lstm_param.num_output.
    Parameters: W_x (4D, I), W_h (4D, D), b (4D): LSTM's in another order.
    Backward reads W_h and cont; x and W_x each for the gradient of the other; and the gates and states, which forward
    saves. With clipping_threshold gradients of i, f, o, g are cut to it, at every step, before they go on.
    Raises: LayerParamError for num_output 0, or a batch_size that is not N; else as LSTM.
    Source: tianzhi0549/CTPN, caffe/src/caffe/layers/lstm_layer.cpp, and senlinuc/caffe_ocr,
    src/caffe/layers/lstm_layer_Junhyuk.cpp, after junhyukoh/caffe-lstm, whose bottom is (T N, ...); there the gradient
    of W_h does not know of cont.
    """

    declares = replace(LSTMLayer.declares, bottoms=between(1, 2), computes_all_param_gradients=False)
    exposed, static = 0, False
    hidden, bias = 1, 2

    def check_counts(self, n_bottom: int, n_top: int) -> None:
        Layer.check_counts(self, n_bottom, n_top)
        self.carries = n_bottom == 2

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.lstm_param
        self.dim, self.limit = p.num_output, p.clipping_threshold
        if self.dim < 1:
            raise self.error("num_output is 0", fix="add lstm_param { num_output: ... } of at least 1")
        self.inputs, rows = self._width(bottom_shapes, 0, 2), self.gates * self.dim
        self.add_param((rows, self.inputs), p.weight_filler)
        self.add_param((rows, self.dim), p.weight_filler)
        self.add_param((rows,), p.bias_filler)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        tops, p = super().infer_shapes(bottom_shapes), self.param.lstm_param
        if p.HasField("batch_size") and p.batch_size != tops[0][1]:
            raise self.error(
                f"batch_size is {p.batch_size}, but bottom 0 has {tops[0][1]} items",
                fix="leave it out, and give a bottom (T, N, ...): a Reshape layer makes one of (T N, ...)",
            )
        return tops

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        super().declare(bottom_shapes, top_shapes, ops)
        if not self.carries:
            self.scratch("cont", (self.steps, self.items), lives=Lives.CALL)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        needs = super().backward_needs(propagate_down, param_propagate)
        return needs if self.carries else replace(needs, bottoms=needs.bottoms - {1})

    def forward(self, io: Pass) -> None:
        if not self.carries:
            for name in self.states:
                io.ops.fill(io.scratch[name], 0)
        super().forward(io)

    def _cont(self, io: Pass) -> AnyArray:
        if self.carries:
            return super()._cont(io)
        cont = io.scratch["cont"]
        io.ops.fill(cont, 1)
        io.ops.fill(cont[0], 0)
        return cont


@register_layer("LSTMUnit")
class LSTMUnitLayer(Layer):
    """One LSTM step: c = cont sigmoid(f) c_prev + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c).

    Bottom 0: c_prev (1, N, D). Bottom 1: (1, N, 4D), i, f, o, g before activation. Bottom 2: cont (1, N), no gradient.
    Tops 0 and 1: c and h, (1, N, D). Backward reads the bottoms and computes the activations again.
    Raises: ShapeError for other shapes.
    Source: BVLC/caffe, src/caffe/layers/lstm_unit_layer.cpp; if cont is neither 0 nor 1 the gradient of f is the
    derivative, as there on a GPU.
    """

    declares = Declaration(
        bottoms=exactly(3), tops=exactly(2), no_backward=frozenset({2}), ignores_force_backward=frozenset({2})
    )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = tuple(bottom_shapes[0])
        if len(shape) != 3 or shape[0] != 1:
            raise self.shape_error(f"has shape {shape}, not (1, N, D)", bottom=0, fix="give one time step, (1, N, D)")
        _, items, dim = shape
        for i, wanted in ((1, (1, items, 4 * dim)), (2, (1, items))):
            if tuple(bottom_shapes[i]) != wanted:
                raise self.shape_error(
                    f"has shape {tuple(bottom_shapes[i])}, but c_prev of shape {shape} asks for {wanted}",
                    bottom=i,
                    fix=f"give it shape {wanted}",
                )
        return [shape, shape]

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0, 1, 2}))

    def forward(self, io: Pass) -> None:
        io.ops.lstm_unit.forward(*io.bottom, *io.top)

    def backward(self, io: Pass) -> None:
        dc_prev, dx, _ = io.bottom_diff
        if dc_prev is not None or dx is not None:
            io.ops.lstm_unit.backward(*io.bottom, *io.top_diff, dc_prev, dx)
