"""A short attack on every surface: nothing silently wrong, no traceback, nothing that hangs."""

import subprocess
import sys

import pytest
from benchmarks.attack.surfaces import SURFACES

HALVES = {"first": list(SURFACES)[::2], "second": list(SURFACES)[1::2]}


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_the_program_holds(half: str) -> None:
    """Longer ones, with other seeds: `python -m benchmarks.attack --seconds 600 --seed 7`."""
    surfaces = [word for name in HALVES[half] for word in ("--surface", name)]
    command = [sys.executable, "-m", "benchmarks.attack", "--seconds", "12", *surfaces]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
