"""Run one operator of ONNX in its reference implementation, which shares no code with the layers."""

from __future__ import annotations

import numpy as np
import pytest

OPSET = 23  # the first with RMSNormalization, RotaryEmbedding and Attention


def onnx_operator(name: str, inputs: list, outputs: int, *, opset: int = OPSET, **attributes) -> list[np.ndarray]:
    """Return the outputs of one operator; an input of None is left out. Skips the test where onnx is missing."""
    helper = pytest.importorskip("onnx").helper
    from onnx.reference import ReferenceEvaluator

    given = {f"i{i}": np.asarray(a) for i, a in enumerate(inputs) if a is not None}
    names = [f"i{i}" if a is not None else "" for i, a in enumerate(inputs)]
    node = helper.make_node(name, names, [f"o{i}" for i in range(outputs)], **attributes)
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    ins = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in given.items()]
    outs = [helper.make_tensor_value_info(o, kinds["i0"], None) for o in node.output]
    model = helper.make_model(
        helper.make_graph([node], "one", ins, outs), opset_imports=[helper.make_opsetid("", opset)]
    )
    return ReferenceEvaluator(model).run(None, given)
