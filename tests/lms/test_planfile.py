"""Plans as text: what is written is what was planned; what is read is checked wholly, and trains to the same bits."""

from __future__ import annotations

import dataclasses
import re

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import PlanError, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.planfile.read import parse_plan, plan_from
from pycaffe_lms.lms.planfile.write import program_message
from pycaffe_lms.lms.planner.host_slots import with_host_slots
from pycaffe_lms.lms.runtime import runtime
from pycaffe_lms.memory.host import SEGMENT

from ..seeds import seeded
from .nets import NETS, make_solver, train
from .plan_files import ITERATIONS, SETTINGS, budget_of, lms_of, planned, read, text_of, without


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("net", NETS)
def test_there_and_back(net, kind):
    plan = planned(net, kind)[0]
    again = with_host_slots(read(text_of(net, kind), net, kind), SEGMENT)
    assert (
        again.ops == plan.ops
        and again.host_segments == plan.host_segments
        and again.order == plan.order
        and again.program == plan.program
    )
    numbers = ("arena_bytes", "held_bytes", "bytes_in", "bytes_out", "rematerialized")
    assert [getattr(again, n) for n in numbers] == [getattr(plan, n) for n in numbers]


def test_some_plans_here_copy_and_some_rematerialize():
    plans = [planned(net, kind)[0] for net in NETS for kind in SETTINGS]
    assert any(p.bytes_out for p in plans) and any(p.rematerialized for p in plans)
    assert any(op.inplace_reuses for p in plans for op in p.ops)


# -- in training ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("net", NETS)
def test_a_run_writes_it_and_the_next_replays_it(net, tmp_path, monkeypatch):
    file = tmp_path / "lms.plan"
    lms = lms_of(net, "auto", plan_file=str(file))
    first = make_solver(net, SimDevice(64 << 20), lms)
    plan = first.net.memory.plans()["train"]
    assert train(first, ITERATIONS) == without(net)
    text = file.read_text()
    monkeypatch.setattr("pycaffe_lms.lms.planner.choose.optimise", None)  # nobody plans
    second = make_solver(net, SimDevice(64 << 20, order="random", seed=3), lms)
    assert second.net.memory.plans()["train"] == dataclasses.replace(plan, rules=f"written in {file}")
    assert train(second, ITERATIONS) == without(net)
    assert file.read_text() == text


@pytest.mark.parametrize("options", [{"iter_size": 3}, {"clip_gradients": 0.5}])
def test_programs_of_other_settings(options, tmp_path):
    file = tmp_path / "lms.plan"
    lms = lms_of("residual", plan_file=str(file))
    for _ in range(2):
        assert train(make_solver("residual", SimDevice(64 << 20), lms, **options), 2) == without("residual", **options)
    names = re.findall(r'^  name: "(.*)"$', file.read_text(), re.M)
    assert names == (["train first", "train more", "train last"] if "iter_size" in options else ["train, update apart"])
    with pytest.raises(PlanError, match='no plan of program "train"'):
        make_solver("residual", SimDevice(64 << 20), lms)


@pytest.mark.parametrize("net", NETS)
def test_a_plan_with_remats(net, tmp_path):
    file = tmp_path / "lms.plan"
    file.write_text(text_of(net, "slow link"))
    solver = make_solver(net, SimDevice(64 << 20), lms_of(net, plan_file=str(file)))
    assert solver.net.memory.plans()["train"].order == planned(net, "slow link")[0].order
    assert train(solver, ITERATIONS) == without(net)


def test_remats_of_the_wrong_value():
    """A remat that runs a step too late, when what it reads has changed or gone, is found."""
    text = text_of("residual", "slow link")
    again = re.search(r"  step \{ (.* again: \d+) \}.*\n", text)
    steps = re.findall(r"  step .*\n", text)
    moved = text.replace(again[0], "").replace(steps[-1], steps[-1] + again[0])
    with pytest.raises(PlanError, match="my.plan"):
        read(moved, "residual", "slow link")
    off = planned("residual", "slow link")[1]
    with pytest.raises(PlanError, match="it cannot, or -lms_recompute is off"):
        plan_from(parse_plan(text, "my.plan")["train"], *off[:2], {}, off[3])


def test_measured_times_do_not_replace_a_replayed_plan(tmp_path):
    file = tmp_path / "lms.plan"
    lms = lms_of("residual", "auto", plan_file=str(file))
    file.write_text(text_of("residual", "auto"))
    solver = make_solver("residual", SimDevice(64 << 20), lms)
    plan = solver.net.memory.plans()["train"]
    train(solver, 6)
    assert solver.net.memory.plans()["train"] is plan and file.read_text() == text_of("residual", "auto")


def test_a_plan_that_was_made_better_is_written_again(tmp_path, monkeypatch):
    """Predictions are far off, so that measured times lead to another plan."""
    wrong = dataclasses.replace(MACHINES["h200"], launch_s=1e-12, memory_rate=1e18, product_rate=1e18)
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: wrong)
    file = tmp_path / "lms.plan"
    solver = make_solver("residual", SimDevice(64 << 20), lms_of("residual", "auto", plan_file=str(file)))
    before, first = file.read_text(), solver.net.memory.plans()["train"]
    train(solver, 6)
    assert solver.net.memory.plans()["train"] is not first
    body = file.read_text().split("version:")[1]
    assert body != before.split("version:")[1]
    assert program_message(solver.net.memory.plans()["train"]) == parse_plan(file.read_text(), "f")["train"].message


def test_it_needs_lms():
    with pytest.raises(UsageError, match="-lms_plan has no effect without -lms"):
        LMSConfig(plan_file="x")


def test_on_the_cpu_nothing_is_written(tmp_path, caplog):
    lms = LMSConfig(threshold_kb=1, plan_file=str(tmp_path / "lms.plan"))
    make_solver("residual", get_device("cpu"), lms)
    assert "nothing is managed, so no plan is written" in caplog.text and not list(tmp_path.iterdir())


# -- what is wrong is said -------------------------------------------------------------------------------------------
def _edit(text: str, pattern: str, replacement: str) -> tuple[str, int]:
    """(text with the first match replaced, the line of it)."""
    match = re.search(pattern, text, re.M)
    assert match, pattern
    return text[: match.start()] + match.expand(replacement) + text[match.end() :], text[: match.start()].count(
        "\n"
    ) + 1


WRONG = [
    (r"version: 1", "version: 2", "is of version 2, not 1", False),
    (r"version: 1\n", "", "has no version", False),
    (r"arena_bytes", "arena_byte", "not a plan", True),
    (r'buffer \{ name: "[\w.]+" bytes', 'buffer { name: "who" bytes', 'no managed buffer "who"', True),
    (r"(buffer \{ name: \"[\w.]+\" bytes: )\d+", r"\g<1>7", "bytes in the net, 7 in the plan", True),
    (r"^  (buffer .*)$", r"  \1 \1", "is there twice", True),
    (r"^  buffer .*\n", "", "is managed in the net, and not in the plan", False),
    (r'step \{ name: "\w+:\w+" \}', 'step { name: "forward:who" }', 'not "forward:who"', True),
    (r"^  step .*\n", "", "of the program is", True),
    (r"^  step \{ (.*) \}", r"  step { \1 } step { name: 'forward:data' again: 0 }", "to run again: it cannot", True),
    (r"^  step \{", "  step { again: 4000000", "the program has", True),
    (r'residence \{ buffer: "[\w.]+"', 'residence { buffer: "who"', 'no managed buffer "who"', True),
    (r"offset: \d+", "offset: 8", "offset 8 is no multiple of 512", True),
    (r"offset: \d+", "offset: 18446744073709551104", "not in the arena", True),
    (r"offset: \d+", "offset: -512", "not a plan", True),
    (r"arena_bytes: \d+", "arena_bytes: 512", "not in the arena", False),
    (r"last: \d+", "last: 4294967295", "are not among", True),
    (r"first: (\d+) last: (?!\1 )(\d+)", r"first: \2 last: \2", "is used next by step", True),
    (r"^  residence .*\n", "", "is used next by step|no residence says where", False),
    (r"^  residence (.*)$", r"  residence \1 residence \1", "is used next|used next no more", True),
    (r" fetched: true", "", "fetched must be true", True),
    (r"issue: \d+", "issue: 999", "is not between", True),
]


@pytest.mark.parametrize("pattern, replacement, said, exact", WRONG)
def test_an_edit_that_is_wrong(pattern, replacement, said, exact):
    text, line = _edit(text_of("residual", "1"), pattern, replacement)
    with pytest.raises(PlanError, match=said) as caught:
        read(text, "residual", "1")
    where = caught.value.where
    assert where.file == "my.plan" and caught.value.fix
    if exact:
        assert where.line == line


def test_overlapping_stays_name_both():
    """Everything at offset 0."""
    text = re.sub(r"offset: \d+", "offset: 0", text_of("residual", "1"))
    with pytest.raises(PlanError, match='"[\\w.()]+" and "[\\w.()]+" overlap from step') as caught:
        read(text, "residual", "1")
    line = text.splitlines()[caught.value.where.line - 1]
    assert line.strip().startswith("residence")


def test_a_plan_of_another_net():
    with pytest.raises(PlanError) as caught:
        plan_from(parse_plan(text_of("chain", "1"), "my.plan")["train"], *planned("residual", "1")[1])
    assert caught.value.where.line and "delete the file" in caught.value.fix


def test_a_larger_plan_than_the_budget(tmp_path):
    file = tmp_path / "lms.plan"
    file.write_text(text_of("residual", "1"))
    lms = LMSConfig(threshold_kb=1, budget=budget_of("residual") - 8192, plan_file=str(file))
    with pytest.raises(PlanError, match="of device memory for managed buffers") as caught:
        make_solver("residual", SimDevice(64 << 20), lms)
    assert caught.value.where.file == str(file)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"hello", b"program {", b"version: 1", b"\0" * 100])
def test_what_is_no_plan(content, tmp_path):
    file = tmp_path / "lms.plan"
    file.write_bytes(content)
    with pytest.raises(PlanError) as caught:
        make_solver("chain", SimDevice(64 << 20), LMSConfig(threshold_kb=1, plan_file=str(file)))
    assert caught.value.where.file == str(file)


def test_two_plans_of_one_program():
    text = text_of("chain", "1")
    with pytest.raises(PlanError, match='two plans of program "train"'):
        parse_plan(text + text.split("\n", 3)[3], "my.plan")


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_is_an_error_or_harmless(seed):
    """Whatever is edited, the answer is an error that names the file, or a plan that was proved."""
    rng = seeded(seed)
    net, kind = rng.choice(list(NETS)), rng.choice(list(SETTINGS))
    lines = text_of(net, kind).splitlines()
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(lines))
        numbers = list(re.finditer(r"\d+", lines[i]))
        what = rng.randrange(4)
        if what == 0:
            del lines[i]
        elif what == 1:
            lines.insert(i, rng.choice(lines))
        elif what == 2 and numbers:
            at = rng.choice(numbers)
            new = rng.choice([0, 1, int(at[0]) + 1, max(0, int(at[0]) - 1), 512 * rng.randrange(200), 1 << 40])
            lines[i] = lines[i][: at.start()] + str(new) + lines[i][at.end() :]
        else:
            j = rng.randrange(len(lines[i]) + 1)
            lines[i] = lines[i][:j] + rng.choice('{}":x7 #') + lines[i][j:]
    try:
        programs = parse_plan("\n".join(lines), "my.plan")
        if "train" in programs:
            plan_from(programs["train"], *planned(net, kind)[1])
    except PlanError as error:
        assert error.where.file == "my.plan"


def _split(text: str, net: str) -> str:
    """A value that stays over a gap leaves in it: its stay is cut in two. Offsets are free then, so it stays right."""
    plan, (program, buffers, _, _) = planned(net, "recompute")
    by_name = {buffer.name: b for b, buffer in buffers.items()}
    for match in re.finditer(r'  residence \{ buffer: "(.*)" first: (\d+) last: (\d+) (offset: \d+) \}\n', text):
        first, last, b = int(match[2]), int(match[3]), by_name[match[1]]
        uses = [s for s, step in enumerate(plan.program.steps) for a in step.accesses if a.buffer == b]
        for a, c in zip(uses, uses[1:], strict=False):
            if first <= a < c - 1 and c <= last:
                left = f'  residence {{ buffer: "{match[1]}" first: {first} last: {a} {match[4]} }}\n'
                right = f'  residence {{ buffer: "{match[1]}" first: {c} last: {last} {match[4]} fetched: true }}\n'
                return text[: match.start()] + left + right + text[match.end() :]
    raise AssertionError("no stay spans a gap")


def test_an_edited_plan_trains_to_the_same_bits(tmp_path):
    net = "residual"
    text = _split(text_of(net, "recompute"), net)
    file = tmp_path / "lms.plan"
    file.write_text(text)
    solver = make_solver(net, SimDevice(64 << 20, order="random", seed=1), lms_of(net, plan_file=str(file)))
    plan, before = solver.net.memory.plans()["train"], planned(net, "recompute")[0]
    assert plan.bytes_in + plan.bytes_out > before.bytes_in + before.bytes_out
    assert train(solver, ITERATIONS) == without(net)
