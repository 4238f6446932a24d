"""Depthwise convolution by the names that forks gave it."""

from __future__ import annotations

from .convolution import ConvolutionLayer
from .registry import register_layer


@register_layer("DepthwiseConvolution")
@register_layer("ConvolutionDepthwise")
class DepthwiseConvolutionLayer(ConvolutionLayer):
    """Convolution with a group per channel: an output sees one channel, output o channel o * C / num_output.

    Bottoms, tops, parameters (weights (num_output, 1, kernel...), bias), fields and needs are Convolution's; `group` is
    C, written or not. Convolution with such a group is the same layer, and as fast.
    Raises: as Convolution; LayerParamError for a group other than C.
    Source: yonghenglh6/DepthwiseConvolution (which writes group) and farmingyard/caffe-mobilenet (which does not).
    """

    def groups(self) -> int:
        conv = self.param.convolution_param
        if conv.HasField("group") and conv.group != self.channels:
            raise self.error(
                f"has group {conv.group}, but a depthwise convolution has one for each of the {self.channels} channels",
                fix=f'remove group, or use type: "Convolution" with group: {conv.group}',
            )
        return self.channels
