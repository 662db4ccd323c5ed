"""A short attack on every surface: nothing silently wrong, no traceback, nothing that hangs."""

import subprocess
import sys

import pytest
from benchmarks.attack.surfaces import SURFACES

EACH = 3  # attempts on a surface


@pytest.mark.slow
def test_the_program_holds() -> None:
    """Longer ones, with other seeds: `python -m benchmarks.attack --seconds 600 --seed 7`."""
    attempts = str(EACH * len(SURFACES))
    command = [sys.executable, "-m", "benchmarks.attack", "--attempts", attempts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{attempts} attempts" in done.stdout
