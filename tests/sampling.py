"""How much of a long sweep runs: an even sample by default, all the rest with `pytest -m thorough`.

tools/mutants.py says what a sample finds: run it with the sample, then with `-m thorough` for what survived."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest

SAMPLED = {
    "cli/test_hostile_input.py": 5,
    "cli/test_plan_page.py": 11,
    "cli/test_train_digits.py": 7,
    "cli/test_train_snapshots.py": 7,
    "data/test_hdf5_batches.py": 11,
    "data/test_prefetch.py": 7,
    "data/test_window_batches.py": 11,
    "docs/test_code_blocks.py": 11,
    "faults/test_one_process.py": 7,
    "faults/test_same_solver.py": 7,
    "faults/test_two_ranks.py": 7,
    "language/test_generate.py": 5,
    "layers/test_channels_last.py": 7,
    "layers/test_filter.py": 7,
    "layers/test_linear_softmax_loss.py": 7,
    "layers/test_multibox_loss.py": 11,
    "layers/test_pooling_nd.py": 7,
    "layers/test_python_layer.py": 7,
    "layers/test_roi_align.py": 7,
    "layers/test_scale.py": 7,
    "layers/test_separate_gradients.py": 7,
    "layers/test_transform_param.py": 7,
    "layers/test_video_segments.py": 7,
    "lms/test_auto.py": 7,
    "lms/test_bfloat16.py": 7,
    "lms/test_blocks.py": 11,
    "lms/test_carry_over.py": 7,
    "lms/test_changing_shapes.py": 13,
    "lms/test_compression.py": 7,
    "lms/test_copy_reordering_nets.py": 7,
    "lms/test_dropped_gradients.py": 7,
    "lms/test_equality.py": 11,
    "lms/test_host_slots.py": 5,
    "lms/test_kept_plans.py": 7,
    "lms/test_lms_param.py": 7,
    "lms/test_memory_owners.py": 7,
    "lms/test_neuron_layers.py": 7,
    "lms/test_optimise.py": 7,
    "lms/test_parts_combined.py": 7,
    "lms/test_planfile.py": 7,
    "lms/test_planfile_edits.py": 7,
    "lms/test_planner.py": 5,
    "lms/test_rearranging_layers.py": 7,
    "lms/test_recurrent_nets.py": 5,
    "lms/test_region_layers.py": 7,
    "lms/test_remat.py": 7,
    "lms/test_same_bits.py": 7,
    "lms/test_shape_layers.py": 7,
    "lms/test_slabs.py": 7,
    "lms/test_split.py": 7,
    "lms/test_split_backward.py": 7,
    "lms/test_split_layers.py": 11,
    "lms/test_transformer_layers.py": 5,
    "models/test_figures.py": 7,
    "models/test_flops.py": 7,
    "models/test_lms.py": 11,
    "models/test_runs.py": 11,
    "models/test_sizes.py": 11,
    "net/test_branch_stream.py": 7,
    "net/test_buffer_views.py": 13,
    "net/test_delayed_steps.py": 7,
    "net/test_exported_views.py": 5,
    "net/test_exported_views_random.py": 5,
    "net/test_gradient_versions.py": 11,
    "net/test_joined_gradients.py": 7,
    "net/test_long_nets.py": 5,
    "net/test_masks.py": 7,
    "net/test_param_orders.py": 7,
    "net/test_partial.py": 11,
    "net/test_rearranged.py": 9,
    "net/test_replay.py": 11,
    "net/test_replay_by_hand.py": 7,
    "net/test_replay_lms.py": 11,
    "net/test_split_backward.py": 11,
    "onnx_export/test_models.py": 7,
    "ops/test_attention_products.py": 7,
    "ops/test_bits.py": 7,
    "ops/test_depthwise_kernels.py": 7,
    "ops/test_detection_kernels.py": 5,
    "ops/test_few_channels.py": 5,
    "ops/test_fork_kernels.py": 5,
    "ops/test_fused_norm.py": 11,
    "ops/test_sync_norm.py": 7,
    "ops/test_update.py": 11,
    "ops/test_winograd.py": 11,
    "parallel/test_data_parallel.py": 7,
    "parallel/test_launch.py": 5,
    "parallel/test_mpi_faults.py": 7,
    "parallel/test_mpi_hosts.py": 5,
    "parallel/test_mpi_train.py": 7,
    "parallel/test_pulse.py": 5,
    "parallel/test_rank_report.py": 5,
    "parallel/test_records.py": 7,
    "parallel/test_shard_history.py": 7,
    "parallel/test_sync_batch_norm.py": 11,
    "parallel/test_virtual_ranks.py": 7,
    "real/test_material.py": 7,
    "solvers/test_debug.py": 7,
    "solvers/test_face.py": 7,
    "solvers/test_loss_watch.py": 7,
    "solvers/test_param_orders.py": 7,
    "solvers/test_resume.py": 11,
    "solvers/test_sgd.py": 7,
    "solvers/test_signals.py": 7,
    "solvers/test_snapshots_behind.py": 7,
    "solvers/test_snapshots_leaving.py": 9,
    "solvers/test_states.py": 7,
    "solvers/test_types.py": 11,
    "test_net_spec_types.py": 9,
    "tools/test_fuzz.py": 5,
}
"""Of each parametrised test of these files, the first and each n-th case run by default; the others are thorough.

Odd, so that steps through a grid of cases do not always meet the same column."""

LONG = (
    "cli/test_plan.py::test_a_sweep_is_what_single_plans_say",
    "cli/test_plan_page.py::test_the_page_in_the_docs_is_what_is_printed",
    "cli/test_stuck_ranks.py::test_a_killed_run_leaves_no_process_and_no_folder",
    "cli/test_stuck_ranks.py::test_a_rank_that_is_stopped_for_a_while_is_waited_for",
    "cli/test_stuck_ranks.py::test_a_stopped_rank_is_named_and_ends_the_run_in_time",
    "cli/test_train_ranks.py::test_two_processes_are_as_one_with_twice_the_batch",
    "data/test_datasets.py::test_real_mnist_test_part",
    "lms/test_changing_shapes.py::test_plans_of_another_net_are_made_anew",
    "lms/test_copy_reordering.py::test_there_and_back",
    "lms/test_copy_reordering.py::test_wrong_parts_are_found",
    "lms/test_copy_reordering_nets.py::test_a_net_of_the_model_zoo",
    "lms/test_search.py::test_the_best_of_what_was_tried_counts_and_it_is_no_worse_than_the_first",
    "lms/test_split_backward.py::test_a_file_says_which_program_it_is_of",
    "models/test_figures.py::test_in_core_is_what_training_without_lms_takes",
    "models/test_models_current.py::test_check_names_what_changed_and_writes_nothing",
    "net/test_concurrent.py::test_two_processes",
    "net/test_replay_lms.py::test_random_orders",
    "parallel/test_mpi.py::test_ranks_on_gpus_find_out_who_is_late",
    "parallel/test_mpi_faults.py::test_a_rank_that_hangs",
    "parallel/test_mpi_hosts.py::test_a_rank_that_hangs_is_named_with_its_host",
    "parallel/test_mpi_python.py::test_the_bits_of_the_command",
    "parallel/test_mpi_train.py::test_commands_of_one_process",
    "parallel/test_pulse.py::test_a_rank_that_is_stopped",
    "solvers/test_signals.py::test_sigint_as_snapshot_and_sighup_as_stop",
    "solvers/test_signals.py::test_snapshot_and_stop_for_the_other_signals",
    "test_architecture.py::test_sizes_may_be_off_by_a_tenth_and_nothing_else",
    "test_layer_docs.py::test_check_writes_nothing",
    "test_net_spec_types.py::test_mypy_knows_the_keywords",
    "test_search_path.py::test_both_commands_import_the_same",
    "tools/test_scaling.py::test_a_small_run",
    "tutorials/test_learning_lenet.py::test_it_learns",
)
"""Tests that are thorough in all their cases."""


_CHOICE = re.compile(r": ([A-Z][A-Z_]+)\b")  # a value of an enumeration


def leave_the_rest(items: Sequence[pytest.Item]) -> None:
    """Mark as thorough what `SAMPLED` and `LONG` leave out. Cases that need a GPU are not counted, and all stay."""
    counted: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0].removeprefix("tests/")
        every = 0 if test in LONG else SAMPLED.get(test.partition("::")[0], 1)
        if item.get_closest_marker("thorough") or item.get_closest_marker("gpu"):
            continue
        if every == 0 or counted[test] % every:
            item.add_marker(pytest.mark.thorough)
        counted[test] += 1


def of_a_gpu(items: Sequence[pytest.Item], markers: str) -> list[pytest.Item]:
    """Return the tests that need a GPU, to be left out where there is none; none if `-m` says "gpu": these skip."""
    return [] if "gpu" in markers else [item for item in items if item.get_closest_marker("gpu")]


def sample(name: str, cases: Sequence, few: int, also: Collection = ()) -> pytest.MarkDecorator:
    """Parametrise with a tuple of `few` of the cases and those in `also`, and with one of all others, which is
    thorough."""
    chosen = sorted({len(cases) * k // few for k in range(few)} | {cases.index(case) for case in also})
    others = sorted(set(range(len(cases))) - set(chosen))
    some, rest = (tuple(cases[i] for i in indices) for indices in (chosen, others))
    return pytest.mark.parametrize(
        name, [pytest.param(some, id="sample"), pytest.param(rest, id="rest", marks=pytest.mark.thorough)]
    )


def of_each_type(cases: Iterable[tuple[str, Any]], every: int) -> list:
    """Return (name, case) pairs of layers as parameters: of every type the first with each choice that its text makes
    (`operation: PROD`), and each `every`-th run by default.

    The others are thorough."""
    seen, params = set(), []
    for k, (name, case) in enumerate(cases):
        kind = case.type, *_CHOICE.findall(case.text)
        chosen = kind not in seen or k % every == 0
        seen.add(kind)
        params.append(pytest.param(case, id=name, marks=() if chosen else pytest.mark.thorough))
    return params
