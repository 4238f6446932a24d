"""Random small nets: what is convolved, summed, joined and pooled in no particular order, up to twelve layers."""

from __future__ import annotations

import random

_PLAIN = ("ReLU", "LRN", "TanH", "Sigmoid", "Dropout", "PReLU", "ELU")


def data(images: int, channels: int, side: int) -> str:
    """The text of a data layer: images and their labels."""
    return (
        'layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param { '
        f"shape {{ dim: {images} dim: {channels} dim: {side} dim: {side} }} shape {{ dim: {images} }} "
        'data_filler { type: "gaussian" } data_filler { type: "constant" } } }'
    )


def layer(kind: str, bottoms: str, top: str, more: str = "") -> str:
    """The text of a layer named after its top; bottoms: names with spaces between."""
    names = " ".join(f'bottom: "{b}"' for b in bottoms.split())
    return f'layer {{ name: "{kind}_{top}" type: "{kind}" {names} top: "{top}" {more} }}'


def conv(bottom: str, top: str, outputs: int, kernel: int = 3) -> str:
    """The text of a convolution that keeps height and width."""
    fields = f"num_output: {outputs} kernel_size: {kernel} pad: {kernel // 2}"
    return layer("Convolution", bottom, top, f"convolution_param {{ {fields} }}")


def loss(bottom: str) -> str:
    """The text of a classifier's end."""
    fc = layer("InnerProduct", bottom, "fc", "inner_product_param { num_output: 10 }")
    return f"{fc}\n{layer('SoftmaxWithLoss', 'fc label', 'loss')}"


def random_net(seed: int) -> str:
    """The text of a net."""
    rng = random.Random(seed)
    side, channels = rng.choice((8, 12, 16, 28)), rng.choice((1, 3, 4))
    found = [data(rng.choice((2, 4, 7, 8, 16, 32, 64)), channels, side)]
    now, shapes = "data", {}
    for i in range(rng.randint(2, 12)):
        top, kind = f"x{i}", rng.random()
        alike = [b for b, shape in shapes.items() if shape == (channels, side) and b != now]
        as_large = [b for b, shape in shapes.items() if shape[1] == side and b != now]
        if kind < 0.1 and side >= 8:
            how = rng.choice(("MAX", "AVE"))
            found.append(layer("Pooling", now, top, f"pooling_param {{ kernel_size: 2 stride: 2 pool: {how} }}"))
            side = (side + 1) // 2
        elif kind < 0.25 and alike:
            found.append(layer("Eltwise", f"{now} {rng.choice(alike)}", top))
        elif kind < 0.35 and as_large:
            other = rng.choice(as_large)
            found.append(layer("Concat", f"{now} {other}", top))
            channels += shapes[other][0]
        elif kind < 0.6:
            found.append(layer(rng.choice(_PLAIN), now, top))
        elif kind < 0.7:
            found += [layer("BatchNorm", now, top), layer("Scale", top, top)]
        else:
            channels = rng.choice((4, 8, 16, 24))
            found.append(conv(now, top, channels, rng.choice((1, 3, 5))))
        now = top
        shapes[now] = channels, side
    return "\n".join([*found, loss(now)])


def chain_of_sums(n: int) -> str:
    """The text of a net with `n` sums, each of the two values before it: none is needed by the backward, and the last
    is reached from the first in as many ways as Fibonacci's numbers say."""
    found = [data(8, 8, 16), conv("data", "x0", 8), layer("Power", "x0", "x1", "power_param { scale: 2 }")]
    found += [layer("Eltwise", f"x{i + 1} x{i}", f"x{i + 2}") for i in range(n)]
    found.append(layer("TanH", f"x{n + 1}", "c0"))
    found += [conv(f"c{i}", f"c{i + 1}", 8) for i in range(4)]
    return "\n".join([*found, loss("c4")])
