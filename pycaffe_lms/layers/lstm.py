"""LSTM, and one LSTM step as a layer of its own."""

from __future__ import annotations

from .base import Layer, Lives, Needs, exactly
from .recurrent import RecurrentLayer
from .registry import register_layer


@register_layer("LSTM")
class LSTMLayer(RecurrentLayer):
    """(i, f, o, g) = W_hc (cont_t h_(t-1)) + W_xc x_t + b_c [+ W_xc_static x_static], D values each,
    c_t = cont_t sigmoid(f) c_(t-1) + sigmoid(i) tanh(g), h_t = sigmoid(o) tanh(c_t).

    Bottoms and tops as RecurrentLayer says; the output is h, the states are h and c.
    Parameters: W_xc (4D, I), b_c (4D), [W_xc_static (4D, S)], W_hc (4D, D).
    Backward reads cont and W_hc, and of x and W_xc (x_static and W_xc_static) what the other's gradient needs; gates
    and states are kept.
    Raises: as RNN.
    Source: BVLC/caffe, src/caffe/layers/recurrent_layer.cpp, lstm_layer.cpp and lstm_unit_layer.cpp; there T may not
    change, and where cont is neither 0 nor 1 the CPU's gradient of f is not the derivative, which ours is.
    """

    states = ("h", "c")
    gates = 4

    def declare(self, bottom_shapes, top_shapes, ops):
        super().declare(bottom_shapes, top_shapes, ops)
        if self.needs_backward:
            self.scratch("cells", top_shapes[0])
        self.scratch("carry", (self.items, self.dim), lives=Lives.CALL, forward=False)

    def backward_needs(self, propagate_down, param_propagate):
        bottoms, params = self._gate_needs(propagate_down, param_propagate)
        return Needs(bottoms=frozenset(bottoms | {1}), params=frozenset(params | {self.hidden}))

    def forward(self, io):
        add = self._inputs_share(io)
        (h0, c0), (h_last, c_last) = self._ends(io)
        own, cont = io.scratch, io.bottom[1]
        arrays = (own["gates"], add, io.param[self.hidden], cont, h0, c0, io.top[0], h_last, c_last)
        io.ops.lstm_forward(*arrays, own["hidden"], own.get("cells"))

    def backward(self, io):
        if io.top_diff[0] is None:
            self._no_gradient(io, range(len(io.param_diff)))
            return
        own = io.scratch
        arrays = (own["gates"], own["cells"], io.bottom[1], io.param[self.hidden], io.top_diff[0])
        io.ops.lstm_backward(*arrays, own["dgates"], own["back"], own["carry"])
        self._from_gates(io)
        self._no_gradient_of_states(io)


@register_layer("LSTMUnit")
class LSTMUnitLayer(Layer):
    """One LSTM step: c = cont sigmoid(f) c_prev + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c).

    Bottom 0: c_prev (1, N, D). Bottom 1: (1, N, 4D), i, f, o, g before activation. Bottom 2: cont (1, N), no gradient.
    Tops 0 and 1: c and h, (1, N, D). Backward reads the bottoms and makes the activations again.
    Raises: ShapeError for other shapes.
    Source: BVLC/caffe, src/caffe/layers/lstm_unit_layer.cpp; where cont is neither 0 nor 1 the gradient of f is the
    derivative, as on the GPU there.
    """

    bottoms, tops = exactly(3), exactly(2)
    no_backward = not_forced = frozenset({2})

    def infer_shapes(self, bottom_shapes):
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
        self.size = items, dim
        return [shape, shape]

    def backward_needs(self, propagate_down, param_propagate):
        return Needs(bottoms=frozenset({0, 1, 2}))

    def forward(self, io):
        io.ops.lstm_unit_forward(*io.bottom, *io.top, *self.size)

    def backward(self, io):
        dc_prev, dx, _ = io.bottom_diff
        if dc_prev is not None or dx is not None:
            io.ops.lstm_unit_backward(*io.bottom, *io.top_diff, dc_prev, dx, *self.size)
