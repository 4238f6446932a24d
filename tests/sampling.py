"""How much of a long sweep runs: an even sample by default, all the rest with `pytest -m thorough`.

tools/mutants.py says what a sample finds: run it with the sample, then with `-m thorough` for what survived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest

SAMPLED = {
    "cli/test_hostile_input.py": 2,
    "cli/test_plan_page.py": 5,
    "cli/test_train_digits.py": 3,
    "cli/test_train_snapshots.py": 3,
    "data/test_hdf5_batches.py": 5,
    "data/test_prefetch.py": 3,
    "data/test_window_batches.py": 5,
    "docs/test_code_blocks.py": 6,
    "faults/test_one_process.py": 3,
    "faults/test_same_solver.py": 3,
    "faults/test_two_ranks.py": 3,
    "language/test_generate.py": 2,
    "layers/test_channels_last.py": 3,
    "layers/test_filter.py": 3,
    "layers/test_linear_softmax_loss.py": 3,
    "layers/test_multibox_loss.py": 5,
    "layers/test_pooling_nd.py": 3,
    "layers/test_python_layer.py": 3,
    "layers/test_roi_align.py": 3,
    "layers/test_scale.py": 3,
    "layers/test_separate_gradients.py": 3,
    "layers/test_transform_param.py": 3,
    "layers/test_video_segments.py": 3,
    "lms/test_auto.py": 3,
    "lms/test_bfloat16.py": 3,
    "lms/test_blocks.py": 5,
    "lms/test_carry_over.py": 3,
    "lms/test_changing_shapes.py": 7,
    "lms/test_compression.py": 3,
    "lms/test_copy_reordering_nets.py": 3,
    "lms/test_dropped_gradients.py": 3,
    "lms/test_equality.py": 5,
    "lms/test_host_slots.py": 2,
    "lms/test_kept_plans.py": 3,
    "lms/test_lms_param.py": 3,
    "lms/test_memory_owners.py": 3,
    "lms/test_neuron_layers.py": 3,
    "lms/test_optimise.py": 3,
    "lms/test_parts_combined.py": 3,
    "lms/test_planfile.py": 3,
    "lms/test_planfile_edits.py": 3,
    "lms/test_planner.py": 3,
    "lms/test_rearranging_layers.py": 3,
    "lms/test_recurrent_nets.py": 2,
    "lms/test_region_layers.py": 3,
    "lms/test_remat.py": 3,
    "lms/test_same_bits.py": 3,
    "lms/test_shape_layers.py": 3,
    "lms/test_slabs.py": 3,
    "lms/test_split.py": 3,
    "lms/test_split_backward.py": 3,
    "lms/test_split_layers.py": 5,
    "lms/test_transformer_layers.py": 2,
    "models/test_figures.py": 3,
    "models/test_flops.py": 3,
    "models/test_lms.py": 5,
    "models/test_runs.py": 6,
    "models/test_sizes.py": 5,
    "net/test_branch_stream.py": 3,
    "net/test_buffer_views.py": 7,
    "net/test_delayed_steps.py": 3,
    "net/test_exported_views.py": 2,
    "net/test_exported_views_random.py": 2,
    "net/test_gradient_versions.py": 6,
    "net/test_joined_gradients.py": 3,
    "net/test_long_nets.py": 2,
    "net/test_masks.py": 3,
    "net/test_param_orders.py": 3,
    "net/test_partial.py": 5,
    "net/test_rearranged.py": 4,
    "net/test_replay.py": 5,
    "net/test_replay_by_hand.py": 3,
    "net/test_replay_lms.py": 5,
    "net/test_split_backward.py": 5,
    "onnx_export/test_models.py": 3,
    "ops/test_attention_products.py": 3,
    "ops/test_bits.py": 3,
    "ops/test_depthwise_kernels.py": 3,
    "ops/test_detection_kernels.py": 2,
    "ops/test_few_channels.py": 2,
    "ops/test_fork_kernels.py": 2,
    "ops/test_fused_norm.py": 5,
    "ops/test_sync_norm.py": 3,
    "ops/test_update.py": 5,
    "ops/test_winograd.py": 5,
    "parallel/test_data_parallel.py": 3,
    "parallel/test_launch.py": 2,
    "parallel/test_mpi_faults.py": 3,
    "parallel/test_mpi_hosts.py": 2,
    "parallel/test_mpi_train.py": 3,
    "parallel/test_pulse.py": 2,
    "parallel/test_rank_report.py": 2,
    "parallel/test_records.py": 3,
    "parallel/test_shard_history.py": 3,
    "parallel/test_sync_batch_norm.py": 5,
    "parallel/test_virtual_ranks.py": 3,
    "real/test_material.py": 3,
    "solvers/test_debug.py": 3,
    "solvers/test_face.py": 3,
    "solvers/test_loss_watch.py": 3,
    "solvers/test_param_orders.py": 3,
    "solvers/test_resume.py": 5,
    "solvers/test_sgd.py": 3,
    "solvers/test_signals.py": 3,
    "solvers/test_snapshots_behind.py": 3,
    "solvers/test_snapshots_leaving.py": 4,
    "solvers/test_states.py": 3,
    "solvers/test_types.py": 5,
    "test_net_spec_types.py": 4,
    "tools/test_fuzz.py": 2,
}
"""Of each parametrised test of these files, the first and each n-th case run by default; the others are thorough."""

LONG = (
    "cli/test_plan.py::test_a_sweep_is_what_single_plans_say",
    "cli/test_plan_page.py::test_the_page_in_the_docs_is_what_is_printed",
    "cli/test_stuck_ranks.py::test_a_killed_run_leaves_no_process_and_no_folder",
    "cli/test_stuck_ranks.py::test_a_rank_that_is_stopped_for_a_while_is_waited_for",
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
    """Return (name, case) pairs of layers as parameters: the first of every type and each `every`-th run by default.

    The others are thorough."""
    seen, params = set(), []
    for k, (name, case) in enumerate(cases):
        chosen = case.type not in seen or k % every == 0
        seen.add(case.type)
        params.append(pytest.param(case, id=name, marks=() if chosen else pytest.mark.thorough))
    return params
