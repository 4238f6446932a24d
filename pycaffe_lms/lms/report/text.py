"""Write plans as text: totals (`summary`) and a table of steps (`step_table`). Pure; `page.py` writes HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import human_bytes
from ..cost.timing import PlanTimes
from ..plan.plan import Op, OpKind, Plan
from ..plan.statistics import used_bytes


def summary(plan: Plan) -> list[str]:
    """Return lines about the memory that a plan needs and the bytes that it copies."""
    managed = sum(b.nbytes for b in plan.buffers.values())
    used = used_bytes(plan)
    loss = used / plan.live_bytes - 1 if plan.live_bytes else 0.0
    unshared = human_bytes(plan.unshared_host_bytes)
    carried_over = sum(map(plan.copied, plan.carried_over))
    lossy = f" (lossy: {len(plan.compressed)} buffers in 16 bits)" if plan.compressed else ""
    return [
        f"managed buffers: {len(plan.buffers)}, {human_bytes(managed)} in all",
        f"device memory for them: {human_bytes(plan.arena_bytes)}, {human_bytes(used)} of it used (live at once at "
        f"most {human_bytes(plan.live_bytes)}; {loss:.1%} more, for gaps between them)",
        f"host memory for them: {human_bytes(plan.host_bytes)} ({unshared} without sharing host slots)",
        f"copied per run: {human_bytes(plan.bytes_in)} in, {human_bytes(plan.bytes_out)} out{lossy}"
        + (f", of it in {plan.copy_pieces} pieces, which urgent copies can overtake" if plan.copy_pieces else "")
        + (f"; {human_bytes(carried_over)} carried over from run to run" if carried_over else ""),
    ]


def _copy(plan: Plan, op: Op) -> str:
    buffer = plan.buffers[op.placed.buffer]
    size = human_bytes(buffer.copied)
    return f"{op.kind.value} {buffer.name} ({size if op.part is None else f'{human_bytes(op.part[1])} of {size}'})"


def step_table(plan: Plan, times: PlanTimes | None = None, seconds: Sequence[float] = ()) -> Iterable[str]:
    """Return a line per step: copies in for later steps, new buffers, copies out, freed and dropped buffers.

    Args:
        times: predicted or recorded times; with them, lines also have milliseconds of each step and of its stall.
        seconds: of each step of the plan's program, needed with `times`.
    """
    names = {b: buffer.name for b, buffer in plan.buffers.items()}
    by_step: dict[int, list[Op]] = {}
    for op in plan.ops:
        by_step.setdefault(op.step, []).append(op)
    held = 0
    timed = f"{'ms':>9}  {'stall':>8}  " if times else ""
    yield f"{'step':>5}  {'on device':>10}  {timed}what happens"
    for s, step in enumerate(plan.program.steps):
        parts: list[str] = []
        peak = held
        gone = 0
        for op in by_step.get(s, []):
            if op.kind is OpKind.IN:
                parts.append(_copy(plan, op))
                held += plan.buffers[op.placed.buffer].nbytes if op.begins else 0
            elif op.kind is OpKind.OUT:
                parts.append(_copy(plan, op))
                gone += plan.buffers[op.placed.buffer].nbytes if op.release else 0
            elif op.kind is OpKind.COMPUTE:
                held += sum(plan.buffers[p.buffer].nbytes for p in op.births)
                parts += [f"new {names[p.buffer]}" for p in op.births]
                parts += [f"free {names[b]}" for b in op.frees]
                parts += [f"drop {names[b]}" for b in op.drops]
                gone += sum(plan.buffers[b].nbytes for b in op.frees + op.drops)
            peak = max(peak, held)
        held -= gone
        timed = f"{1e3 * seconds[s]:9.3f}  {1e3 * times.stalls[s]:8.3f}  " if times else ""
        remat = " [remat]" if plan.order[s][1] else ""
        name = f"{step.name}{' [host]' if step.host else ''}{remat}"
        yield f"{s:5d}  {human_bytes(peak):>10}  {timed}{name}: {'; '.join(parts) or '-'}"
