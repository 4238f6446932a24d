"""RandVec: random numbers from which a generator begins."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Declaration, Ops, Pass, Reads, Shapes, exactly
from ..mixins import RandomLayer
from ..registry import register_layer


@register_layer("RandVec")
class RandVecLayer(RandomLayer):
    """Random numbers, uniform between lower and upper (default -1 and 1), drawn anew in every forward on the device.

    Bottoms: none. Top 0: (batch_size, dim), or (batch_size, dim, height, width) where both are given.
    Fields are those of randvec_param, or of rand_vec_param, as another fork calls it. With repeat: r (default 1) r
    forwards get the same numbers, as where a generator and a discriminator take turns.
    Values depend only on the layer's seed and the number of forwards before, and are the same on every device.
    Raises: LayerParamError for both messages, sizes of 0, or lower that is not below upper.
    Source: randvec_layer.cpp of forks for adversarial nets (one with randvec_param; one with rand_vec_param, repeat).
    There values are multiples of 1e-4.
    """

    declares = Declaration(bottoms=exactly(0), no_backward=None, backward_reads=Reads.NONE)

    def setup(self, bottom_shapes: Shapes) -> None:
        if self.param.HasField("randvec_param") and self.param.HasField("rand_vec_param"):
            raise self.error("has randvec_param and rand_vec_param", fix="keep one of them")
        p = self.param.rand_vec_param if self.param.HasField("rand_vec_param") else self.param.randvec_param
        for field in ("batch_size", "dim", "repeat"):
            if not getattr(p, field):
                raise self.error(f"{field} is 0", fix="give 1 or more")
        if not p.lower < p.upper:
            raise self.error(f"lower is {p.lower:g}, upper {p.upper:g}", fix="make lower the smaller one")
        if bool(p.height) != bool(p.width):
            raise self.error("has one of height and width", fix="give both, or none")
        self.shape = (p.batch_size, p.dim, *((p.height, p.width) if p.height else ()))
        self.lower, self.upper, self.repeat = p.lower, p.upper, p.repeat

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [self.shape]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.step_scalar("key", 3)

    def next_step_scalars(self) -> dict[str, Sequence[int]]:
        ((seed, draws, block),) = self.next_key().values()
        return {"key": (seed, draws // self.repeat, block)}

    def forward(self, io: Pass) -> None:
        io.ops.random_uniform(io.top[0], io.scratch["key"], self.lower, self.upper)
