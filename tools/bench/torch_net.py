"""A filtered NetParameter as a PyTorch module, for comparing speed: the layer types of the image nets, nothing else.

Every layer is translated once, when the module is made, so that a forward only calls modules and can be compiled.
BatchNorm and the Scale behind it become one nn.BatchNorm2d, as a PyTorch user would write them; ReLU works in place
where the prototxt does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

SKIPPED = ("Input", "DummyData", "Split", "Accuracy")


class TorchNet(nn.Module):
    """layers: LayerParameters in order, in-place ones as in the prototxt. params: layer name -> its arrays (NumPy's, to
    be copied) or shapes (then the values are PyTorch's to choose, on the current default device).

    weights: layer name -> Parameters in Caffe's order; of a BatchNorm with Scale, under the Scale's name.
    """

    def __init__(self, layers, params):
        super().__init__()
        alias = {top: layer.bottom[0] for layer in layers if layer.type == "Split" for top in layer.top}
        self.weights: dict[str, list[nn.Parameter]] = {}
        self.steps = nn.ModuleList()
        self._wires: list[tuple[list[str], str, float, list[str]]] = []  # bottoms, top, loss weight, dead after it
        kept = [layer for layer in layers if layer.type not in SKIPPED]
        self._volumes = any(len(_shape(values[0])) == 5 for values in params.values() if len(values))
        for i, layer in enumerate(kept):
            if layer.type == "BatchNorm":
                scale = kept[i + 1] if i + 1 < len(kept) else None
                if scale is None or scale.type != "Scale" or scale.bottom[0] != layer.top[0]:
                    raise NotImplementedError(f"{layer.name}: a BatchNorm without a Scale behind it")
                module = self._norm(layer, scale, params)
            elif layer.type == "Scale":
                continue  # in the BatchNorm
            elif layer.type in TRANSLATE:
                module = TRANSLATE[layer.type](layer, params.get(layer.name, ()))
                self._keep(layer.name, module, params)
            else:
                raise NotImplementedError(f"{layer.name}: layers of type {layer.type} are not translated")
            loss = (layer.loss_weight[0] if layer.loss_weight else 1.0) if layer.type == "SoftmaxWithLoss" else 0.0
            top = (scale if layer.type == "BatchNorm" else layer).top[0]
            self.steps.append(module)
            self._wires.append(([_source(alias, b) for b in layer.bottom], top, loss, []))
        self._find_last_uses()

    def _norm(self, layer, scale, params) -> nn.Module:
        shape = params[scale.name][0]
        kind = nn.BatchNorm3d if self._volumes else nn.BatchNorm2d
        module = kind(_shape(shape)[0], eps=layer.batch_norm_param.eps)
        self._keep(scale.name, module, params)
        return module

    def _keep(self, name: str, module: nn.Module, params) -> None:
        mine = [p for p in (getattr(module, "weight", None), getattr(module, "bias", None)) if p is not None]
        given = params.get(name, ())
        if len(mine) != len(given) or any(tuple(a.shape) != _shape(b) for a, b in zip(mine, given, strict=True)):
            shapes = [tuple(a.shape) for a in mine], [_shape(b) for b in given]
            raise ValueError(f"{name}: PyTorch's parameters have shapes {shapes[0]}, ours {shapes[1]}")
        for parameter, values in zip(mine, given, strict=True):
            if hasattr(values, "dtype"):
                with torch.no_grad():
                    parameter.copy_(torch.from_numpy(values.copy()))
        if mine:
            self.weights[name] = mine

    def _find_last_uses(self) -> None:
        """A value is forgotten after its last reader: no more memory is held than by code that a user would write."""
        seen: set[str] = set()
        for bottoms, _, _, dead in reversed(self._wires):
            dead += [b for b in dict.fromkeys(bottoms) if b not in seen]
            seen.update(bottoms)

    def forward(self, data, label):
        """The weighted sum of all losses."""
        blobs = {"data": data, "label": label}
        total = 0.0
        for step, (bottoms, top, loss, dead) in zip(self.steps, self._wires, strict=True):
            value = step(*[blobs[b] for b in bottoms])
            for b in dead:
                del blobs[b]
            blobs[top] = value
            if loss:
                total = total + loss * value
        return total


class VisionTransformer(nn.Module):
    """The ViT of the package transformers that has the sizes of ours, without DropPath, which it lacks.

    layers, params: as of `TorchNet`; values are PyTorch's to choose.
    """

    def __init__(self, layers, params):
        from transformers import ViTConfig, ViTForImageClassification

        super().__init__()
        attention = [layer for layer in layers if layer.type == "Attention"]
        [patches] = [layer for layer in layers if layer.type == "Convolution"]
        up = next(layers[i - 1] for i, layer in enumerate(layers) if layer.type == "GELU")
        width, _, patch, _ = _shape(params[patches.name][0])
        products = [layer for layer in layers if layer.type == "InnerProduct"]
        self.classes = products[-1].inner_product_param.num_output
        config = ViTConfig(
            hidden_size=width,
            num_hidden_layers=len(attention),
            num_attention_heads=attention[0].attention_param.heads,
            intermediate_size=up.inner_product_param.num_output,
            patch_size=patch,
            num_labels=self.classes,
        )
        self.model = ViTForImageClassification(config)
        ours = sum(math.prod(_shape(p)) for ps in params.values() for p in ps)
        theirs = sum(p.numel() for p in self.model.parameters())
        if ours != theirs:
            raise ValueError(f"our net has {ours} parameters, that of transformers {theirs}")

    def forward(self, data, label):
        """The loss."""
        return F.cross_entropy(self.model(pixel_values=data).logits, label.long())


class _Call(nn.Module):
    """A function of the bottoms."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *bottoms):
        return self.function(*bottoms)


class _ByAxes(nn.Module):
    """One module for images, another for volumes."""

    def __init__(self, flat: nn.Module, deep: nn.Module):
        super().__init__()
        self.flat, self.deep = flat, deep

    def forward(self, x):
        return self.deep(x) if x.dim() == 5 else self.flat(x)


class _Linear(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1))


def _source(alias: dict[str, str], name: str) -> str:
    while name in alias:
        name = alias[name]
    return name


def _shape(values) -> tuple[int, ...]:
    """Of an array, or the shape itself."""
    return tuple(getattr(values, "shape", values))


def _pair(message, field: str, default: int) -> tuple[int, int]:
    """(h, w) of a field that may be written once, per axis, or as _h and _w."""
    stem = "kernel" if field == "kernel_size" else field
    if message.HasField(f"{stem}_h") or message.HasField(f"{stem}_w"):
        return getattr(message, f"{stem}_h"), getattr(message, f"{stem}_w")
    value = getattr(message, field)
    if isinstance(value, int):
        return value, value
    values = list(value) or [default]
    return (values[0], values[-1])


def _each(message, field: str, default: int, n: int) -> tuple[int, ...]:
    """The values of a field along n axes."""
    values = list(getattr(message, field)) or [default]
    return tuple(values) if len(values) == n else (values[0],) * n


def _convolution(layer, params):
    c = layer.convolution_param
    out, per_group, *kernel = _shape(params[0])
    if len(kernel) == 3:
        steps = {"stride": _each(c, "stride", 1, 3), "padding": _each(c, "pad", 0, 3)}
        return nn.Conv3d(per_group * c.group, out, tuple(kernel), **steps, groups=c.group, bias=c.bias_term)
    dilation = list(c.dilation) or [1]
    return nn.Conv2d(
        per_group * c.group,
        out,
        tuple(kernel),
        stride=_pair(c, "stride", 1),
        padding=_pair(c, "pad", 0),
        dilation=(dilation[0], dilation[-1]),
        groups=c.group,
        bias=c.bias_term,
    )


def _deconvolution(layer, params):
    c = layer.convolution_param
    channels, per_group, *kernel = _shape(params[0])
    kind, n = (nn.ConvTranspose3d, 3) if len(kernel) == 3 else (nn.ConvTranspose2d, 2)
    steps = {"stride": _each(c, "stride", 1, n), "padding": _each(c, "pad", 0, n)}
    return kind(channels, per_group * c.group, tuple(kernel), **steps, groups=c.group, bias=c.bias_term)


def _inner_product(layer, params):
    out, values = _shape(params[0])
    return _Linear(values, out, bias=layer.inner_product_param.bias_term)


def _lrn(layer, params):
    p = layer.lrn_param
    if p.norm_region != p.ACROSS_CHANNELS:
        raise NotImplementedError(f"{layer.name}: LRN within channels is not translated")
    return nn.LocalResponseNorm(p.local_size, p.alpha, p.beta, p.k)


def _pooling(layer, params):
    p = layer.pooling_param
    if p.pool not in (p.MAX, p.AVE):
        raise NotImplementedError(f"{layer.name}: only maximum and average pooling are translated")
    if p.global_pooling:
        return nn.AdaptiveMaxPool2d(1) if p.pool == p.MAX else nn.AdaptiveAvgPool2d(1)
    sizes = _pair(p, "kernel_size", 0), _pair(p, "stride", 1), _pair(p, "pad", 0)
    flat = nn.MaxPool2d if p.pool == p.MAX else nn.AvgPool2d
    deep = nn.MaxPool3d if p.pool == p.MAX else nn.AvgPool3d
    ceil = p.round_mode == p.CEIL
    return _ByAxes(flat(*sizes, ceil_mode=ceil), deep(*((s[0],) * 3 for s in sizes), ceil_mode=ceil))


def _eltwise(layer, params):
    p = layer.eltwise_param
    if p.operation != p.SUM or p.coeff or len(layer.bottom) != 2:
        raise NotImplementedError(f"{layer.name}: only the sum of two blobs is translated")
    return _Call(torch.add)


def _loss(x, label):
    """Of a score per item, or per position, with labels of one channel."""
    if x.dim() > 2 and x[0, 0].numel() > 1:
        return F.cross_entropy(x, label.reshape(label.shape[0], *x.shape[2:]))
    return F.cross_entropy(x.flatten(1), label.flatten())


def _crop(layer, params):
    p = layer.crop_param
    if p.axis != 2 or len(p.offset) != 1:
        raise NotImplementedError(f"{layer.name}: only a crop of height and width by one offset is translated")
    at = p.offset[0]
    return _Call(lambda x, like: x[..., at : at + like.shape[2], at : at + like.shape[3]])


def _concat(layer, params):
    axis = layer.concat_param.axis
    return _Call(lambda *bottoms: torch.cat(bottoms, axis))


TRANSLATE = {
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "InnerProduct": _inner_product,
    "ReLU": lambda layer, params: nn.ReLU(inplace=layer.top[0] == layer.bottom[0]),
    "ReLU6": lambda layer, params: nn.ReLU6(inplace=layer.top[0] == layer.bottom[0]),
    "LRN": _lrn,
    "Pooling": _pooling,
    # not in place: the gradient of a ReLU in front of it reads its output
    "Dropout": lambda layer, params: nn.Dropout(layer.dropout_param.dropout_ratio),
    "Concat": _concat,
    "Crop": _crop,
    "Eltwise": _eltwise,
    "SoftmaxWithLoss": lambda layer, params: _Call(_loss),
}
