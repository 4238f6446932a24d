"""Print how far a net's outputs are from those of its ONNX model."""

from __future__ import annotations

from collections.abc import Sequence

from ...onnx_export.check import Difference, require_onnxruntime


def show_differences(found: Sequence[Difference]) -> None:
    """Print a line for each output."""
    print(f"checked with onnxruntime {require_onnxruntime().__version__}; largest differences:")
    width = max(len("output"), *(len(d.output) for d in found))
    print(f"  {'output':{width}}  absolute  relative  on")
    for d in found:
        print(f"  {d.output:{width}}  {d.absolute:8.2e}  {d.relative:8.2e}  {d.where}")
