"""Draw real plans as SVG: docs/memory_over_time.svg, docs/small_net_*.svg and the tables of docs/how_lms_works.md.

python tools/gen_plan_pictures.py            write them; plans ResNet-152, which takes ten seconds
python tools/gen_plan_pictures.py --small    those of the small net only
python tools/gen_plan_pictures.py --check    write nothing; exit 1 if one is not current
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import with_part  # noqa: E402

from pycaffe_lms.cli.views.plan_nets import Nets, Outcome  # noqa: E402
from pycaffe_lms.formats.prototxt.parser import read_net  # noqa: E402
from pycaffe_lms.lms.config import LMSConfig, parse_size  # noqa: E402
from pycaffe_lms.lms.cost.machine import find_machine  # noqa: E402
from pycaffe_lms.lms.plan.plan import OpKind, Plan  # noqa: E402
from pycaffe_lms.lms.report.layer_costs import occupancy  # noqa: E402
from pycaffe_lms.net.inspect.account import buffer_kinds  # noqa: E402
from pycaffe_lms.solvers.rules import RULES  # noqa: E402

DOCS = ROOT / "docs"
PAGE = DOCS / "how_lms_works.md"
GPU, WORKSPACE = "h200", "36MB"  # what `plan -gpu h200` assumes
LARGE = ("models/resnet-152/train_val.prototxt", ("data=256,3,224,224",), "8GB")
SMALL = ("docs/small_net.prototxt", (), "256MB")
TOLERANCE = 0.03  # of a number: the search may find a slightly different plan
_MIB = 1 << 20
_COLOURS = {"activations": "#4477aa", "gradients": "#ee8866", "parameters": "#228833", "scratch": "#bbbbbb"}
_WORDS = {"activations": "activation", "gradients": "gradient", "parameters": "parameter", "scratch": "workspace"}
_BRIEF = (".work", ".sums", ".copy.bottom0")  # workspace of one step
_FONT = "font-family:system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"


def outcome(model: str, shapes: Iterable[str], budget: str | None, mode: str) -> Outcome:
    """Plan a training iteration as `pycaffe-lms plan -gpu h200 -budget BUDGET -lms MODE` does; None: no budget."""
    lms = LMSConfig(auto=mode == "auto", threshold_kb=0 if mode == "auto" else int(mode))
    lms = lms if budget is None else replace(lms, budget=parse_size(budget, ""))
    machine = replace(find_machine(GPU))
    workspace = parse_size(WORKSPACE, "")
    nets = Nets(
        replace(read_net(str(ROOT / model)), filename=model),
        list(shapes),
        level=0,
        stages=(),
        rule=RULES["SGD"],
        machine=machine,
        lms=lms,
        workspace=workspace,
    )
    return nets.outcome()


def planned(model: str, shapes: Iterable[str], budget: str, mode: str) -> Outcome:
    """Return `outcome`, which must have a plan that fits."""
    found = outcome(model, shapes, budget, mode)
    assert found.plan is not None and found.refused is None, found.refused
    return found


@dataclass(frozen=True)
class Column:
    """Hold one step: what is on the device while it runs, and what is copied for it.

    Attributes:
        name: of the step.
        remat: it runs again.
        held: buffers on the device, oldest first.
        copied_in, copied_out, made, gone: buffers that are copied, get memory, lose it.
    """

    name: str
    remat: bool
    held: tuple[int, ...]
    copied_in: tuple[int, ...]
    copied_out: tuple[int, ...]
    made: tuple[int, ...]
    gone: tuple[int, ...]


def columns(plan: Plan) -> list[Column]:
    """Return the steps of a plan."""
    ops: dict[int, list] = {}
    for op in plan.ops:
        ops.setdefault(op.step, []).append(op)
    held = [op.placed.buffer for op in plan.carried_over]  # the iteration before left them in place
    left = {op.id for op in plan.carried_over}
    ends = {b: op.id for op in plan.ops for b in op.frees if b in held}  # they are still in place after their last step
    found = []
    for s, step in enumerate(plan.program.steps):
        into, out, made, gone, reused = [], [], [], [], set()
        for op in ops.get(s, ()):
            if op.kind is OpKind.IN and op.begins and op.id not in left:
                into.append(op.placed.buffer)
            elif op.kind is OpKind.OUT:
                out += [op.placed.buffer] if op.begins else []
                gone += [op.placed.buffer] if op.release else []
            elif op.kind is OpKind.COMPUTE:
                reused = {old for old, _ in op.inplace_reuses}
                made += [p.buffer for p in op.births]
                gone += [b for b in (*op.frees, *op.drops) if ends.get(b) != op.id]
        now = [*held, *into, *(b for b in made if b not in held)]
        found.append(
            Column(
                step.name.replace("again:", "forward:"),
                plan.order[s][1],
                tuple(b for b in now if b not in reused),
                tuple(into),
                tuple(out),
                tuple(made),
                tuple(gone),
            )
        )
        held = [b for b in now if b not in gone]
    return found


def without_lms(plan: Plan, kinds: dict[int, str]) -> list[Column]:
    """Return the steps of the same iteration in which every value stays from its first write to its last use."""
    kept = [s for s in range(len(plan.program.steps)) if not plan.order[s][1]]
    over = {op.step: dict(op.inplace_reuses) for op in plan.ops if op.inplace_reuses}  # {old: new} of a step
    uses: dict[int, list[int]] = {}
    for s in kept:
        for access in plan.program.steps[s].accesses:
            if access.buffer in plan.buffers:
                uses.setdefault(access.buffer, []).append(s)
    always = {op.placed.buffer for op in plan.carried_over}

    def on_device(b: int, s: int) -> bool:
        if kinds[b] == "scratch" and plan.buffers[b].name.endswith(_BRIEF):
            return s in uses[b]
        written_over = s == uses[b][-1] and s == uses.get(over.get(s, {}).get(b, -1), [-1])[0]
        return (uses[b][0] <= s or b in always) and s <= uses[b][-1] and not written_over

    found = []
    for s in kept:
        held = sorted((b for b in uses if on_device(b, s)), key=lambda b: uses[b][0])
        made = tuple(b for b in held if uses[b][0] == s and b not in always)
        gone = tuple(b for b in held if uses[b][-1] == s)
        found.append(Column(plan.program.steps[s].name, False, tuple(held), (), (), made, gone))
    return found


def step_picture(title: str, plan: Plan, steps: list[Column], kinds: dict[int, str], budget: int, top: int) -> str:
    """Return stacked boxes per step as SVG. budget, top: bytes of the dashed line, and of the upper edge."""
    wide, high, left, lane = 34, 300, 62, 16
    width = left + wide * len(steps) + 16
    floor = 58 + high
    height = floor + 2 * lane + 128

    def y(nbytes: float) -> float:
        return floor - high * nbytes / top

    out = [_open(width, height, title), f'<text x="{left}" y="24" class="t">{escape(title)}</text>']
    x = left
    drawn = {kinds[b] for column in steps for b in column.held if plan.buffers[b].nbytes >= top / high}
    for kind, colour in _COLOURS.items():
        if kind not in drawn:
            continue
        out.append(f'<rect x="{x}" y="36" width="11" height="11" fill="{colour}"/>')
        out.append(f'<text x="{x + 16}" y="46" class="s">{_WORDS[kind]}</text>')
        x += 105
    for mib in range(0, int(top / _MIB) + 1, 64):
        out.append(f'<line x1="{left}" x2="{width - 16}" y1="{y(mib * _MIB):.1f}" y2="{y(mib * _MIB):.1f}" class="g"/>')
        out.append(f'<text x="{left - 6}" y="{y(mib * _MIB) + 4:.1f}" class="s e">{mib} MiB</text>')
    for i, column in enumerate(steps):
        x, below = left + wide * i, 0
        for b in column.held:
            nbytes = plan.buffers[b].nbytes
            box = f'x="{x + 1}" y="{y(below + nbytes):.1f}" width="{wide - 2}" height="{high * nbytes / top:.1f}"'
            out.append(f'<rect {box} fill="{_COLOURS[kinds[b]]}"><title>{escape(_name(plan, b))}</title></rect>')
            if nbytes / top > 0.06:
                label, middle = escape(_short(plan, b)), y(below + nbytes / 2) + 3
                out.append(f'<text x="{x + wide / 2}" y="{middle:.1f}" class="b">{label}</text>')
            below += nbytes
        for row, moved, colour in ((0, column.copied_in, "#882255"), (1, column.copied_out, "#117733")):
            if moved:
                at = floor + 6 + row * lane
                words = ", ".join(_name(plan, b) for b in moved)
                out.append(f'<rect x="{x + 1}" y="{at}" width="{wide - 2}" height="{lane - 3}" fill="{colour}">')
                out.append(f"<title>{escape(words)}</title></rect>")
                out.append(f'<text x="{x + wide / 2}" y="{at + 10}" class="b">{escape(_short(plan, moved[0]))}</text>')
        look = "s r" if column.remat else "s"
        at = f"{x + wide / 2 + 4},{floor + 2 * lane + 14}"
        out.append(f'<text class="{look}" text-anchor="end" transform="translate({at}) rotate(-55)">')
        out.append(f"{escape(_step(column))}</text>")
    out.append(f'<text x="{left - 6}" y="{floor + 16}" class="s e">copy in</text>')
    out.append(f'<text x="{left - 6}" y="{floor + 16 + lane}" class="s e">copy out</text>')
    if budget:
        line = f'x1="{left}" x2="{width - 16}" y1="{y(budget):.1f}" y2="{y(budget):.1f}"'
        out.append(f'<line {line} class="d"/><text x="{width - 16}" y="{y(budget) - 5:.1f}" class="s e">budget</text>')
    return "\n".join([*out, "</svg>", ""])


def memory_picture(found: Outcome, budget: int) -> str:
    """Return device memory over one training iteration as SVG: in memory, and under Large Model Support."""
    plan, times = found.plan, found.times
    assert plan is not None and times is not None
    inside = [
        sum(plan.buffers[b].nbytes for b in column.held) for column in without_lms(plan, buffer_kinds(found.net.memory))
    ]
    seconds = [t for t, (_, again) in zip(found.steps, plan.order, strict=True) if not again]
    scale = found.core.seconds / sum(seconds)
    ends, at = [], 0.0
    for t in seconds:
        at += t * scale
        ends.append(at)
    managed = occupancy(plan, times, buffer_kinds(found.net.memory), points=400)
    beside = found.device - plan.arena_bytes
    left, floor, width, high = 70, 330, 860, 270
    most = max(found.core.nbytes, max(inside)) / (1 << 30)
    span = 1.04 * max(found.core.seconds, times.seconds)

    def x(t: float) -> float:
        return left + (width - left - 20) * t / span

    def y(nbytes: float) -> float:
        return floor - high * nbytes / (1 << 30) / (1.05 * most)

    def area(points: Iterable[tuple[float, float]], end: float) -> str:
        path, last = [f"{x(0):.1f},{floor}"], 0.0
        for t, nbytes in points:
            path += [f"{x(t):.1f},{last or floor:.1f}", f"{x(t):.1f},{y(nbytes):.1f}"]
            last = y(nbytes)
        return " ".join([*path, f"{x(end):.1f},{last:.1f}", f"{x(end):.1f},{floor}"])

    starts = [0.0, *ends[:-1]]
    gib = 1 << 30
    title = "GPU memory during one training iteration of ResNet-152, batch 256"
    under = f"as planned for an {GPU.upper()} with -lms auto -lms_budget {LARGE[2]}"
    out = [_open(width, 420, title), f'<text x="{left}" y="26" class="t">{title}</text>']
    out.append(f'<text x="{left}" y="45" class="s">{under}</text>')
    for step in range(0, int(most) + 1, 10):
        line = f'x1="{left}" x2="{width - 20}" y1="{y(step * gib):.1f}" y2="{y(step * gib):.1f}"'
        out.append(f'<line {line} class="g"/>')
        out.append(f'<text x="{left - 8}" y="{y(step * gib) + 4:.1f}" class="s e">{step} GiB</text>')
    out.append(f'<polygon points="{area(zip(starts, inside, strict=True), ends[-1])}" fill="#ccbb44" opacity="0.55"/>')
    held = [beside + sum(now) for now in zip(*managed.held.values(), strict=True)]
    out.append(f'<polygon points="{area(zip(managed.at, held, strict=True), times.seconds)}" fill="#4477aa"/>')
    line = f'x1="{left}" x2="{width - 20}" y1="{y(budget):.1f}" y2="{y(budget):.1f}"'
    out.append(f'<line {line} class="d"/>')
    out.append(f'<text x="{x(span) - 2:.1f}" y="{y(budget) - 6:.1f}" class="s e">budget: {budget / gib:.0f} GiB</text>')
    for ms in range(0, int(1e3 * span) + 1, 20):
        out.append(f'<text x="{x(ms / 1e3):.1f}" y="{floor + 18}" class="s m">{ms} ms</text>')
    for row, (colour, words) in enumerate(
        (
            ("#ccbb44", f"without LMS: {found.core.nbytes / gib:.1f} GiB, {1e3 * found.core.seconds:.0f} ms"),
            (
                "#4477aa",
                f"with -lms auto: {found.device / gib:.1f} GiB, {1e3 * times.seconds:.0f} ms; "
                f"{plan.bytes_in / gib:.1f} GiB copied in, {plan.bytes_out / gib:.1f} out, "
                f"{sum(again for _, again in plan.order)} steps run twice",
            ),
        )
    ):
        at = floor + 44 + 22 * row
        out.append(f'<rect x="{left}" y="{at - 11}" width="13" height="13" fill="{colour}"/>')
        out.append(f'<text x="{left + 20}" y="{at}" class="s">{words}</text>')
    return "\n".join([*out, "</svg>", ""])


def _open(width: int, height: int, title: str) -> str:
    style = (
        f"text{{{_FONT};fill:#222}} .t{{font-size:16px;font-weight:600}} .s{{font-size:12px}} .e{{text-anchor:end}} "
        ".m{text-anchor:middle} .b{font-size:9px;fill:#fff;text-anchor:middle} .r{fill:#aa3377;font-weight:600} "
        ".g{stroke:#ddd} .d{stroke:#222;stroke-dasharray:6 4}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}"><style>{style}</style><rect width="{width}" height="{height}" fill="#fff"/>'
    )


def _name(plan: Plan, b: int) -> str:
    return f"{plan.buffers[b].name}, {plan.buffers[b].nbytes / _MIB:.0f} MiB"


def _short(plan: Plan, b: int) -> str:
    name = plan.buffers[b].name
    return "work" if name.endswith(_BRIEF) else name.removesuffix(".data").replace(".diff", "'")


def _step(column: Column) -> str:
    kind, _, layer = column.name.partition(":")
    return f"{'again' if column.remat else kind} {layer}"


def table(plan: Plan, steps: list[Column]) -> list[str]:
    """Return the steps at which anything changes, as rows of Markdown."""
    least = 4 * _MIB  # smaller buffers are not told of

    def names(buffers: Iterable[int]) -> str:
        return ", ".join(f"`{_short(plan, b)}`" for b in buffers if plan.buffers[b].nbytes >= least)

    rows = ["| step | on the device | what happens |", "|---|---:|---|"]
    for column in steps:
        brief = [b for b in column.made if b in column.gone]
        parts = [
            ("copy in", column.copied_in),
            ("make", [b for b in column.made if b not in brief]),
            ("copy out", column.copied_out),
            ("free", [b for b in column.gone if b not in brief]),
        ]
        said = [f"{verb} {names(buffers)}" for verb, buffers in parts if names(buffers)]
        if said:
            size = sum(plan.buffers[b].nbytes for b in column.held) / _MIB
            rows.append(f"| {_step(column)} | {size:.0f} MiB | {'; '.join(said)} |")
    return rows


def small_files() -> Iterator[tuple[Path, str]]:
    """Yield (file, its text) of the small net's pictures and page."""
    model, shapes, budget = SMALL
    limit = parse_size(budget, "")
    found = {mode: planned(model, shapes, budget, mode) for mode in ("1000", "auto")}
    copies = found["1000"].plan
    assert copies is not None
    kinds = {mode: buffer_kinds(one.net.memory) for mode, one in found.items()}
    inside = without_lms(copies, kinds["1000"])
    top = 1.04 * max(limit, *(sum(copies.buffers[b].nbytes for b in column.held) for column in inside))
    yield (
        DOCS / "small_net_in_memory.svg",
        step_picture("Without Large Model Support", copies, inside, kinds["1000"], limit, int(top)),
    )
    page = with_part(PAGE.read_text(), "the net", f"```prototxt\n{(ROOT / model).read_text()}```")
    for mode, title in (("1000", "-lms 1000: copies"), ("auto", "-lms auto: recomputes")):
        plan = found[mode].plan
        assert plan is not None
        steps = columns(plan)
        text = step_picture(f"{title} ({budget})", plan, steps, kinds[mode], limit, int(top))
        yield DOCS / f"small_net_lms_{mode}.svg", text
        page = with_part(page, f"steps of -lms {mode}", "\n".join(table(plan, steps)))
        said = (
            f"The plan: {plan.bytes_in / _MIB:.0f} MiB copied in and {plan.bytes_out / _MIB:.0f} MiB out in each "
            f"iteration, {sum(again for _, again in plan.order)} steps run twice; predicted "
            f"{1e3 * found[mode].seconds:.1f} ms, {1e3 * found[mode].stall:.1f} ms of it waiting for copies. "
            f"In memory the net takes {found[mode].core.nbytes / _MIB:.0f} MiB and "
            f"{1e3 * found[mode].core.seconds:.1f} ms."
        )
        page = with_part(page, f"sums of -lms {mode}", said)
    yield PAGE, page


def large_files() -> Iterator[tuple[Path, str]]:
    """Yield README's picture."""
    model, shapes, budget = LARGE
    yield DOCS / "memory_over_time.svg", memory_picture(planned(model, shapes, budget, "auto"), parse_size(budget, ""))


def is_current(old: str, new: str) -> bool:
    """Tell whether two texts have the same words, and nearly the same numbers outside of drawn shapes."""
    number = re.compile(r"\d+(?:\.\d+)?")

    def said(text: str) -> str:
        if "<svg" not in text:
            return text
        return "\n".join(re.findall(r">([^<\n]+)<", re.sub(r"<(?:style|title)>.*?</(?:style|title)>", "", text)))

    a, b = said(old), said(new)
    close = all(
        abs(float(p) - float(q)) <= TOLERANCE * max(1.0, float(p), float(q))
        for p, q in zip(number.findall(a), number.findall(b), strict=False)
    )
    return close and number.sub("#", a) == number.sub("#", b)


def main(argv: list[str] | None = None) -> int:
    """Write what is not current, or with --check only say so."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    parser.add_argument("--small", action="store_true", help="only those of the small net")
    args = parser.parse_args(argv)
    wrong = 0
    for file, text in (*small_files(), *(() if args.small else large_files())):
        old = file.read_text() if file.is_file() else ""
        if old == text or (args.check and is_current(old, text)):
            continue
        wrong += 1
        if not args.check:
            file.write_text(text)
        print(f"{'not current' if args.check else 'written'}: {file.relative_to(ROOT)}")
    return int(args.check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
