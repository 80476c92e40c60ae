"""W&B, MLflow and TensorBoard, the real packages without a network: what they hold afterwards."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from report.summaries import make_summary
from traceml_ai.errors import TraceMLError
from traceml_ai.export import numbers
from traceml_ai.export.source import tell_of
from traceml_ai.report.flat import flatten
from traceml_ai.schema.summary import Summary, decode, encode

SUMMARY = make_summary()


def flat(summary: Summary = SUMMARY) -> dict[str, float | str]:
    return flatten(msgspec.to_builtins(summary))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "final_summary.json").write_bytes(encode(SUMMARY))
    return tmp_path / "run"


# --- which run -----------------------------------------------------------------------------------


def test_a_run_is_named_by_its_folder_its_file_or_its_summary(folder: Path) -> None:
    for source in (folder, str(folder), folder / "final_summary.json", SUMMARY):
        told = tell_of(source, html=False)
        assert told is not None
        assert told.summary == SUMMARY


def test_a_process_that_is_not_measured_has_nothing_to_tell() -> None:
    assert tell_of(None, html=True) is None


def test_a_path_that_leads_nowhere_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceMLError, match="name a run folder"):
        tell_of(tmp_path / "nowhere", html=False)


def test_numbers_are_what_takes_no_words() -> None:
    assert numbers({"a": 1, "b": "INPUT_BOUND", "c": 0.5}) == {"a": 1.0, "c": 0.5}


# --- TensorBoard ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard.writer import SummaryWriter

    from traceml_ai.export import tensorboard

    path = tmp_path_factory.mktemp("tensorboard")
    with SummaryWriter(str(path)) as writer:
        assert tensorboard.log(writer, SUMMARY)
    read = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    return read, path


def test_tensorboard_has_the_numbers_at_the_last_step(events: tuple[Any, Path]) -> None:
    read, _ = events
    for name, value in numbers(flat()).items():
        (event,) = read.Scalars(name)
        assert (event.step, event.value) == (SUMMARY.run.steps, pytest.approx(value, rel=1e-6))


def test_tensorboard_has_the_card_as_text(events: tuple[Any, Path]) -> None:
    read, _ = events
    (event,) = read.Tensors("traceml/card/text_summary")
    assert b"INPUT_BOUND" in event.tensor_proto.string_val[0]


def test_tensorboard_has_json_and_report_beside_its_events(events: tuple[Any, Path]) -> None:
    _, path = events
    assert decode((path / "traceml" / "final_summary.json").read_bytes()) == SUMMARY
    assert "<!DOCTYPE html>" in (path / "traceml" / "report.html").read_text(encoding="utf-8")


# --- MLflow --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mlflow_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A run in a local store, as it is read back."""
    import mlflow

    from traceml_ai.export import mlflow as traceml_mlflow

    path = tmp_path_factory.mktemp("mlflow")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow.set_tracking_uri(f"sqlite:///{path}/mlflow.db")
    experiment = mlflow.create_experiment("traceml", artifact_location=(path / "artifacts").as_uri())
    with mlflow.start_run(experiment_id=experiment) as run:
        mlflow.log_metrics(numbers(flat()))
        assert traceml_mlflow.log(run, SUMMARY)
    yield mlflow.get_run(run.info.run_id), path
    store: Any = mlflow.tracking._tracking_service.utils
    store._get_store().engine.dispose()


@pytest.mark.filterwarnings("default")  # MLflow's own
def test_mlflow_has_the_numbers_as_metrics_and_the_kinds_as_tags(mlflow_run: tuple[Any, Path]) -> None:
    run, _ = mlflow_run
    assert run.data.metrics == pytest.approx(numbers(flat()))
    assert run.data.tags["traceml.diagnosis"] == "INPUT_BOUND"


@pytest.mark.filterwarnings("default")
def test_mlflow_has_json_and_report_as_artifacts(mlflow_run: tuple[Any, Path]) -> None:
    _, path = mlflow_run
    (summary,) = path.rglob("traceml/final_summary.json")
    (report,) = path.rglob("traceml/report.html")
    assert decode(summary.read_bytes()) == SUMMARY
    assert report.stat().st_size > 1_000_000


# --- Weights & Biases ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wandb_records(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What an offline run wrote into its file, record by record."""
    import wandb

    from traceml_ai.export import wandb as traceml_wandb

    path = tmp_path_factory.mktemp("wandb")
    settings = wandb.Settings(
        silent=True, console="off", x_disable_stats=True, x_disable_meta=True, x_service_wait=120
    )
    with wandb.init(mode="offline", dir=str(path), project="traceml", settings=settings) as run:
        run.log({"loss": 1.0})
        wandb.log(flat())
        assert traceml_wandb.log(run, SUMMARY)
    wandb.teardown()  # its service writes the file, and may not be done yet
    (file,) = path.rglob("*.wandb")
    return list(records_of(file.read_bytes()))


def records_of(data: bytes) -> Iterator[Any]:
    """Read an offline run: LevelDB's log format (7 bytes before a piece, 32 KiB blocks) behind a header."""
    from wandb.proto import wandb_internal_pb2 as proto

    block, whole, last = 32_768, 1, 4
    at, pending = 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:  # too short for a piece: padding
            at += block - at % block
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        pending += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {whole, last}:
            record = proto.Record()  # type: ignore[attr-defined]  # made by protobuf at run time
            record.ParseFromString(pending)
            yield record
            pending = b""


@pytest.mark.filterwarnings("default")  # W&B's own
def test_wandb_has_the_figures_in_the_runs_summary(wandb_records: list[Any]) -> None:
    found: dict[str, Any] = {}
    for record in wandb_records:
        for item in record.summary.update:
            found[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    for name, value in flat().items():
        assert found[name] == (pytest.approx(value) if isinstance(value, (int, float)) else value)


@pytest.mark.filterwarnings("default")
def test_wandb_takes_a_flat_summary_as_it_is(wandb_records: list[Any]) -> None:
    logged = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in wandb_records
    ]
    (found,) = [history for history in logged if "traceml/diagnosis" in history]
    assert found["traceml/diagnosis"] == "INPUT_BOUND"
    assert found["traceml/step_ms"] == SUMMARY.step_time.step_ms


@pytest.mark.filterwarnings("default")
def test_wandb_has_json_and_report_as_an_artifact(wandb_records: list[Any]) -> None:
    artifacts = [r.request.log_artifact.artifact for r in wandb_records if r.request.HasField("log_artifact")]
    artifacts += [record.artifact for record in wandb_records if record.HasField("artifact")]
    files = {e.path: e.size for a in artifacts if a.type == "traceml" for e in a.manifest.contents}
    assert set(files) == {"final_summary.json", "report.html"}
    assert files["report.html"] > 1_000_000
