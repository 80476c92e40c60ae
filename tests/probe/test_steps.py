"""Where steps begin and end, and what each second of them is booked to, with a fake clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from probe.stage import Model, Optimizer, Parameter, Stage
from traceml_ai.schema.step import EXCLUSIVE_COLUMNS, Flags


@pytest.fixture(params=[True, False], ids=["plain", "general"])
def stage(request: Any) -> Stage:
    return Stage(plain=request.param)


def last(stage: Stage) -> dict[str, int]:
    return stage.records()[-1]


def phases(record: dict[str, int]) -> tuple[int, ...]:
    return tuple(record[n] for n in ("input_wait", "forward", "backward", "optimizer"))


def test_an_ordinary_step_is_booked_to_its_phases(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches, 40)
    records = stage.records()
    assert len(records) == 40
    for record in records[1:]:
        assert phases(record) == (10, 20, 40, 5)
        assert record["residual_other"] == 3
        assert record["between_other"] == 2
        assert (record["microbatches"], record["updates"], record["fetches"]) == (1, 1, 1)
        assert record["samples"] == 4


def test_a_step_for_which_nothing_has_a_gradient_is_no_update(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches, 40)
    stage.sgd.parameter.grad = None
    stage.sgd.every = 1 << 30
    for _ in range(3):
        stage.ordinary(batches)
    assert len(stage.records()) == 40


def test_a_parameter_that_is_frozen_meanwhile_hides_no_update(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches, 40)
    other = Parameter()
    stage.sgd.param_groups[0]["params"].append(other)
    stage.sgd.parameter.grad = None
    stage.sgd.parameter = other  # what is updated from here on
    for _ in range(30):
        stage.ordinary(batches)
    assert [record["updates"] for record in stage.records()] == [1] * 70


def test_what_came_before_the_first_step_is_start_up(stage: Stage) -> None:
    stage.spend(5_000_000)
    stage.ordinary(stage.iterate(object(), us=300))
    record = last(stage)
    assert record["between_other"] == 0
    assert record["between_loader"] == 300


def test_the_first_batch_of_a_pass_is_flagged(stage: Stage) -> None:
    for _ in range(2):
        stage.warm(stage.iterate(object()), 30)
    first = [i for i, r in enumerate(stage.records()) if r["flags"] & Flags.FIRST_OF_EPOCH]
    assert first == [0, 30]


def test_microbatches_make_one_step(stage: Stage) -> None:
    batches = stage.iterate(object())
    for _ in range(30):
        for _ in range(3):
            stage.fetch(batches, 10)
            stage.forward(20)
            stage.backward(40)
        stage.step(5)
    records = stage.records()
    assert len(records) == 30
    assert phases(records[5]) == (30, 60, 120, 5)
    assert records[5]["microbatches"] == 3


def test_two_updates_of_a_gan_are_one_step(stage: Stage) -> None:
    generator, critic = Optimizer(), Optimizer()
    batches = stage.iterate(object())
    for _ in range(30):
        stage.fetch(batches, 10)
        for optimizer in (critic, generator):
            stage.forward(20)
            stage.backward(40)
            stage.spend(1)
            stage.step(5, optimizer)
            stage.spend(2)
    records = stage.records()
    assert len(records) == 30
    assert phases(records[7]) == (10, 40, 80, 10)
    assert records[7]["updates"] == 2
    assert records[7]["microbatches"] == 1
    assert records[7]["residual_other"] == 4
    assert records[7]["between_other"] == 2


def test_several_updates_of_one_optimizer_in_a_batch_are_one_step(stage: Stage) -> None:
    batches = stage.iterate(object())
    for _ in range(10):
        stage.fetch(batches, 10)
        for _ in range(5):
            stage.forward(20)
            stage.backward(40)
            stage.step(5)
    assert len(stage.records()) == 10
    assert stage.records()[3]["updates"] == 5


def test_a_reused_batch_among_many_is_a_step_without_input(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches, 30)
    stage.forward(20)
    stage.backward(40)
    stage.step(5)
    stage.warm(batches, 5)
    records = stage.records()
    assert len(records) == 36
    assert records[30]["fetches"] == 0
    assert phases(records[30]) == (0, 20, 40, 5)


def test_a_loop_without_a_loader_has_no_input_wait() -> None:
    stage = Stage()
    for _ in range(30):
        stage.spend(50)
        stage.forward(20)
        stage.backward(40)
        stage.step(5)
    records = stage.records()
    assert len(records) == 30
    assert all(r["fetches"] == 0 for r in records)
    assert records[3]["between_other"] == 50
    assert phases(records[3]) == (0, 20, 40, 5)
    assert records[3]["microbatches"] == 1


def test_an_update_that_takes_effect_every_fourth_call_ends_a_step_then() -> None:
    stage = Stage()
    optimizer = Optimizer(every=4)
    batches = stage.iterate(object())
    for _ in range(40):
        stage.fetch(batches, 10)
        stage.forward(20)
        stage.backward(40)
        stage.step(5, optimizer)
    # Without a value to compare (no CPU tensor) the first calls count; then the counter tells.
    records = stage.records()[4:]
    assert len(records) == 9
    assert {r["microbatches"] for r in records} == {4}
    assert {r["updates"] for r in records} == {1}


def test_a_skipped_scaled_step_is_a_step_without_an_update(stage: Stage) -> None:
    batches = stage.iterate(object())
    for i in range(30):
        stage.fetch(batches, 10)
        stage.forward(20)
        stage.backward(40)
        stage.scaled_step(5, skip=i == 25)
    records = stage.records()
    assert len(records) == 30
    skipped = [i for i, r in enumerate(records) if r["flags"] & Flags.UPDATE_SKIPPED]
    assert skipped == [25]
    assert records[25]["updates"] == 0
    assert records[24]["updates"] == 1


def test_a_closure_is_forward_and_backward_inside_the_optimizer(stage: Stage) -> None:
    batches = stage.iterate(object())

    def closure() -> None:
        stage.spend(1)
        stage.forward(20)
        stage.backward(40)

    for _ in range(3):
        stage.fetch(batches, 10)
        stage.step(0, body=closure)
    assert phases(last(stage)) == (10, 20, 40, 1)
    assert last(stage)["microbatches"] == 1


def test_recomputing_a_module_in_backward_is_backward(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)
    stage.fetch(batches, 10)
    stage.forward(20)
    stage.backward(0, body=lambda: stage.forward(15))
    stage.step(5)
    assert phases(last(stage)) == (10, 20, 15, 5)


def test_a_backward_inside_forward_is_backward(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)

    def body() -> None:
        stage.spend(10)
        stage.backward(7)
        stage.spend(10)

    stage.fetch(batches, 10)
    stage.forward(0, body=body)
    stage.backward(40)
    stage.step(5)
    assert phases(last(stage)) == (10, 20, 47, 5)


def test_a_nested_call_of_a_measured_model_counts_once(stage: Stage) -> None:
    inner = Model()
    stage.measure(inner)
    batches = stage.iterate(object())
    stage.warm(batches)
    stage.fetch(batches, 10)
    stage.forward(0, body=lambda: stage.forward(20, model=inner))
    stage.backward(40)
    stage.step(5)
    assert phases(last(stage)) == (10, 20, 40, 5)


def test_validation_between_steps_is_no_training_input(stage: Stage) -> None:
    train = stage.iterate("train")
    stage.warm(train)
    held_out = stage.iterate("validation", us=7)
    with stage.evaluating():
        for _ in range(3):
            stage.fetch(held_out, 100)
            stage.forward(20)
            stage.spend(5)
        stage.end(held_out, us=1)
    stage.spend(9)
    stage.ordinary(train)
    record = last(stage)
    assert record["between_validation"] == 3 * 125 + 1
    assert record["between_other"] == 2 + 9
    assert record["between_loader"] == 7
    assert phases(record) == (10, 20, 40, 5)


def test_validation_without_a_loader_is_seen_by_its_forwards(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)
    with stage.evaluating():
        for _ in range(3):
            stage.spend(30)
            stage.forward(20)
    stage.spend(11)
    stage.ordinary(batches)
    assert last(stage)["between_validation"] == 60 + 2 * 30
    assert last(stage)["between_other"] == 2 + 30 + 11


def test_a_no_grad_call_of_the_training_model_inside_a_step_is_forward(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)
    stage.fetch(batches, 10)
    with stage.evaluating(mode=False):
        stage.forward(8)
    stage.forward(20)
    stage.backward(40)
    stage.step(5)
    assert phases(last(stage)) == (10, 28, 40, 5)


def test_reading_a_loader_without_training_is_not_input(stage: Stage) -> None:
    batches = stage.iterate(object())
    for _ in range(10):
        stage.fetch(batches, 100)
        stage.spend(1)
    stage.end(batches)
    stage.ordinary(stage.iterate(object()))
    assert last(stage)["input_wait"] == 10


def test_a_leftover_group_stays_open_over_the_epoch(stage: Stage) -> None:
    train = stage.iterate("train")
    for i in range(10):
        stage.fetch(train, 10)
        stage.forward(20)
        stage.backward(40)
        if i % 4 == 3:
            stage.step(5)
    stage.end(train)
    held_out = stage.iterate("validation")
    with stage.evaluating():
        for _ in range(3):
            stage.fetch(held_out, 100)
            stage.forward(20)
        stage.end(held_out)
    train = stage.iterate("train")
    for _ in range(2):
        stage.fetch(train, 10)
        stage.forward(20)
        stage.backward(40)
    stage.step(5)
    record = last(stage)
    assert record["microbatches"] == 4
    assert phases(record) == (40, 80, 160, 5)
    assert record["between_validation"] == 360


def test_two_loaders_of_one_step_are_both_input(stage: Stage) -> None:
    labelled, unlabelled = stage.iterate("a"), stage.iterate("b")
    for _ in range(30):
        stage.fetch(labelled, 10)
        stage.fetch(unlabelled, 30)
        stage.forward(20)
        stage.backward(40)
        stage.step(5)
    assert [phases(r) for r in stage.records()] == [(40, 20, 40, 5)] * 30


def test_fetches_on_another_thread_are_not_waited_for(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)
    stage.thread = 8
    stage.fetch(stage.iterate("in the background"), 50)
    stage.thread = 7
    stage.ordinary(batches)
    assert last(stage)["input_wait"] == 10


def test_a_loop_on_another_thread_is_measured_from_its_first_backward(stage: Stage) -> None:
    stage.fetch(stage.iterate("looked at on the main thread"), 10)
    stage.thread = 8
    batches = stage.iterate(object())
    stage.warm(batches, 30)
    stage.thread = 7
    stage.fetch(batches, 1000)
    stage.thread = 8
    stage.ordinary(batches)
    records = stage.records()
    assert len(records) == 31
    assert phases(records[0]) == (0, 0, 40, 5)
    assert {phases(r) for r in records[1:]} == {(10, 20, 40, 5)}


def test_a_backward_on_another_thread_does_not_take_a_loop_over(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches, 30)
    stage.thread = 8
    stage.backward(70)
    stage.thread = 7
    stage.ordinary(batches)
    assert len(stage.records()) == 31
    assert phases(last(stage)) == (10, 20, 40, 5)


def test_a_checkpoint_is_time_between_steps(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)
    stage.save(70)
    stage.ordinary(batches)
    assert last(stage)["between_checkpoint"] == 70
    assert last(stage)["between_other"] == 2


def test_a_hand_written_update_ends_at_the_next_batch() -> None:
    stage = Stage(optimizers=0)
    batches = stage.iterate(object())
    for _ in range(5):
        stage.fetch(batches, 10)
        stage.forward(20)
        stage.backward(40)
        stage.spend(6)
    stage.end(batches)
    records = stage.records()
    assert len(records) == 5
    for record in records[1:]:
        assert phases(record) == (10, 20, 40, 0)
        assert record["residual_other"] == 6
        assert record["between_other"] == 0
        assert record["flags"] & Flags.NO_OPTIMIZER


def test_looking_for_the_model_is_our_time_and_counted_once() -> None:
    stage = Stage(optimizers=0)
    stage.st.on_missing_forward = lambda _wrt: stage.spend(500)
    for _ in range(4):
        stage.spend(30)
        stage.backward(40)
    records = stage.records()
    assert [r["own"] for r in records[1:]] == [500, 500, 500]
    assert records[2]["backward"] == 40
    assert records[2]["residual_other"] == 30
    for earlier, later in itertools.pairwise(records):
        total = sum(later[n.removesuffix("_ns")] for n in EXCLUSIVE_COLUMNS)
        assert total == (later["close_ns"] - earlier["close_ns"]) // 1000


def test_a_loop_of_bare_tensors_has_backward_to_backward_steps() -> None:
    stage = Stage(optimizers=0)
    for _ in range(5):
        stage.spend(30)
        stage.backward(40)
        stage.spend(6)
    records = stage.records()
    assert len(records) == 5
    assert records[2]["backward"] == 40
    assert records[2]["residual_other"] == 36


def test_an_exception_in_forward_aborts_the_step(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)

    def fails() -> None:
        stage.spend(13)
        raise MemoryError

    stage.fetch(batches, 10)
    with pytest.raises(MemoryError):
        stage.forward(0, body=fails)
    stage.ordinary(batches)
    assert stage.st.aborted == 1
    assert phases(last(stage)) == (10, 20, 40, 5)
    assert last(stage)["between_other"] == 2 + 10 + 13


def test_marked_steps_are_what_the_user_marked(stage: Stage) -> None:
    batches = stage.iterate(object())
    for _ in range(30):
        stage.fetch(batches, 10)
        stage.spend(3)
        stage.st.open_marked()
        stage.spend(1)
        stage.forward(20)
        stage.backward(40)
        stage.step(5)
        stage.spend(4)
        stage.st.close_marked()
        stage.spend(2)
    records = stage.records()
    assert len(records) == 30
    assert phases(records[9]) == (10, 20, 40, 5)
    assert records[9]["residual_other"] == 5
    assert records[9]["between_other"] == 5
    assert records[9]["flags"] & Flags.MARKED
    assert records[9]["samples"] == 4


def test_an_evaluation_inside_a_marked_step_is_residual(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.fetch(batches, 10)
    stage.st.open_marked()
    with stage.evaluating():
        stage.forward(20)
    stage.spend(4)
    stage.st.close_marked()
    assert last(stage)["residual_validation"] == 20
    assert last(stage)["residual_other"] == 4


def test_a_collection_between_steps_is_its_own_cause(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)
    stage.st.gc_start()
    stage.spend(90)
    stage.st.gc_stop()
    stage.ordinary(batches)
    assert last(stage)["between_gc"] == 90
    assert last(stage)["gc"] == 0


def test_a_collection_inside_a_phase_is_noted_and_stays_in_the_phase(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.warm(batches)

    def body() -> None:
        stage.spend(20)
        stage.st.gc_start()
        stage.spend(90)
        stage.st.gc_stop()

    stage.fetch(batches, 10)
    stage.forward(0, body=body)
    stage.backward(40)
    stage.step(5)
    assert phases(last(stage)) == (10, 110, 40, 5)
    assert last(stage)["gc"] == 90


def test_every_microsecond_is_in_exactly_one_column(stage: Stage) -> None:
    begin = stage.now
    batches = stage.iterate(object(), us=5)
    stage.warm(batches, 50)
    total = sum(r[n.removesuffix("_ns")] for r in stage.records() for n in EXCLUSIVE_COLUMNS)
    after_last_step = 2
    assert total == (stage.now - begin) // 1000 - after_last_step


def test_a_group_whose_batches_are_fetched_ahead_counts_each_of_them(stage: Stage) -> None:
    batches = stage.iterate(object())
    for _ in range(30):
        for _ in range(3):
            stage.fetch(batches, 10)
        for _ in range(3):
            stage.forward(20)
            stage.backward(40)
        stage.step(5)
    assert {r["microbatches"] for r in stage.records()} == {3}
    assert phases(last(stage)) == (30, 60, 120, 5)


def _fetched_ahead(stage: Stage, count: int) -> Iterator[int]:
    """An epoch of so many batches, each given when the next was fetched."""
    batches = stage.iterate("train")
    stage.fetch(batches, 10)
    for i in range(count):
        if i < count - 1:
            stage.fetch(batches, 10)
        else:
            stage.end(batches)
        yield i


def test_groups_of_a_loop_that_fetches_one_ahead_count_their_last_batch(stage: Stage) -> None:
    for i in _fetched_ahead(stage, 60):
        stage.forward(20)
        stage.backward(40)
        if i % 2 == 1:
            stage.step(5)
    assert [r["microbatches"] for r in stage.records()] == [2] * 30


def test_a_loop_that_fetches_one_ahead_has_one_batch_a_step(stage: Stage) -> None:
    batches = stage.iterate(object())
    stage.fetch(batches, 10)
    for i in range(30):
        if i < 29:
            stage.fetch(batches, 10)
        stage.forward(20)
        stage.backward(40)
        stage.step(5)
    records = stage.records()
    assert len(records) == 30
    assert {r["microbatches"] for r in records} == {1}
    assert sum(r["input_wait"] for r in records) == 300


def test_the_last_batch_of_a_short_epoch_fetched_ahead_is_a_step(stage: Stage) -> None:
    for _ in range(4):
        for _ in _fetched_ahead(stage, 3):
            stage.forward(20)
            stage.backward(40)
            stage.step(5)
    records = stage.records()
    assert [r["fetches"] for r in records] == [2, 1, 0] * 4
    assert {r["microbatches"] for r in records} == {1}
    assert {phases(r)[2:] for r in records} == {(40, 5)}


def test_a_batch_used_again_after_one_was_fetched_ahead_makes_no_step(stage: Stage) -> None:
    first, second = Optimizer(), Optimizer()
    stage.st.optimizers = 2
    for _ in _fetched_ahead(stage, 3):
        for optimizer in (first, second):
            stage.forward(20)
            stage.backward(40)
            stage.step(5, optimizer)
    records = stage.records()
    assert [r["updates"] for r in records] == [2, 2, 2]
    assert [r["microbatches"] for r in records] == [1, 1, 1]


def test_an_evaluation_of_one_batch_whose_end_is_fetched_ahead_is_validation(stage: Stage) -> None:
    train = stage.iterate("train")
    stage.warm(train)
    held_out = stage.iterate("held out")
    stage.fetch(held_out, 80)
    stage.end(held_out)
    with stage.evaluating():
        stage.forward(7)
    stage.ordinary(train)
    assert last(stage)["between_validation"] == 87
    assert last(stage)["input_wait"] == 10


def test_an_epoch_of_one_batch_whose_end_is_fetched_ahead_is_training(stage: Stage) -> None:
    for _ in range(3):
        batches = stage.iterate("train")
        stage.fetch(batches, 10)
        stage.end(batches)
        stage.forward(20)
        stage.backward(40)
        stage.step(5)
    assert last(stage)["input_wait"] == 10


def test_a_batch_that_was_only_looked_at_is_no_input(stage: Stage) -> None:
    stage.fetch(stage.iterate(object()), 700)
    stage.spend(5)
    stage.ordinary(stage.iterate(object()))
    assert last(stage)["input_wait"] == 10
    assert last(stage)["samples"] == 4


def test_an_evaluation_with_gradients_on_is_validation(stage: Stage) -> None:
    train = stage.iterate("train")
    stage.warm(train)
    held_out = stage.iterate("held out")
    for _ in range(4):
        stage.fetch(held_out, 100)
        stage.forward(20)
    stage.end(held_out)
    stage.ordinary(train)
    assert phases(last(stage)) == (10, 20, 40, 5)
    assert last(stage)["between_validation"] == 480


class Rows:
    """A batch that is one tensor, as far as counting its samples looks at it."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, _index: int) -> Rows:
        return Rows(*self.shape[1:])


def test_a_batch_that_is_one_tensor_has_as_many_samples_as_rows(stage: Stage) -> None:
    batches = stage.iterate(object())
    for _ in range(30):
        stage.fetch(batches, 10, Rows(8, 64))
        stage.forward(20)
        stage.backward(40)
        stage.step(5)
    assert {r["samples"] for r in stage.records()} == {8}
