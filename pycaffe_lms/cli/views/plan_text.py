"""Write what `plan` found as lines of at most `WIDTH` columns: a page, a sweep, a table of steps, the known GPUs.

The page says, in this order: whether the net fits, with and without Large Model Support, in how much memory and time;
the least budget; what takes the time; what limits it; what to change.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ...errors import human_bytes
from ...lms.cost.machine import DEFAULT, HALF_GAIN, MACHINES, described
from ...lms.cost.network import Cluster
from ...net.memory.fit import ROUNDED
from ...ops import WORKSPACE_LIMIT
from .plan_answers import Page
from .plan_nets import Nets

WIDTH = 100  # columns
LITTLE = 0.05  # share of the time up to which waiting, or rematerialization, is no limit
_BLOBS = 4  # named at the peak
_KINDS = {"again": "rematerialization"}  # of steps
Numbers = dict[str, Any]


# -- the page ----------------------------------------------------------------------------------------------------------
def page(nets: Nets, title: str, workspace: str | None, answered: Page) -> list[str]:
    """Return the page."""
    found, least = answered.outcome, answered.least
    sections = [
        [*_wrapped(title), *machine_lines(nets, workspace)],
        [*_wrapped(verdict(nets, found)), *_comparison(nets, found)],
        [] if least is None else _least_lines(nets, found, *least),
        _time_lines(found),
        ["What limits it", *_points(_limits(nets, found, least))],
        ["What to change", *_points(_changes(nets, answered))],
        _wrapped(
            "Times are predictions. -steps prints every step, -report page.html draws them, -json FILE has all "
            "numbers; -sweep batch=A..B compares batches."
        ),
    ]
    return [line for section in sections if section for line in (*section, "")][:-1]


def machine_lines(nets: Nets, workspace: str | None) -> list[str]:
    """Return lines on what is planned for and what is assumed."""
    m = nets.machine
    half = f", {HALF_GAIN * m.product_rate / 1e12:.3g} of bfloat16" if nets.half else ""
    rates = f"{m.memory_rate / 1e12:.3g} TB/s, {m.product_rate / 1e12:.3g} TFLOP/s{half}"
    link = f"link {m.link_in / 1e9:.3g} GB/s in, {m.link_out / 1e9:.3g} out"
    assumed = (
        f"every convolution uses {workspace}"
        if workspace is not None
        else f"what the simulated device uses, at most {human_bytes(WORKSPACE_LIMIT['cuda'])} in one"
    )
    return [
        *_wrapped(f"planned for: {m.name}, {human_bytes(nets.capacity)} of device memory ({rates}, {link})"),
        *_wrapped(f"assumed workspace (-workspace): {assumed}"),
    ]


def machine_numbers(nets: Nets, workspace: str | None) -> Numbers:
    """Return the same for JSON."""
    return {"machine": asdict(nets.machine), "device_bytes_there": nets.capacity, "workspace_assumed": workspace}


def verdict(nets: Nets, found: Numbers) -> str:
    """Return the sentence that says whether it fits."""
    there, needs = human_bytes(nets.capacity), human_bytes(found["in_core"]["bytes"])
    without = f"without it needs {needs}"
    if found["in_core"]["fits"]:
        return f"FITS in {there} without Large Model Support: it needs {needs}."
    if not nets.lms.enabled:
        return f"DOES NOT FIT in {there} without Large Model Support: it needs {needs}."
    if found["fits"]:
        return f"FITS in {there} with Large Model Support ({_lms(nets)}); {without}."
    if found["error"]["kind"] == "OutOfHostMemory":
        return f"DOES NOT FIT: with Large Model Support ({_lms(nets)}) the host has too little memory."
    return f"DOES NOT FIT in {there}, not even with Large Model Support ({_lms(nets)}); {without}."


def _lms(nets: Nets) -> str:
    """Return the flag that turns Large Model Support on as it is."""
    lms = nets.lms
    return f"-lms {lms.threshold_kb if lms.threshold_kb > 0 else ''}{' auto' if lms.auto else ''}".replace("  ", " ")


def _comparison(nets: Nets, found: Numbers) -> list[str]:
    """Return the table: without and with Large Model Support."""
    core = found["in_core"]
    rate = found["batch"] and 1e3 * found["batch"] / core["ms"] if core["ms"] else None
    too_large = "" if core["fits"] else f"does not fit {human_bytes(nets.capacity)}"
    rows = [("without LMS", human_bytes(core["bytes"]), "0 B", core["ms"], rate, too_large)]
    if nets.lms.enabled:
        name, error = f"with {_lms(nets)}", found["error"]
        if error is not None and not found["device_bytes"]:
            rows.append((name, "-", "-", None, None, "does not fit"))
        else:
            remark = "does not fit the host" if error else "the same: nothing is managed" if _unmanaged(found) else ""
            device, host = human_bytes(found["device_bytes"]), human_bytes(found["host_bytes"])
            rows.append((name, device, host, found["ms"], found["images_per_s"], remark))
    lines = [f"{'':<20}{'device memory':>14}{'host memory':>13}{'time':>13}{'images/s':>11}"]
    for name, device, host, ms, per_second, remark in rows:
        time = "-" if ms is None else _ms(ms)
        shown = _rate(per_second)
        lines.append(f"{name:<20}{device:>14}{host:>13}{time:>13}{shown:>11}   {remark}".rstrip())
    return lines


def _unmanaged(found: Numbers) -> bool:
    return "plan" not in found


def _least_lines(nets: Nets, found: Numbers, least: Numbers, parts: int | None) -> list[str]:
    given = nets.gives_parts
    whole = "-lms_budget" if given else "with layers whole"
    size = flag_size(least["nbytes"])
    lines = [f"Least budget {whole}: {human_bytes(least['nbytes'])}, -lms_budget {size}"]
    if found["fits"] and not _unmanaged(found) and least["nbytes"] > nets.capacity:
        lines = _wrapped(
            f"Least budget {whole}: {human_bytes(least['nbytes'])} if values are only copied; this plan needs less, "
            f"as {'layers run in parts' if found['parts'] else 'it makes some again'}"
        )
    if least["step"]:
        lines += _wrapped(f"set by the {_step(least['step'])}, which needs at once {_blobs(least['blobs'])}", 2)
    else:
        lines += _wrapped("set by all that it takes without Large Model Support: less is not managed", 2)
    if parts is not None:
        saying = f"Least budget with layers in parts or slabs: at most {human_bytes(parts)}, "
        lines += _wrapped(f"{saying}-lms_split auto -lms_budget {flag_size(parts)}")
        lines += [] if found.get("parts") else _wrapped(ROUNDED, 2)
    elif not given and least["step"]:
        lines += _wrapped("Layers in parts or slabs (-lms_split auto) do not halve it.")
    return lines


def _time_lines(found: Numbers) -> list[str]:
    """Return the table of what takes the time of a plan that copies or rematerializes, and which layers are split."""
    if "remat_ms" not in found:
        return []
    if not found["remat_ms"] + found["stall_ms"]:
        return _split_lines(found)
    plan, total = found["plan"], found["ms"]
    again, waits = found["remat_ms"], found["stall_ms"]
    copied = f"{human_bytes(plan['bytes_in'])} copied in, {human_bytes(plan['bytes_out'])} out"
    lossy = ", in 16 bits: lossy" if plan["buffers"]["lossy"]["count"] else ""
    busy = f"the link is busy for {_ms(found['busy_in_ms'])} and {_ms(found['busy_out_ms'])}"
    rows = (
        ("layers and updates", total - again - waits, ""),
        (
            "rematerialization",
            again,
            f"{plan['steps_rematerialized']} of {plan['steps']} steps are layers that run again",
        ),
        ("waiting for copies", waits, f"{copied}{lossy}; {busy}"),
    )
    lines = [f"Where the time goes ({_ms(total)})"]
    for name, ms, remark in rows:
        lines += _wrapped(f"{name:<20}{_ms(ms):>12} {100 * ms / total:>4.0f}%   {remark}".rstrip(), 2, 42)
    return lines + _split_lines(found)


def _split_lines(found: Numbers) -> list[str]:
    """Return lines about layers that run in parts, or whose backward is split."""
    lines: list[str] = []
    parts = found.get("parts", [])
    for line in parts:
        lines += _wrapped(line)
    if parts:
        lines += _wrapped(ROUNDED, 2)
    if n := found.get("layers_in_two_steps"):
        layers = f"{n} layers" if n > 1 else "1 layer"
        lines += _wrapped(f"gradients of {layers} as two steps each, of parameters and then of bottoms")
    return lines


def _limits(nets: Nets, found: Numbers, least: tuple[Numbers, int | None] | None) -> Iterator[str]:
    """Yield what limits the net: memory, the link, or rematerialization."""
    error = found["error"]
    if error is not None:
        layer = f"layer {_named(error['where']['layer'])} needs" if error["where"]["layer"] else "it needs"
        yield f"memory: {layer} {_at_once(error)}"
        return
    if _unmanaged(found) and not found["in_core"]["fits"]:
        yield "nothing is large enough to be managed"
        return
    if _unmanaged(found) or not found["remat_ms"] + found["stall_ms"]:
        yield "the layers themselves: none waits for a copy, and none runs again"
        return
    total, again, waits = found["ms"], found["remat_ms"], found["stall_ms"]
    if waits > LITTLE * total:
        worst = max(found["steps"], key=lambda step: step["stall_ms"])
        longest = f"longest before the {_step(worst['name'])}: {_ms(worst['stall_ms'])}"
        yield f"the link: layers wait for copies in {100 * waits / total:.0f}% of the time, {longest}"
    if again > LITTLE * total:
        share = f"{100 * again / total:.0f}% of the time"
        yield f"rematerialization: running layers again takes {share}; copying their values instead would take longer"
    if waits <= LITTLE * total and again <= LITTLE * total:
        yield "nothing much: copies are hidden behind the layers, which take the time that they take without"
    if least is not None and least[0]["step"] and nets.capacity < 1.5 * least[0]["nbytes"] and not found["parts"]:
        needed, step = human_bytes(least[0]["nbytes"]), f"the {_step(least[0]['step'])}"
        if least[0]["nbytes"] <= nets.capacity:
            yield f"memory: {step} needs {needed} at once, so little else stays on the device"
        else:
            yield f"memory: {step} would need {needed} at once, if its inputs were not overwritten and made again"


def _changes(nets: Nets, answered: Page) -> Iterator[str]:
    """Yield what to change, with flags and numbers."""
    found, largest, least, without = answered
    core, lms, error = found["in_core"], nets.lms, found["error"]
    if core["fits"]:
        slower = not _unmanaged(found) and found["ms"] > (1 + LITTLE) * core["ms"]
        if slower:
            yield f"no -lms (-lms off): it fits, nothing has to be copied, {_ms(core['ms'])}"
        most = _in_core_batch(nets, found)
        if most is not None and most > found["batch"]:
            yield f"a larger batch: about {most} images fit without Large Model Support, more with it"
        elif not slower:
            yield "nothing"
        return
    if not lms.enabled:
        yield "-lms auto: says whether it fits with Large Model Support, and how fast it is then"
    refused = error is not None
    if error is not None and error["kind"] == "OutOfHostMemory":
        yield f"-lms_host {flag_size(error['needed'])}: the host memory that this plan needs"
    elif refused and least is not None:
        whole, parts = least
        if whole["nbytes"] > nets.capacity:
            yield f"-lms_budget {flag_size(whole['nbytes'])} or a GPU with more memory: the least with layers whole"
        if parts is not None and parts <= nets.capacity and lms.split is None:
            yield "-lms_split auto: runs layers in parts or slabs, which fits; results are equal to rounding"
    if largest is not None and largest != found["batch"]:
        yield f"a batch of {largest}: the largest that fits so" if largest else "no batch fits so, not even one image"
    slow = not refused and not _unmanaged(found) and found["remat_ms"] + found["stall_ms"] > LITTLE * found["ms"]
    if not (slow or refused or not lms.enabled):
        yield f"little to gain: without any limit of memory it takes {_ms(core['ms'])}"
        return
    if not lms.auto and lms.enabled and slow:
        yield "-lms auto: chooses by predicted time what is copied, rematerialized or left on the device"
    if lms.enabled and lms.recompute is False and slow:
        yield "-lms_recompute on: lets layers run again where that is faster than a copy"
    enough = f"-lms_budget {flag_size(core['bytes'])}, or a GPU with that"
    yield f"{enough}: needs no Large Model Support, {_ms(core['ms'])}; budgets in between help, too"
    if without:
        yield f"a batch of {without}: fits without Large Model Support"
    elif without == 0:
        yield "no batch fits without Large Model Support, not even one image"
    if not nets.half and nets.machine.capability >= 8:
        yield "-math bf16: stores activations in 16 bits: about half the memory and copies, results round differently"


def _in_core_batch(nets: Nets, found: Numbers) -> int | None:
    """Return about how many images fit without Large Model Support, by proportion; None where the net has no batch."""
    return found["batch"] and int(nets.capacity * found["batch"] // max(1, found["in_core"]["bytes"]))


def _points(sentences: Iterable[str]) -> list[str]:
    return [line for sentence in sentences for line in _wrapped(f"* {sentence}", 2, 4)]


def _step(name: str) -> str:
    """Return a step's name in words: `backward of "conv1"`, a chain of layers by its ends."""
    kind, _, layer = name.partition(":")
    if not layer:
        return f'step "{name}"'
    return f"{_KINDS.get(kind, kind)} of {_named(layer)}"


def _named(layer: str) -> str:
    """Return the name of a layer, or of a chain of layers by its ends, in quotes."""
    ends = layer.split("+")
    return f'"{layer}"' if len(ends) == 1 else f'"{ends[0]}" .. "{ends[-1]}" ({len(ends)} layers run as one)'


def _blobs(blobs: Sequence[Numbers]) -> str:
    """Return the largest blobs with their bytes."""
    listed = ", ".join(f'"{_short(b["name"])}" {human_bytes(b["bytes"])}' for b in blobs[:_BLOBS])
    return listed + (f" and {len(blobs) - _BLOBS} smaller" if len(blobs) > _BLOBS else "")


def _short(name: str) -> str:
    """Return the name of a blob, or of a chain's own buffer by the ends of the chain."""
    layers, dot, what = name.rpartition(".")
    ends = layers.split("+")
    return name if len(ends) < 3 else f"{ends[0]}+..+{ends[-1]}{dot}{what}"


def _at_once(error: Numbers) -> str:
    """Return what an error of memory says is needed and what is there, so exactly that they differ."""
    needed, free = error["needed"], max(0, error["free"])
    if human_bytes(needed) == human_bytes(free):
        return f"{needed:,} bytes at once, {free:,} are there"
    return f"{human_bytes(needed)} at once, {human_bytes(free)} are there"


def _rate(per_second: float | None) -> str:
    """Return items per second as text."""
    return "-" if per_second is None else f"{per_second:.0f}" if per_second >= 1000 else f"{per_second:.4g}"


def _ms(ms: float) -> str:
    """Return milliseconds as text, with three digits or more."""
    return f"{ms:.1f} ms" if ms >= 10 or not ms else f"{ms:.2f} ms" if ms >= 1 else f"{ms:.3f} ms"


def flag_size(nbytes: int) -> str:
    """Return a size as a flag takes it, rounded up by less than 1%: 2512680960 -> "2397MB"."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if nbytes >= 100 * size:
            return f"{math.ceil(nbytes / size)}{unit}"
    return f"{nbytes}B"


def _wrapped(text: str, indent: int = 0, further: int | None = None) -> list[str]:
    """Return a text as lines of at most `WIDTH` columns. further: indent of all lines but the first."""
    lines = textwrap.wrap(
        re.sub(r"(?<= -)(\w+) (?=\d)", "\\1\u00a0", text),  # a flag stays beside its number
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2 if further is None else further),
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


# -- many GPUs ---------------------------------------------------------------------------------------------------------
def rank_lines(nets: Nets, cluster: Cluster, rows: Sequence[Numbers]) -> list[str]:
    """Return the table of a data-parallel training. cluster: of the last row."""
    m = nets.machine
    inside = f"NVLink {m.nvlink / 1e9:.4g} GB/s" if m.nvlink else f"PCIe {m.link_both / 2e9:.4g} GB/s"
    network = f", network {cluster.network / 1e9:.4g} GB/s a node" if cluster.network else ""
    batch = "" if nets.batch is None else f", batch {nets.batch} each"
    lines = [
        *_wrapped(f"Data parallel{batch}: nodes of {cluster.node_gpus} GPUs, {inside}{network}"),
        f"{'GPUs':>7}{'time':>12}{'images/s':>11}{'efficiency':>12}{'sums':>12}{'not hidden':>12}   limited by",
    ]
    for row in rows:
        lines.append(
            f"{row['ranks']:>7}{_ms(row['ms']):>12}{_rate(row['images_per_s']):>11}{row['efficiency']:>12.1%}"
            f"{_ms(row['sums_ms']):>12}{_ms(row['waiting_ms']):>12}   {row['limit']}"
        )
    return lines + _wrapped(
        "efficiency: over one GPU; sums: gradients over all GPUs, in buckets beside the backward; not hidden: by how "
        "much they make the iteration longer. docs/scaling.md has the formulas, and their errors."
    )


# -- a sweep -----------------------------------------------------------------------------------------------------------
def sweep_head(nets: Nets) -> list[str]:
    """Return the lines over the columns of a sweep."""
    lms = f"chosen plan ({_lms(nets)})" if nets.lms.enabled else "chosen plan"
    return [
        f"{'':>7}  {'':<11}  {lms:<66} {'without':>10}",
        f"{'batch':>7}  {'runs':<11}  {'device':>10} {'host':>10} {'ms':>8} {'images/s':>8} "
        f"{'waiting':>7} {'reruns':>6} {'copied':>10} {'LMS needs':>11}",
    ]


def sweep_row(found: Numbers) -> str:
    """Return a line of the sweep."""
    needs, core = human_bytes(found["in_core"]["bytes"]), found["in_core"]["fits"]
    if found["error"] is not None:
        error = found["error"]
        layer = f'"{_ends(error["where"]["layer"])}" ' if error["where"]["layer"] else ""
        short = f"{layer}needs {_at_once(error)}"
        return f"{found['batch']:>7}  {'no':<11}  {textwrap.shorten(short, 67, placeholder='..'):<67}{needs:>11}"
    plan = found.get("plan", {"steps_rematerialized": 0, "bytes_in": 0, "bytes_out": 0})
    runs = "without LMS" if core else "in parts" if found["parts"] else "with LMS"
    waiting = found["stall_ms"] / found["ms"] if found["ms"] else 0.0
    return (
        f"{found['batch']:>7}  {runs:<11}  {human_bytes(found['device_bytes']):>10} "
        f"{human_bytes(found['host_bytes']):>10} {found['ms']:>8.1f} {_rate(found['images_per_s']):>8} {waiting:>7.0%} "
        f"{plan['steps_rematerialized']:>6} {human_bytes(plan['bytes_in'] + plan['bytes_out']):>10} {needs:>11}"
    )


def sweep_legend() -> list[str]:
    """Return lines that explain the columns of a sweep."""
    return _wrapped(
        "runs: without LMS, as all fits; with LMS; in parts or slabs; or no. waiting: share of the time in which "
        "layers wait for copies; reruns: layers that run again instead of being copied; copied: both ways, per "
        "iteration."
    )


def largest_lines(nets: Nets, largest: int, why: str, fitted: int) -> list[str]:
    """Return lines on the largest batch, and why a larger one does not fit. fitted: the largest that was planned."""
    lms = nets.lms
    if fitted > largest:  # rematerialization may need less memory than copies on demand
        return [f"batch {fitted} fits; the largest that fits if values are only copied: {largest}"]
    host = "no limit of host memory is assumed" if lms.host_limit is None else "within -lms_host"
    whole = " with layers whole" if lms.enabled and None in (lms.parts, lms.blocks, lms.slabs) else ""
    said = f"largest batch that fits{whole}: {largest}" if largest else f"no batch fits{whole}"
    return [
        f"{said} ({host})",
        *(_wrapped(f"a larger one: {why.splitlines()[0].split(' (largest:')[0]}", 2) if why else ()),
    ]


def _ends(layers: str) -> str:
    ends = layers.split("+")
    return layers if len(ends) < 3 else f"{ends[0]}+..+{ends[-1]}"


# -- steps and GPUs ----------------------------------------------------------------------------------------------------
def step_lines(table: Sequence[str]) -> list[str]:
    """Return the lines of `step_table`, wrapped."""
    legend = (
        "Steps in order. in, out: copied to or from the device (in ahead of its use); new: gets memory; free: leaves, "
        "the host has it; drop: not read again, or made again later; [remat]: runs again; stall: ms of waiting for "
        "copies."
    )
    return [*_wrapped(legend), *(line for row in table for line in _wrapped(row, 0, 12))]


def gpu_lines() -> list[str]:
    """Return the table of GPUs that -gpu knows."""
    lines = [
        "GPUs that -gpu knows, with the rates that good code reaches (not those of data sheets):",
        "",
        f"{'name':<8} {'memory':>8} {'bandwidth':>10}   {'TFLOP/s: tf32':>13} {'fp32':>6} {'bf16':>6}   "
        f"{'link in, out':<17} {'NVLink':>6}",
    ]
    for name, m in MACHINES.items():
        tf32 = f"{m.product_rate / 1e12:.3g}" if m.capability >= 8 else "-"
        bf16 = f"{HALF_GAIN * m.product_rate / 1e12:.3g}" if m.capability >= 8 else "-"
        fp32 = f"{m.with_math('fp32').product_rate / 1e12:.3g}"
        default = "  (default)" if name == DEFAULT else ""
        link = f"{m.link_in / 1e9:.3g}, {m.link_out / 1e9:.3g} GB/s"
        nvlink = f"{m.nvlink / 1e9:.4g}" if m.nvlink else "-"
        lines.append(
            f"{name:<8} {m.memory >> 30:>4} GiB {m.memory_rate / 1e12:>5.2f} TB/s   {tf32:>13} {fp32:>6} {bf16:>6}   "
            f"{link:<17} {nvlink:>6}{default}"
        )
    return [
        *lines,
        "",
        *_wrapped(
            "Any other: -gpu FILE.json with these fields (bytes, per second), here of the v100; the six after the "
            "name must be there:"
        ),
        *textwrap.wrap(described("v100"), WIDTH, initial_indent="  ", subsequent_indent="  "),
    ]
