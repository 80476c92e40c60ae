from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traceml_ai.cli.run import _FLAGS, _VALUED
from traceml_ai.errors import UsageError
from traceml_ai.launch.command import Split, Target, Torchrun, build, split

# What a process can be given: any text without the terminator, in bytes the system can pass on.
WORDS = st.one_of(
    st.sampled_from(["--help", "-h", "-m", "--", "", "--args", "--mode", "--run-name=x", "-", "--json"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
)
LISTS = st.lists(WORDS, max_size=6)


def parted(words: list[str]) -> Split:
    return split(words, _FLAGS, _VALUED)


def is_ours(word: str) -> bool:
    return word in {*_FLAGS, *_VALUED} - {"-h", "--help"} or word.partition("=")[0] in _VALUED


@given(LISTS)
def test_everything_behind_args_reaches_the_script(words: list[str]) -> None:
    found = parted(["--run-name", "a", "train.py", "--interval=2", "--args", *words])

    assert found.target == Target("script", ("train.py", *words))
    assert found.ours == ["--run-name=a", "--interval=2"]


@given(LISTS.filter(lambda words: not words or not (is_ours(words[0]) or words[0] == "--args")))
def test_everything_from_the_first_word_that_is_not_ours_reaches_the_script(words: list[str]) -> None:
    assert parted(["train.py", "--json", *words]).target == Target("script", ("train.py", *words))


@given(LISTS)
def test_everything_behind_args_reaches_the_module(words: list[str]) -> None:
    assert parted(["-m", "pkg.train", "--args", *words]).target == Target("module", ("pkg.train", *words))


@given(LISTS.filter(bool))
def test_a_whole_command_is_taken_verbatim(words: list[str]) -> None:
    assert parted(["--json", "--", *words]).target == Target("command", tuple(words))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LISTS)
def test_the_process_gets_the_arguments_it_was_given(tmp_path: Path, words: list[str]) -> None:
    script = tmp_path / "show.py"
    script.write_text("import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode('utf-8'))")
    target = parted([str(script), "--args", *words]).target
    assert target is not None

    shown = subprocess.run(build(target, Torchrun()), capture_output=True, check=True).stdout

    assert shown.decode() == repr(words)


@pytest.mark.parametrize("words", [["--", "x"], ["--r=16", "--n", "4"], ["-m", "", "--help", "--", "--"]])
def test_torchrun_hands_the_arguments_on_unread(words: list[str]) -> None:
    from torch.distributed.run import get_args_parser

    command = build(Target("script", ("train.py", *words)), Torchrun(nproc_per_node="2"))

    read = get_args_parser().parse_args(command[command.index("torch.distributed.run") + 1 :])

    assert (read.training_script, read.training_script_args) == ("train.py", words)
    assert read.nproc_per_node == "2"


def test_help_before_the_script_is_ours() -> None:
    assert parted(["--help"]) == Split(["--help"], None)


def test_the_value_of_an_option_may_look_like_an_option() -> None:
    assert parted(["--run-name", "--json", "train.py"]).ours == ["--run-name=--json"]


def test_options_are_not_abbreviated() -> None:
    with pytest.raises(UsageError, match="unknown option --run "):
        parted(["--run", "x", "train.py"])


def test_an_abbreviation_behind_the_script_is_the_scripts() -> None:
    assert parted(["train.py", "--inter", "3"]).target == Target("script", ("train.py", "--inter", "3"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["train.py", "--run-name"], "--run-name needs a value .* behind --args"),
        (["-m"], "nothing to run follows -m"),
        (["--"], "nothing to run follows --"),
        (["--args", "x"], "--args stands behind the script"),
    ],
)
def test_an_incomplete_line_is_refused_with_the_reason(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parted(words)


def test_several_processes_need_a_script() -> None:
    with pytest.raises(UsageError, match="need a script"):
        build(Target("command", ("python", "train.py")), Torchrun(nproc_per_node="2"))


def test_a_script_is_started_as_python_would() -> None:
    assert build(Target("script", ("train.py", "-x")), Torchrun()) == [sys.executable, "train.py", "-x"]


def test_several_nodes_are_left_to_torchrun() -> None:
    torchrun = Torchrun(nproc_per_node="1", nnodes="2", rdzv_endpoint="host:1")

    command = build(Target("module", ("pkg.train",)), torchrun, python="py")

    options = ["--nproc-per-node=1", "--nnodes=2", "--rdzv-endpoint=host:1"]
    assert command == ["py", "-m", "torch.distributed.run", *options, "-m", "--", "pkg.train"]


@pytest.mark.parametrize(
    ("target", "stem"),
    [
        (Target("script", ("src/train.py",)), "train"),
        (Target("script", ("-",)), "-"),
        (Target("module", ("pkg.sub.train",)), "train"),
        (Target("module", ("pkg.__main__",)), "pkg"),
        (Target("command", ("python", "-u", "train.py", "x")), "train"),
        (Target("command", ("/usr/bin/srun", "python")), "srun"),
    ],
)
def test_a_run_is_called_after_what_runs(target: Target, stem: str) -> None:
    assert target.stem == stem
