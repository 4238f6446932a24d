"""Mutants of valid plans: how many does the verifier refuse, and is every survivor harmless?

    python tools/fuzz/plan_mutants.py [--count N] [--seed S] [--orders K]

Plans of small nets under several settings are changed in one place: in their operations (`lms/plan/plan.py`), or in the
text of their files. What the verifier, or the reader of files, does not refuse is trained with on the simulated device
under several orders of its streams, and must give the bits of training without Large Model Support. A mutant is
replayed by its number: it is made from (seed, number) alone. Exit code 1: a survivor changed bits or failed, or a
refusal was no PlanError.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest  # noqa: E402

from pycaffe_lms.backend.sim.device import SimDevice  # noqa: E402
from pycaffe_lms.errors import OutOfDeviceMemory, PlanError  # noqa: E402
from pycaffe_lms.lms.plan.plan import Op, OpKind, Plan  # noqa: E402
from pycaffe_lms.lms.plan.verify import verify  # noqa: E402
from pycaffe_lms.lms.planner import choose  # noqa: E402
from pycaffe_lms.lms.planner.host_slots import with_host_slots  # noqa: E402
from pycaffe_lms.lms.runtime.runtime import Runtime  # noqa: E402
from pycaffe_lms.memory.host import SEGMENT  # noqa: E402
from tests.lms import plan_files  # noqa: E402
from tests.lms.nets import NETS, make_solver, train  # noqa: E402
from tests.lms.test_copy_reordering_nets import cut_at_random  # noqa: E402

KINDS = ("auto", "slow link", "demand", "ahead", "pages", "parts")
ITERATIONS = 3  # so that values that a run leaves for the next are used, and recorded iterations run
UNIT = 512
LATE = "takes more memory than there is"


# -- the plans that are changed --------------------------------------------------------------------------------------
@functools.cache
def original(net: str, kind: str) -> Plan:
    """A valid plan. kind: one of KINDS; "parts": copies are made in pieces."""
    return _asked(net, kind)[0]


@functools.cache
def _asked(net: str, kind: str):
    if kind != "parts":
        return plan_files.planned(net, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "with_copies_reordered", cut_at_random)
        return plan_files.planned.__wrapped__(net, "auto")


@functools.cache
def text_of(net: str, kind: str) -> str:
    """The plan's file."""
    return plan_files.plan_text(net, [plan_files.program_message(original(net, kind))])


def read(text: str, net: str, kind: str) -> Plan:
    """The plan of an edited file, as training would read it. Raises PlanError."""
    page = plan_files.PAGE if kind == "pages" else None
    entry = plan_files.parse_plan(text, "edited.plan").get("train")
    if entry is None:
        raise PlanError("no plan of this program")
    plan = with_host_slots(plan_files.plan_from(entry, *_asked(net, kind)[1], page), SEGMENT)
    verify(plan)
    return plan


# -- changes of operations -------------------------------------------------------------------------------------------
def _with(plan: Plan, i: int, **fields) -> Plan:
    return dataclasses.replace(
        plan, ops=(*plan.ops[:i], dataclasses.replace(plan.ops[i], **fields), *plan.ops[i + 1 :])
    )


def _reordered(plan: Plan, order: list[int]) -> Plan:
    """Operations in another order, or some of them, with the numbers that follow from it."""
    number = {old: new for new, old in enumerate(order)}
    made = []
    for new, old in enumerate(order):
        op = plan.ops[old]
        made.append(dataclasses.replace(op, id=new, waits=tuple(number[w] for w in op.waits if w in number)))
    return dataclasses.replace(plan, ops=tuple(made))


def _one(rng: random.Random, plan: Plan, wanted: Callable[[Op], object]) -> int | None:
    found = [op.id for op in plan.ops if wanted(op)]
    return rng.choice(found) if found else None


def _shift(rng: random.Random) -> int:
    return rng.choice((-1, 1)) * rng.choice((1, 4, 256, UNIT, UNIT, 2 * UNIT, 8 * UNIT, 1 << 20))


def _wait_dropped(plan, rng):
    if (i := _one(rng, plan, lambda op: op.waits)) is not None:
        left = list(plan.ops[i].waits)
        left.remove(rng.choice(left))
        return _with(plan, i, waits=tuple(left))
    return None


def _wait_moved(plan, rng):
    if (i := _one(rng, plan, lambda op: op.waits)) is not None:
        waits = list(plan.ops[i].waits)
        waits[rng.randrange(len(waits))] += rng.choice((-3, -2, -1, 1, 2, 3))
        return _with(plan, i, waits=tuple(waits))
    return None


def _wait_added(plan, rng):
    i = rng.randrange(len(plan.ops))
    return _with(plan, i, waits=(*plan.ops[i].waits, rng.randrange(len(plan.ops))))


def _operation_lost(plan, rng):
    i = rng.randrange(len(plan.ops))
    return _reordered(plan, [op.id for op in plan.ops if op.id != i])


def _copy_lost(plan, rng):
    if (i := _one(rng, plan, lambda op: op.kind in (OpKind.IN, OpKind.OUT))) is not None:
        return _reordered(plan, [op.id for op in plan.ops if op.id != i])
    return None


def _operation_twice(plan, rng):
    i = rng.randrange(len(plan.ops))
    twice = [dataclasses.replace(plan.ops[k], id=n) for n, k in enumerate((*range(i + 1), *range(i, len(plan.ops))))]
    return dataclasses.replace(
        plan, ops=tuple(dataclasses.replace(op, waits=tuple(w + (w > i) for w in op.waits)) for op in twice)
    )


def _moved(plan, rng, i):
    order = [op.id for op in plan.ops if op.id != i]
    order.insert(min(max(0, i + rng.choice((-1, 1)) * rng.choice((1, 1, 2, 3, 5, 8, 20))), len(order)), i)
    return _reordered(plan, order)


def _operation_moved(plan, rng):
    return _moved(plan, rng, rng.randrange(len(plan.ops)))


def _copy_moved(plan, rng):
    i = _one(rng, plan, lambda op: op.kind in (OpKind.IN, OpKind.OUT))
    return None if i is None else _moved(plan, rng, i)


def _copy_shifted(plan, rng):
    if (i := _one(rng, plan, lambda op: op.place)) is not None:
        place = plan.ops[i].place
        return _with(plan, i, place=dataclasses.replace(place, offset=place.offset + _shift(rng)))
    return None


def _copy_of_another(plan, rng):
    if (i := _one(rng, plan, lambda op: op.place)) is not None:
        return _with(plan, i, place=dataclasses.replace(plan.ops[i].place, buffer=rng.choice(sorted(plan.buffers))))
    return None


def _birth(plan, rng, change):
    if (i := _one(rng, plan, lambda op: op.births)) is not None:
        births = list(plan.ops[i].births)
        change(births, rng.randrange(len(births)))
        return _with(plan, i, births=tuple(births))
    return None


def _birth_shifted(plan, rng):
    def change(births, k):
        births[k] = dataclasses.replace(births[k], offset=births[k].offset + _shift(rng))

    return _birth(plan, rng, change)


def _birth_lost(plan, rng):
    return _birth(plan, rng, lambda births, k: births.pop(k))


def _birth_of_another(plan, rng):
    def change(births, k):
        births[k] = dataclasses.replace(births[k], buffer=rng.choice(sorted(plan.buffers)))

    return _birth(plan, rng, change)


def _stay_shifted(plan, rng):
    """Every place of one buffer at one offset lies elsewhere: right where nobody else is there."""
    b = rng.choice(sorted(plan.buffers))
    offsets = {p.offset for op in plan.ops for p in (*op.births, *((op.place,) if op.place else ())) if p.buffer == b}
    if not offsets:
        return None
    old, by = rng.choice(sorted(offsets)), _shift(rng)

    def moved(place):
        same = place is not None and place.buffer == b and place.offset == old
        return dataclasses.replace(place, offset=old + by) if same else place

    ops = (dataclasses.replace(op, place=moved(op.place), births=tuple(map(moved, op.births))) for op in plan.ops)
    return dataclasses.replace(plan, ops=tuple(ops))


def _end_lost(plan, rng):
    if (i := _one(rng, plan, lambda op: op.frees or op.drops)) is not None:
        which = rng.choice([name for name in ("frees", "drops") if getattr(plan.ops[i], name)])
        left = list(getattr(plan.ops[i], which))
        left.pop(rng.randrange(len(left)))
        return _with(plan, i, **{which: tuple(left)})
    return None


def _end_otherwise(plan, rng):
    """Given back instead of dropped, or the other way."""
    if (i := _one(rng, plan, lambda op: op.frees or op.drops)) is not None:
        frees, drops = plan.ops[i].frees, plan.ops[i].drops
        b = rng.choice((*frees, *drops))
        if b in frees:
            return _with(plan, i, frees=tuple(x for x in frees if x != b), drops=(*drops, b))
        return _with(plan, i, frees=(*frees, b), drops=tuple(x for x in drops if x != b))
    return None


def _end_elsewhere(plan, rng):
    """Given back, or dropped, by another step."""
    i, j = (_one(rng, plan, lambda op: op.kind is OpKind.COMPUTE) for _ in range(2))
    which = rng.choice(("frees", "drops"))
    mine = list(getattr(plan.ops[i], which))
    b = mine.pop(rng.randrange(len(mine))) if mine else rng.choice(sorted(plan.buffers))
    plan = _with(plan, i, **{which: tuple(mine)})
    return _with(plan, j, **{which: (*getattr(plan.ops[j], which), b)})


def _release_otherwise(plan, rng):
    i = _one(rng, plan, lambda op: op.kind is OpKind.OUT)
    return None if i is None else _with(plan, i, release=not plan.ops[i].release)


def _handover_otherwise(plan, rng):
    if (i := _one(rng, plan, lambda op: op.inplace_reuses)) is None:
        i = _one(rng, plan, lambda op: op.births and op.drops)
        if i is None:
            return None
        pair = rng.choice(plan.ops[i].drops), rng.choice(plan.ops[i].births).buffer
        return _with(plan, i, inplace_reuses=(pair,))
    pairs = list(plan.ops[i].inplace_reuses)
    old, new = pairs.pop(rng.randrange(len(pairs)))
    if rng.random() < 0.5:
        pairs.append(rng.choice(((new, old), (rng.choice(sorted(plan.buffers)), new))))
    return _with(plan, i, inplace_reuses=tuple(pairs))


def _home_otherwise(plan, rng):
    if (i := _one(rng, plan, lambda op: op.host_slot)) is None:
        return None
    home = plan.ops[i].host_slot
    made = rng.choice(
        (
            None,
            dataclasses.replace(home, last=not home.last),
            dataclasses.replace(home, offset=home.offset + _shift(rng)),
            dataclasses.replace(home, segment=home.segment + rng.choice((-1, 1))),
        )
    )
    return _with(plan, i, host_slot=made)


def _part_otherwise(plan, rng):
    i = _one(rng, plan, lambda op: op.part)
    if i is None:
        i = _one(rng, plan, lambda op: op.place)
        if i is None:
            return None
        return _with(plan, i, part=(0, rng.choice((UNIT, plan.stored(plan.ops[i])))))
    start, size = plan.ops[i].part
    parts = (None, (start + _shift(rng), size), (start, size + _shift(rng)), (0, size))
    return _with(plan, i, part=rng.choice(parts))


def _part_lost(plan, rng):
    i = _one(rng, plan, lambda op: op.part)
    return None if i is None else _reordered(plan, [op.id for op in plan.ops if op.id != i])


def _stream_otherwise(plan, rng):
    i = rng.randrange(len(plan.ops))
    return _with(plan, i, stream=rng.choice([s for s in range(4) if s != plan.ops[i].stream]))


def _kind_otherwise(plan, rng):
    i = _one(rng, plan, lambda op: op.kind in (OpKind.IN, OpKind.OUT))
    if i is None:
        return None
    kind = OpKind.OUT if plan.ops[i].kind is OpKind.IN else OpKind.IN
    return _with(plan, i, kind=kind, stream=3 - plan.ops[i].stream)


def _step_otherwise(plan, rng):
    i = rng.randrange(len(plan.ops))
    return _with(plan, i, step=rng.choice((-1, len(plan.program.steps), plan.ops[i].step + rng.choice((-1, 1)))))


def _totals_otherwise(plan, rng):
    which = rng.choice(("arena_bytes", "held_bytes"))
    return dataclasses.replace(plan, **{which: getattr(plan, which) + _shift(rng)})


def _homes_otherwise(plan, rng):
    if not plan.host_segments:
        return None
    k = rng.randrange(len(plan.host_segments))
    return dataclasses.replace(
        plan, host_segments=(*plan.host_segments[:k], plan.host_segments[k] + _shift(rng), *plan.host_segments[k + 1 :])
    )


def _pages_otherwise(plan, rng):
    if plan.paging is None or not plan.paging.pages:
        return None
    paging, all_pages = plan.paging, dict(plan.paging.pages)
    o = rng.choice(sorted(all_pages))
    pages = list(all_pages.pop(o))
    what, k = rng.randrange(4), rng.randrange(len(pages))
    if what == 0:
        pages[k] = rng.randrange(-1, paging.count + 1)
    elif what == 1:
        pages.pop(k)
    elif what == 2:
        o += rng.choice((-1, 1)) * rng.choice((UNIT, paging.page))
    else:
        pages.append(rng.randrange(paging.count))
    if rng.random() < 0.2:
        paging = dataclasses.replace(paging, count=paging.count + rng.choice((-1, 1)))
    return dataclasses.replace(plan, paging=dataclasses.replace(paging, pages=all_pages | {o: tuple(pages)}))


CHANGES = (
    _wait_dropped,
    _wait_moved,
    _wait_added,
    _operation_lost,
    _copy_lost,
    _operation_twice,
    _operation_moved,
    _copy_moved,
    _copy_shifted,
    _copy_of_another,
    _birth_shifted,
    _birth_lost,
    _birth_of_another,
    _stay_shifted,
    _end_lost,
    _end_otherwise,
    _end_elsewhere,
    _release_otherwise,
    _handover_otherwise,
    _home_otherwise,
    _part_otherwise,
    _part_lost,
    _stream_otherwise,
    _kind_otherwise,
    _step_otherwise,
    _totals_otherwise,
    _homes_otherwise,
    _pages_otherwise,
)


# -- changes of the text ---------------------------------------------------------------------------------------------
def _line_lost(lines, rng):
    lines.pop(rng.randrange(len(lines)))


def _line_twice(lines, rng):
    i = rng.randrange(len(lines))
    lines.insert(rng.choice((i, rng.randrange(len(lines)))), lines[i])


def _line_moved(lines, rng):
    line = lines.pop(rng.randrange(len(lines)))
    lines.insert(rng.randrange(len(lines) + 1), line)


def _number_otherwise(lines, rng):
    i = rng.choice([i for i, line in enumerate(lines) if re.search(r": \d+", line)])
    at = rng.choice(list(re.finditer(r": (\d+)", lines[i])))
    old = int(at[1])
    new = rng.choice((old - 1, old + 1, old + _shift(rng), old * 2, 0, -1, 1 << 31, 1 << 63, rng.randrange(1000)))
    lines[i] = f"{lines[i][: at.start(1)]}{new}{lines[i][at.end(1) :]}"


def _field_lost(lines, rng):
    i = rng.choice([i for i, line in enumerate(lines) if re.search(r"\w+: \S+", line)])
    at = rng.choice(list(re.finditer(r"\w+: \S+", lines[i])))
    lines[i] = lines[i][: at.start()] + lines[i][at.end() :]


def _name_otherwise(lines, rng):
    names = re.findall(r'"([^"]*)"', "\n".join(lines))
    i = rng.choice([i for i, line in enumerate(lines) if '"' in line])
    lines[i] = re.sub(r'"[^"]*"', f'"{rng.choice(names)}"', lines[i], count=1)


def _value_of_another(lines, rng):
    """A field with what the same field says elsewhere."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for i, line in enumerate(lines):
        for at in re.finditer(r"(\w+): (\d+|true|false)", line):
            found.setdefault(at[1], []).append((i, at.start(2), at.end(2)))
    several = [name for name in sorted(found) if len(found[name]) > 1]
    (i, a, b), (j, c, d) = rng.sample(found[rng.choice(several)], 2)
    lines[i] = lines[i][:a] + lines[j][c:d] + lines[i][b:]


def _character(lines, rng):
    i = rng.randrange(len(lines))
    at, c = rng.randrange(len(lines[i]) + 1), rng.choice('0123456789{}:"# \x00\\az-')
    lines[i] = lines[i][:at] + c + lines[i][at + rng.randrange(2) :]


TEXT_CHANGES = (
    _line_lost,
    _line_twice,
    _line_moved,
    _number_otherwise,
    _number_otherwise,
    _field_lost,
    _name_otherwise,
    _value_of_another,
    _value_of_another,
    _character,
)


# -- what becomes of a mutant ----------------------------------------------------------------------------------------
@dataclasses.dataclass
class Mutant:
    """net, kind: of the plan that was changed. how: by which change. plan: what came of it; None: it was refused.
    failure: a refusal that is no PlanError."""

    net: str
    kind: str
    how: str
    plan: Plan | None = None
    failure: str = ""


def mutant(seed: int, number: int) -> Mutant:
    """The mutant of that number, and whether it was refused."""
    rng = random.Random(f"{seed} {number}")
    net, kind, text = rng.choice(sorted(NETS)), rng.choice(KINDS), rng.random() < 0.15
    plan = original(net, kind)
    found = Mutant(net, kind, "")
    try:
        if text:
            change = rng.choice(TEXT_CHANGES)
            found.how = f"text: {change.__name__[1:].replace('_', ' ')}"
            lines = text_of(net, kind).splitlines()
            change(lines, rng)
            found.plan = read("\n".join(lines), net, kind)
            return found
        made = None
        while made is None:
            change = rng.choice(CHANGES)
            made = change(plan, rng)
        found.how = change.__name__[1:].replace("_", " ")
        verify(made)
        found.plan = made
    except PlanError:
        pass
    except Exception:
        found.failure = traceback.format_exc()
    return found


def same(made: Plan, plan: Plan) -> bool:
    """Whether a proved plan does what `plan` does: it may wait for more, which only forbids some orders, and say
    another step of a copy, which is for messages and charts. What else is not compared is only said of plans."""
    names = ("program", "arena_bytes", "order", "host_segments", "paging")
    if len(made.ops) != len(plan.ops) or any(getattr(made, name) != getattr(plan, name) for name in names):
        return False
    for new, old in zip(made.ops, plan.ops, strict=True):
        said = {"step": old.step} if old.kind in (OpKind.IN, OpKind.OUT) else {}
        if dataclasses.replace(new, waits=old.waits, **said) != old or not set(new.waits) >= set(old.waits):
            return False
    return True


@functools.cache
def _without(net: str):
    return train(make_solver(net, SimDevice(64 << 20)), ITERATIONS)


def trains_alike(found: Mutant, order: str, seed: int) -> bool:
    """Whether training by a mutant's plan gives the bits of training without Large Model Support."""
    steps = _asked(found.net, found.kind)[1][0].steps

    def plan(self, request):
        if request.program.steps != steps:  # gradients in one step in place of two, or the other way
            raise OutOfDeviceMemory("another program is planned", needed=0, free=0)
        return found.plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "plan", plan)
        kind = "auto" if found.kind == "parts" else found.kind
        device = SimDevice(64 << 20, order=order, seed=seed)
        if kind == "pages":
            device.page = plan_files.PAGE
        return train(make_solver(found.net, device, plan_files.lms_of(found.net, kind)), ITERATIONS) == _without(
            found.net
        )


@dataclasses.dataclass
class Tally:
    """made, survived, same, late: by change; late: refused when training asked for the memory that the plan says it
    takes. harmful: what is wrong, in words, by number."""

    late: Counter = dataclasses.field(default_factory=Counter)
    made: Counter = dataclasses.field(default_factory=Counter)
    survived: Counter = dataclasses.field(default_factory=Counter)
    same: Counter = dataclasses.field(default_factory=Counter)
    harmful: dict[int, str] = dataclasses.field(default_factory=dict)
    known: dict[int, str] = dataclasses.field(default_factory=dict)  # what became of plans that were run

    def text(self) -> str:
        """The table, by change, and its sums."""
        lines = [f"{'change':28} {'made':>8} {'refused':>8} {'too large':>10} {'same plan':>10} {'harmless':>9}"]
        counters = self.made, self.survived, self.late, self.same
        for how in (*sorted(self.made), "all"):
            made, survived, late, same = (sum(c.values()) if how == "all" else c[how] for c in counters)
            share, rest = (made - survived) / made, survived - late - same
            lines.append(f"{how:28} {made:8} {share:8.2%} {late:10} {same:10} {rest:9}")
        return "\n".join(lines)


def survey(
    tally: Tally, seed: int, numbers: range, orders: int, say: Callable[[str], None] = lambda text: None
) -> None:
    """Make mutants, train with those that survive in so many random orders, and count what becomes of them."""
    known = tally.known
    for number in numbers:
        found = mutant(seed, number)
        tally.made[found.how] += 1
        if found.failure:
            tally.harmful[number] = found.failure
            say(f"mutant {number} of seed {seed} ({found.how}, {found.net}, {found.kind}): {found.failure}")
        if found.plan is None:
            continue
        tally.survived[found.how] += 1
        if same(found.plan, original(found.net, found.kind)):
            tally.same[found.how] += 1
            continue
        plan = found.plan
        key = hash(
            (found.net, found.kind, plan.ops, plan.arena_bytes, plan.host_segments, plan.order, str(plan.paging))
        )
        if key not in known:
            known[key] = _harm(found, [("random", number + k) for k in range(orders)])
        if known[key] == LATE:
            tally.late[found.how] += 1
        elif known[key]:
            tally.harmful[number] = known[key]
            say(f"mutant {number} of seed {seed} ({found.how}, {found.net}, {found.kind}): {known[key]}")


def _harm(found: Mutant, orders: list[tuple[str, int]]) -> str:
    for order, seed in orders:
        try:
            if not trains_alike(found, order, seed):
                return f"other bits in order {order} {seed}"
        except OutOfDeviceMemory as error:
            return LATE if error.needed else str(error)
        except Exception:
            return f"order {order} {seed}: {traceback.format_exc()}"
    return ""


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--orders", type=int, default=2, help="random orders in which survivors run")
    args = parser.parse_args()
    tally = Tally()
    for first in range(args.first, args.first + args.count, 1000):
        survey(tally, args.seed, range(first, min(first + 1000, args.first + args.count)), args.orders, print)
        print(
            f"# {sum(tally.made.values())} made, {sum(tally.survived.values())} survived, {len(tally.harmful)} harmful",
            flush=True,
        )
    print(tally.text())
    return 1 if tally.harmful else 0


if __name__ == "__main__":
    sys.exit(main())
