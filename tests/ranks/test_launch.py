"""How ranks are started."""

from __future__ import annotations

import pytest

from traceml_ai.launch.command import Target, Torchrun, build

SCRIPT = Target("script", ("train.py",))


@pytest.mark.parametrize("name", Torchrun._fields)
def test_any_option_of_torchruns_asks_for_torchrun_and_is_handed_on(name: str) -> None:
    command = build(SCRIPT, Torchrun(**{name: "1"}), python="py")
    assert command == ["py", "-m", "torch.distributed.run", f"--{name.replace('_', '-')}=1", "--", "train.py"]


def test_without_one_the_script_is_started_as_python_would() -> None:
    assert build(SCRIPT, Torchrun(), python="py") == ["py", "train.py"]
