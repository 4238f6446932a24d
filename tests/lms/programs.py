"""Random access lists for planner tests: straight nets, branches, host steps, weights, dead values, updates."""

from __future__ import annotations

from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step, merge_accesses

from ..seeds import seeded


def random_program(seed: int) -> tuple[Program, dict[int, Buffer]]:
    """A legal program (nobody reads a value that nobody made, except live-in ones) over 2 to 12 buffers."""
    rng = seeded(seed)
    n = rng.randint(2, 12)
    buffers = {i: Buffer(i, f"b{i}.data", 512 * rng.randint(1, 8)) for i in range(n)}
    live_in = {b for b in buffers if rng.random() < 0.4}
    defined, steps = set(live_in), []
    for s in range(rng.randint(1, 24)):
        host = rng.random() < 0.12
        accesses = []
        for b in rng.sample(sorted(buffers), rng.randint(1, min(4, n))):
            modes = [Mode.OVERWRITE] if b not in defined else list(Mode)
            accesses.append(Access(b, rng.choice(modes)))
            defined.add(b)
        steps.append(Step(f"s{s}", merge_accesses(accesses), host))
    live_out = frozenset(b for b in defined if rng.random() < 0.5)
    return Program(f"random {seed}", tuple(steps), live_out), buffers


def net_program(seed: int) -> tuple[Program, dict[int, Buffer]]:
    """Forward and backward of a random residual chain with weights, gradients and updates."""
    rng = seeded(seed)
    depth = rng.randint(2, 9)
    buffers: dict[int, Buffer] = {}

    def new(name: str) -> int:
        buffers[len(buffers)] = Buffer(len(buffers), name, 512 * rng.randint(1, 9))
        return len(buffers) - 1

    data = [new(f"x{i}.data") for i in range(depth + 1)]
    diff = [new(f"x{i}.diff") for i in range(depth + 1)]
    weight = [new(f"w{i}.data") for i in range(depth)]
    gradient = [new(f"w{i}.diff") for i in range(depth)]
    read, update, overwrite = Mode.READ, Mode.UPDATE, Mode.OVERWRITE
    skip = {i: rng.randrange(i) for i in range(2, depth) if rng.random() < 0.5}
    steps = [Step("data", (Access(data[0], overwrite),), host=True)]
    for i in range(depth):
        parts = [Access(data[i], read), Access(weight[i], read), Access(data[i + 1], overwrite)]
        if i in skip:
            parts.append(Access(data[skip[i]], read))
        steps.append(Step(f"forward:{i}", merge_accesses(parts)))
    steps.append(Step("loss", (Access(data[depth], read), Access(diff[depth], overwrite))))
    for i in reversed(range(depth)):
        parts = [Access(data[i], read), Access(diff[i + 1], read), Access(weight[i], read)]
        parts += [Access(diff[i], overwrite), Access(gradient[i], overwrite)]
        steps.append(Step(f"backward:{i}", merge_accesses(parts)))
    for i in range(depth):
        steps.append(Step(f"update:{i}", (Access(weight[i], update), Access(gradient[i], update))))
    return Program(f"net {seed}", tuple(steps), frozenset(weight + gradient)), buffers
