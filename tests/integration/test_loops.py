"""What is recorded of many kinds of loops: exact counts, and time where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from integration.harness import SCRIPTS, begin, finish
from traceml_ai.schema.facts import ProcessFacts
from traceml_ai.schema.step import EXCLUSIVE_COLUMNS, INDEX, Flags
from traceml_ai.spool.reader import Header, open_spool, read_facts


class Loop(NamedTuple):
    """What one loop left behind.

    Attributes:
        code: Its exit code.
        steps: Its closed steps, ``(n, 48)``.
        header: Of its step log.
        facts: What it said of itself.
        stderr: What it wrote on standard error.
    """

    code: int
    steps: NDArray[np.int64]
    header: Header | None
    facts: ProcessFacts
    stderr: str

    def total(self, column: str) -> int:
        return int(self.steps[:, INDEX[column]].sum())

    def ms(self, column: str) -> float:
        """Median of a column over the steps but for the first two, which find the model."""
        return float(np.median(self.steps[2:, INDEX[column]])) / 1e6

    def all_ms(self, column: str) -> float:
        return self.total(column) / 1e6

    def seen(self, column: str) -> int:
        return int((self.steps[:, INDEX[column]] > 0).sum())

    def flagged(self, flag: Flags) -> int:
        return int(((self.steps[:, INDEX["flags"]] & int(flag)) > 0).sum())


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Loop]:
    folder = tmp_path_factory.mktemp("loops")
    run = finish(begin(SCRIPTS / "loops.py", folder, traced=True), folder)
    assert run.code == 0, run.stderr
    readers = {reader.pid: reader for reader in open_spool(folder / "spool")}
    return {name: _loop(folder, name, pid, code, readers) for name, (pid, code) in run.found.items()}


def _loop(folder: Path, name: str, pid: int, code: int, readers: Mapping[int, Any]) -> Loop:
    reader = readers.get(pid)
    records = np.empty((0, len(INDEX)), dtype=np.int64) if reader is None else reader.read_rest()
    return Loop(
        code,
        records[(records[:, INDEX["flags"]] & int(Flags.TAIL)) == 0],
        None if reader is None else reader.header,
        read_facts(folder / "spool", pid),
        (folder / f"loop_{name}.stderr").read_text(),
    )


# steps, updates, microbatches, fetches
COUNTS = {
    "plain": (60, 60, 60, 60),
    "accumulate_2": (30, 30, 60, 60),
    "accumulate_4": (15, 15, 60, 60),
    "accumulate_8_with_a_short_last_group": (8, 8, 60, 60),
    "accumulate_without_a_loader": (15, 15, 60, 0),
    "gan": (60, 120, 60, 60),
    "gan_with_two_backwards_for_the_critic": (60, 120, 60, 60),
    "generator_every_fifth_batch": (60, 72, 60, 60),
    "five_critic_updates_on_each_batch": (60, 360, 60, 60),
    "two_optimizers": (60, 120, 60, 60),
    "lbfgs": (60, 60, 60, 60),
    "scaler_with_two_infinite_steps": (60, 58, 60, 60),
    "optimizer_that_works_every_fourth_call": (15, 15, 60, 60),
    "wrapper_that_steps_every_fourth_call": (15, 15, 60, 60),
    # Updates by hand can't be seen: the backwards make the steps, and `updates` stays empty.
    "update_by_hand": (60, 0, 60, 60),
    "update_of_data_by_hand": (60, 0, 60, 60),
    "raw_tensors": (60, 0, 60, 60),
    "raw_tensors_without_a_loader": (60, 0, 60, 0),
    "autograd_grad_only": (60, 0, 60, 60),
    "gradient_penalty": (60, 60, 60, 60),
    "backward_twice_on_one_graph": (60, 60, 60, 60),
    # A second update on a batch is a step of its own where one update a batch is the habit.
    "batch_used_again_now_and_then": (62, 62, 62, 60),
    # The last batch is fetched, skipped, and belongs to no step.
    "batches_skipped": (50, 50, 50, 59),
    "two_loaders_zipped": (60, 60, 60, 120),
    "nested_loaders": (60, 60, 60, 66),
    "stream_without_length": (60, 60, 60, 60),
    "persistent_workers_over_five_epochs": (60, 60, 60, 60),
    "workers_that_start_again_each_epoch": (60, 60, 60, 60),
    "next_by_hand": (60, 60, 60, 60),
    "one_batch_ahead": (60, 60, 60, 60),
    "short_epochs_fetched_ahead": (60, 60, 60, 60),
    "groups_of_short_epochs_fetched_ahead": (36, 36, 60, 60),
    "gan_of_short_epochs_fetched_ahead": (60, 120, 60, 60),
    "list_of_batches": (60, 60, 60, 0),
    "validation_after_each_epoch": (60, 60, 60, 60),
    "validation_without_no_grad": (60, 60, 60, 60),
    "validation_that_forgets_eval": (60, 60, 60, 60),
    "validation_every_ten_steps": (60, 60, 60, 60),
    "validation_inside_marked_steps": (60, 60, 60, 60),
    "slow_loader": (60, 60, 60, 60),
    "checkpointing_reentrant": (30, 30, 30, 30),
    "checkpointing": (30, 30, 30, 30),
    "nested_1": (30, 30, 30, 30),
    "nested_3": (30, 30, 30, 30),
    "nested_5": (30, 30, 30, 30),
    "average_and_teacher": (40, 40, 40, 40),
    "model_inside_a_wrapper": (30, 30, 30, 30),
    "encoder_and_decoder_called_apart": (30, 30, 30, 30),
    "container_that_is_never_called": (30, 30, 30, 30),
    "method_that_is_not_forward": (30, 30, 30, 30),
    "twelve_folds_with_a_new_model_each": (120, 120, 120, 120),
    "model_in_eval_mode_is_trained": (60, 60, 60, 60),
    "functional_call": (60, 60, 60, 60),
    "direct_forward_now_and_then": (60, 60, 60, 60),
    "scripted_model": (60, 60, 60, 60),
    "reinforcement": (60, 60, 60, 0),
    "error_caught_in_a_batch": (59, 59, 59, 59),
    "error_in_the_backward_is_caught": (58, 58, 58, 58),
    "ends_by_an_exception": (50, 50, 50, 50),
    "ends_by_an_exception_in_the_optimizer": (50, 50, 50, 50),
    "ends_by_break_after_a_fetch": (50, 50, 50, 50),
    "marked": (60, 60, 60, 60),
    "marked_microbatches": (60, 15, 60, 60),
    "marked_groups": (15, 15, 60, 60),
    "marked_steps_inside_one_another": (60, 60, 60, 60),
    "marked_after_twenty_plain_steps": (60, 60, 60, 60),
    "marked_with_an_error": (58, 58, 58, 58),
    "marked_on_another_thread": (60, 60, 60, 60),
    "named_phases": (30, 30, 30, 30),
    "ten_named_phases": (30, 30, 30, 30),
    "wrapped_list": (60, 60, 60, 60),
    "wrapped_generator": (30, 30, 30, 30),
    "wrapped_loader_is_refused": (60, 60, 60, 60),
    "prefetch_thread": (30, 30, 30, 0),
    # Which thread trains is known from its first backward: the fetch before was not seen.
    "training_on_another_thread": (60, 60, 60, 59),
    "init_twice_and_in_conflict": (60, 60, 60, 60),
    "init_manual": (40, 0, 0, 0),
    "init_selective": (60, 60, 0, 0),
    "saves_checkpoints": (60, 60, 60, 60),
    "saves_safetensors": (60, 60, 60, 60),
    "collects_garbage": (60, 60, 60, 60),
    "much_garbage": (300, 300, 300, 300),
    "update_by_hand_after_an_optimizer_is_gone": (65, 5, 65, 65),
    "trains_after_inference": (60, 60, 60, 60),
    "two_epochs_on_one_loader_with_inference_between": (60, 60, 60, 60),
}
STILL_OPEN: dict[str, str] = {}
ABORTED = {
    "error_caught_in_a_batch": 1,
    "error_in_the_backward_is_caught": 2,
    "ends_by_an_exception": 1,
    "ends_by_an_exception_in_the_optimizer": 1,
    "marked_with_an_error": 2,
}
FAILS = {"ends_by_an_exception", "ends_by_an_exception_in_the_optimizer"}


def _cases(names: Any, still_open: Mapping[str, str]) -> list[Any]:
    return [
        pytest.param(n, marks=[pytest.mark.xfail(reason=still_open[n])] if n in still_open else [])
        for n in names
    ]


@pytest.mark.parametrize("name", _cases(COUNTS, STILL_OPEN))
def test_counts_are_exact(loops: Mapping[str, Loop], name: str) -> None:
    loop = loops[name]

    counts = (len(loop.steps), *(loop.total(c) for c in ("updates", "microbatches", "fetches")))

    assert loop.code == (name in FAILS), loop.stderr
    assert counts == COUNTS[name]
    assert loop.header is not None
    assert loop.header.aborted == ABORTED.get(name, 0)


@pytest.mark.parametrize(
    "name",
    _cases(COUNTS, {}),
)
def test_time_is_booked_once_and_never_negative(loops: Mapping[str, Loop], name: str) -> None:
    steps = loops[name].steps

    assert (steps[:, [INDEX[c] for c in EXCLUSIVE_COLUMNS]] >= 0).all()
    # Each record takes up where the one before ended.
    gaps = steps[1:, INDEX["begin_ns"]] - steps[:-1, INDEX["close_ns"]]
    assert gaps.tolist() == [0] * len(gaps)


def test_skipped_updates_are_flagged(loops: Mapping[str, Loop]) -> None:
    assert loops["scaler_with_two_infinite_steps"].flagged(Flags.UPDATE_SKIPPED) == 2
    assert loops["plain"].flagged(Flags.UPDATE_SKIPPED) == 0


def test_the_first_step_of_each_epoch_is_flagged(loops: Mapping[str, Loop]) -> None:
    assert loops["persistent_workers_over_five_epochs"].flagged(Flags.FIRST_OF_EPOCH) == 5
    assert loops["workers_that_start_again_each_epoch"].flagged(Flags.FIRST_OF_EPOCH) == 3


def test_a_slow_loader_is_waited_for(loops: Mapping[str, Loop]) -> None:
    assert 2 < loops["slow_loader"].ms("input_wait_ns") < 5
    assert 2 < loops["wrapped_generator"].ms("input_wait_ns") < 5


def test_what_another_thread_fetches_is_no_wait(loops: Mapping[str, Loop]) -> None:
    assert loops["prefetch_thread"].all_ms("input_wait_ns") == 0


VALIDATED = {
    "validation_after_each_epoch": 3 * 20 * 2,
    "validation_without_no_grad": 3 * 20 * 2,
    "validation_that_forgets_eval": 3 * 20 * 2,
    "validation_every_ten_steps": 6 * 8 * 2,
}


@pytest.mark.parametrize("name", VALIDATED)
def test_validation_between_steps_is_no_input(loops: Mapping[str, Loop], name: str) -> None:
    """The last validation follows the last step, and is not in a step's record."""
    loop = loops[name]
    share = 5 / 6 if "ten" in name else 2 / 3

    assert loop.all_ms("between_validation_ns") > 0.95 * share * VALIDATED[name]
    assert loop.all_ms("input_wait_ns") < 0.2 * VALIDATED[name]


def test_validation_inside_a_marked_step_is_residual(loops: Mapping[str, Loop]) -> None:
    loop = loops["validation_inside_marked_steps"]

    assert loop.all_ms("residual_validation_ns") > 0.95 * 6 * 8 * 2
    assert loop.all_ms("between_validation_ns") < 5


@pytest.mark.parametrize("name", ["checkpointing", "checkpointing_reentrant"])
def test_what_checkpointing_computes_again_is_backward(loops: Mapping[str, Loop], name: str) -> None:
    loop = loops[name]

    assert 2 < loop.ms("forward_ns") < 3.5
    assert 2 < loop.ms("backward_ns") < 4.5


@pytest.mark.parametrize(
    "name",
    [
        "nested_1",
        "nested_3",
        "nested_5",
        "model_inside_a_wrapper",
        "encoder_and_decoder_called_apart",
        "container_that_is_never_called",
        "method_that_is_not_forward",
    ],
)
def test_forward_is_the_outermost_call_once(loops: Mapping[str, Loop], name: str) -> None:
    loop = loops[name]

    assert loop.seen("forward_ns") >= 28
    assert 1.9 < loop.ms("forward_ns") < 3.9  # twice would be 4


def test_averages_teachers_and_losses_are_not_forward(loops: Mapping[str, Loop]) -> None:
    loop = loops["average_and_teacher"]

    assert loop.ms("forward_ns") < 0.6
    assert loop.ms("residual_other_ns") > 5.9


SEEN = {
    "plain": 59,
    "gan": 59,
    "lbfgs": 59,
    "model_in_eval_mode_is_trained": 59,
    "direct_forward_now_and_then": 57,
    "scripted_model": 59,
    "update_by_hand": 59,
    "twelve_folds_with_a_new_model_each": 108,
    "autograd_grad_only": 54,
    "marked": 60,
}


@pytest.mark.parametrize(
    "name",
    _cases(SEEN, {}),
)
def test_forward_is_seen(loops: Mapping[str, Loop], name: str) -> None:
    assert loops[name].seen("forward_ns") >= SEEN[name]


LOOKS = ("raw_tensors", "raw_tensors_without_a_loader", "functional_call", "autograd_grad_only")


@pytest.mark.parametrize("name", LOOKS)
def test_looking_for_a_model_that_is_not_there_is_cheap(loops: Mapping[str, Loop], name: str) -> None:
    """The whole cost of a short run is to stay below half a second, attaching included."""
    assert loops[name].all_ms("own_ns") < 200


def test_named_phases_hold_their_time(loops: Mapping[str, Loop]) -> None:
    loop = loops["named_phases"]

    assert loop.facts["user_phases"] == ["augment", "loss"]
    assert 1.9 < loop.ms("user_0_ns") < 3.5
    assert loop.seen("h2d_ns") == 30


def test_more_than_eight_phases_are_said(loops: Mapping[str, Loop]) -> None:
    loop = loops["ten_named_phases"]

    assert len(loop.facts["user_phases"]) == 8
    assert len(loop.facts["warnings"]) == 2


def test_a_wrapped_torch_loader_is_refused_in_one_line(loops: Mapping[str, Loop]) -> None:
    assert loops["wrapped_loader_is_refused"].stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["saves_checkpoints", "saves_safetensors"])
def test_checkpoints_between_steps_are_told(loops: Mapping[str, Loop], name: str) -> None:
    assert loops[name].all_ms("between_checkpoint_ns") > 0.1


def test_collections_inside_and_between_steps_are_told(loops: Mapping[str, Loop]) -> None:
    loop = loops["collects_garbage"]

    assert loop.total("gc_collections") >= 3
    assert loop.all_ms("gc_ns") > 1
    assert loop.all_ms("between_gc_ns") > 1


def test_inference_is_no_training(loops: Mapping[str, Loop]) -> None:
    assert len(loops["never_trains"].steps) == 0


def test_training_on_several_threads_is_said_in_words(loops: Mapping[str, Loop]) -> None:
    """The one whose backward came first is measured; that others train beside it must be said."""
    loop = loops["training_on_several_threads"]
    assert "thread" in loop.facts["warnings"][0]["message"]


@pytest.mark.parametrize("name", [n for n in COUNTS if n not in FAILS | {"wrapped_loader_is_refused"}])
def test_nothing_is_said_on_standard_error(loops: Mapping[str, Loop], name: str) -> None:
    assert loops[name].stderr == ""
