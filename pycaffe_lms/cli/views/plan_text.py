"""Write what `plan` found: as lines of text, and as numbers for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...errors import human_bytes
from ...lms.config import LMSConfig
from ...lms.cost.machine import HALF_GAIN
from ...lms.plan.statistics import plan_statistics
from ...lms.report import text
from ...net.memory.fit import ROUNDED
from ...net.memory.forecast import Least
from ...net.memory.micro_batch_choice import describe
from ...net.program.split_backward import describe_split_backward, split_backward_count
from ...ops import WORKSPACE_LIMIT
from .plan_nets import Nets, Outcome

_GiB = 1 << 30
Numbers = dict[str, Any]


def machine_lines(nets: Nets, workspace: str | None) -> list[str]:
    """Return lines on what is planned for and what is assumed."""
    m = nets.machine
    assumed = (
        f"every convolution uses {workspace}"
        if workspace is not None
        else f"as on the simulated device, at most {human_bytes(WORKSPACE_LIMIT['cuda'])} in a convolution; "
        "a GPU's may use up to its -workspace where that is faster"
    )
    of_half = f" ({HALF_GAIN * m.product_rate / 1e12:.3g} of bfloat16)" if nets.half else ""
    return [
        f"planned for: {m.name}, {human_bytes(nets.capacity)} of device memory, {m.memory_rate / 1e12:.3g} TB/s, "
        f"{m.product_rate / 1e12:.3g} TFLOP/s{of_half}, link {m.link_in / 1e9:.3g} GB/s in, {m.link_out / 1e9:.3g} out",
        f"assumed workspace: {assumed}",
    ]


def machine_numbers(nets: Nets, workspace: str | None) -> Numbers:
    """Return the same for JSON."""
    return {"machine": asdict(nets.machine), "device_bytes_there": nets.capacity, "workspace_assumed": workspace}


def core_lines(found: Outcome, lms: bool) -> list[str]:
    """Return lines on the needs without Large Model Support."""
    verdict = "fits" if found.core_fits else "does not fit"
    lines = [f"in core: {human_bytes(found.core.nbytes)} of device memory, which {verdict}; {_speed(found, True)}"]
    if not lms and not found.core_fits:
        lines.append("-lms auto says whether it fits with Large Model Support")
    return lines


def plan_lines(found: Outcome) -> list[str]:
    """Return lines on the needs with it."""
    if found.refused is not None and found.plan is None:
        return ["with Large Model Support: does not fit"]
    runtime = found.net.runtime
    lines = [
        f"resident on the device: {human_bytes(runtime.resident_bytes)}, and "
        f"{human_bytes(runtime.workspace_bytes)} of workspace"
    ]
    if runtime.idle:
        lines.append("nothing is managed: everything fits as without Large Model Support")
    elif found.plan is None:
        lines.append("nothing is managed: every buffer is at most -lms KB, or comes before -lms_frac")
    else:
        lines += text.summary(found.plan)
        parts = part_lines(found)
        lines += [
            *parts,
            *([ROUNDED] if parts else ()),
            *describe_split_backward(found.net.run_graph, found.plan.program),
        ]
        lines.append(f"made by: {found.plan.rules}; {found.plan.rematerialized} steps run again")
    verdict = "fits" if found.refused is None else "fits, but not on the host"
    lines.append(f"device memory in all: {human_bytes(found.device)}, which {verdict}")
    lines.append(f"predicted: {_speed(found, False)}")
    return lines


def part_lines(found: Outcome) -> list[str]:
    """Return lines on the layers that run in parts of the batch, or of their outputs."""
    return describe(found.net.graph, found.net.arrangement.micro_batched)


def _speed(found: Outcome, core: bool) -> str:
    seconds = found.core.seconds if core else found.seconds
    parts = [f"{1e3 * seconds:.1f} ms per iteration"]
    if found.batch and seconds:
        parts.append(f"{found.batch / seconds:.4g} images/s")
    if not core:
        parts.append(f"{1e3 * found.stall:.1f} ms of it waiting for copies; in core {1e3 * found.core.seconds:.1f} ms")
    return ", ".join(parts)


def least_lines(least: Least, lms: LMSConfig) -> list[str]:
    """Return lines on the least budget and the layer that sets it. With less, layers may run in parts."""
    whole = " with layers whole" if None in (lms.parts, lms.blocks) else ""
    lines = [
        f"least -lms_budget{whole}: {human_bytes(least.nbytes)} ({least.nbytes} bytes), of which "
        f"{human_bytes(least.fixed)} stay"
    ]
    if least.step:
        listing = ", ".join(f'"{name}" {human_bytes(n)}' for name, n in least.blobs[:6])
        lines.append(f'  set by layer "{least.layer}" ({least.step}), which needs at once: {listing}')
    return lines


def least_numbers(least: Least) -> Numbers:
    """Return the same for JSON."""
    return asdict(least) | {"layer": least.layer, "blobs": [{"name": name, "bytes": n} for name, n in least.blobs]}


def numbers(found: Outcome) -> Numbers:
    """Return an outcome for JSON: bytes, milliseconds."""
    plan = found.plan
    result: Numbers = {
        "batch": found.batch,
        "fits": found.refused is None,
        "refused": None if found.refused is None else str(found.refused),
        "in_core": {"bytes": found.core.nbytes, "ms": 1e3 * found.core.seconds, "fits": found.core_fits},
        "device_bytes": found.device,
        "host_bytes": found.host,
        "ms": 1e3 * found.seconds,
        "images_per_s": found.rate,
        "stall_ms": 1e3 * found.stall,
    }
    if found.refused is None:
        result["parts"] = part_lines(found)
    if plan is not None and found.times is not None:
        result["plan"] = plan_statistics(plan)
        result["layers_in_two_steps"] = split_backward_count(found.net.run_graph, plan.program)
        result["steps"] = [
            {
                "name": step.name,
                "again": plan.order[s][1],
                "ms": 1e3 * found.steps[s],
                "stall_ms": 1e3 * found.times.stalls[s],
            }
            for s, step in enumerate(plan.program.steps)
        ]
    return result


def sweep_head() -> list[str]:
    """Return the line over the columns of a sweep."""
    names = ("batch", "in core", "fits", "device", "host", "ms", "images/s", "stall ms", "again", "GiB in", "GiB out")
    return [" ".join(f"{name:>10}" for name in names)]


def sweep_row(found: Outcome) -> str:
    """Return a line of the sweep."""
    cells = [str(found.batch), human_bytes(found.core.nbytes), "yes" if found.core_fits else "no"]
    if found.refused is not None:
        return " ".join(f"{cell:>10}" for cell in cells) + "  does not fit: " + found.refused.message
    plan = found.plan
    cells += [human_bytes(found.device), human_bytes(found.host), f"{1e3 * found.seconds:.1f}", f"{found.rate:.0f}"]
    cells += [f"{1e3 * found.stall:.1f}", str(plan.rematerialized if plan else 0)]
    cells += [f"{(n / _GiB):.2f}" for n in ((plan.bytes_in, plan.bytes_out) if plan else (0, 0))]
    return "  ".join([" ".join(f"{cell:>10}" for cell in cells), *part_lines(found)])


def largest_lines(largest: int, why: str, lms: LMSConfig) -> list[str]:
    """Return lines on the largest batch, and why a larger one does not fit."""
    host = "no limit of host memory is assumed" if lms.host_limit is None else "within -lms_host"
    whole = " with layers whole" if lms.enabled and None in (lms.parts, lms.blocks) else ""
    said = f"largest batch that fits{whole}: {largest}" if largest else f"no batch fits{whole}"
    lines = [f"{said} ({host})"]
    if why:
        lines.append("  a larger one: " + why.splitlines()[0])
    return lines
