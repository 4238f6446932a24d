"""What a model of the zoo is: its folder, the shapes that feed its training net, and a size that a test can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Model:
    """A training net under models/.

    data: shapes of what its data layers make in training, as in the prototxt (a second top of a layer may be left out:
    then it has one number per record). tiny: the same, small enough to run anywhere. item: what a batch counts.
    narrow: layers with weights whose num_output a small run lowers to a few (the largest inner products, for example).
    classes: labels are 0 .. classes - 1; None: the net has none. deep: to plan it takes long, so its memory is told
    for one batch size only. small: the prototxt of the same layers with few values, for a net that is too large to run
    anywhere.
    """

    folder: str
    data: Shapes
    tiny: Shapes
    classes: int | None = 1000
    item: str = "picture"
    narrow: tuple[str, ...] = ()
    file: str = "train_val"
    deep: bool = False
    small: Callable[[], str] | None = None

    @property
    def path(self) -> str:
        """Of the prototxt, under models/."""
        return f"{self.folder}/{self.file}.prototxt"

    @property
    def batch(self) -> int:
        return next(iter(self.data.values()))[0]

    def batch_times(self, times: int) -> Shapes:
        """`data` with a batch of so many times the size. Boxes of pictures, (1, 1, M, 8), stay as many."""
        return {top: (times * n if n == self.batch else n, *rest) for top, (n, *rest) in self.data.items()}


def image_net(folder: str, batch: int, size: int, tiny: int, **more) -> Model:
    """A net for colour pictures of size x size; `tiny` is the smallest size at which every window fits."""
    few = 1 if tiny > 100 else 2  # two where little more than one position may be left for BatchNorm
    return Model(folder, {"data": (batch, 3, size, size)}, {"data": (few, 3, tiny, tiny)}, **more)
