"""Reports what Large Model Support does with a net: statistics by kind of buffer, and the contents of a plan's page.

See also: `../../lms/runtime/counters.py`, `../../lms/report/page.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...lms.cost.timing import MeasuredRun, PlanTimes, time_plan
from ...lms.plan.plan import Plan
from ...lms.program import BufferKind, kind_of
from ...lms.report.page import Contents
from ..memory.net_memory import NetMemory

if TYPE_CHECKING:
    from ..net import Net


def buffer_kinds(memory: NetMemory) -> dict[int, str]:
    """Return the kind of every buffer: "parameters" (histories too), "activations", "gradients" or "scratch"."""
    graph = memory.graph
    kinds = {b: "parameters" if kind_of(b) is BufferKind.EXTERNAL else "scratch" for b in memory.buffers}
    kinds |= {v.data: "activations" for v in graph.values} | {v.diff: "gradients" for v in graph.values}
    kinds |= {p.data: "parameters" for p in graph.params} | {p.diff: "gradients" for p in graph.params}
    return kinds


def net_statistics(net: Net) -> dict[str, Any]:
    """Return `Runtime.statistics` and, under "buffers", counts of this net's buffers.

    Each of "managed", "resident" and "host" is {"count", "bytes"}, and "by_kind" has one such entry per kind of managed
    buffer. "resident" are buffers that never leave the device (shared ones count in every net), "host" managed buffers
    with host memory of their own.
    """
    memory = net.memory
    kinds, by_kind = buffer_kinds(memory), dict[str, list[int]]()
    managed = [b for b in memory.buffers.values() if memory.memories[b.id].managed]
    for buffer in managed:
        by_kind.setdefault(kinds[buffer.id], []).append(buffer.nbytes)
    buffers = {
        "managed": _counted(b.nbytes for b in managed),
        "resident": _counted(nbytes for _, nbytes in memory.store.resident_listing()),
        "host": _counted(m.nbytes for m in (memory.memories[b.id] for b in managed) if m.host is not None),
        "by_kind": {kind: _counted(sizes) for kind, sizes in by_kind.items()},
    }
    return net.runtime.statistics() | {"buffers": buffers}


def predicted(net: Net, plan: Plan) -> PlanTimes:
    """Predict when every operation of a plan of this net runs, with the costs that it was planned with."""
    return time_plan(plan, net.memory.planner.requests[plan.program.name].costs)


def page_contents(
    net: Net, title: str, plan: Plan, *, remark: str, measured: MeasuredRun | None = None, budget: int | None = None
) -> Contents:
    """Return the contents of the page of a plan of this net. budget: bytes of device memory; None: no limit."""
    runtime = net.runtime
    return Contents(
        title=title,
        plan=plan,
        times=predicted(net, plan),
        kinds=buffer_kinds(net.memory),
        fixed=(("resident", runtime.resident_bytes), ("workspace", runtime.workspace_bytes)),
        budget=budget,
        measured=measured,
        facts=_machine(net),
        remark=remark,
    )


def _machine(net: Net) -> list[tuple[str, str]]:
    machine = net.runtime.machine
    if machine is None:
        return []
    rates = f"{machine.name}: {machine.memory_rate / 1e12:.3g} TB/s, {machine.product_rate / 1e12:.3g} TFLOP/s"
    link = f"{machine.link_in / 1e9:.3g} GB/s in, {machine.link_out / 1e9:.3g} out, {machine.link_both / 1e9:.3g} both"
    return [("device", net.device.describe()), ("predicted for", rates), ("link", link)]


def _counted(sizes: Iterable[int]) -> dict[str, int]:
    sizes = list(sizes)
    return {"count": len(sizes), "bytes": sum(sizes)}
