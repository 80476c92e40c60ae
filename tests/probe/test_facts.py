"""What a training process says about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceml_ai.probe.facts import driver_version


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
            "550.54.15",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build", "570.86.15"),
        ("something else", None),
        ("", None),
    ],
)
def test_the_driver_tells_its_version(line: str, version: str | None, tmp_path: Path) -> None:
    told = tmp_path / "version"
    told.write_text(f"{line}\nGCC version: gcc 13.2.0\n")
    assert driver_version(str(told)) == version


def test_without_a_driver_there_is_no_version(tmp_path: Path) -> None:
    assert driver_version(str(tmp_path / "version")) is None
