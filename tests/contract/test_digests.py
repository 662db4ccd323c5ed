"""The bits of every method stay what they were: a change that moves them says so and why."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
TORCH = "2.13."  # the version whose names are on file
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}


def named(*parts: str) -> dict[str, Any]:
    """Names these parts anew, in a process whose kernels are the plainest."""
    command = [sys.executable, str(HERE / "digests.py"), *parts]
    path = os.pathsep.join([str(HERE.parent), *sys.path])  # the same isthmus as in this process
    env = {**os.environ, **PLAIN, "PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return tomllib.loads(done.stdout)


@pytest.mark.skipif(
    not torch.__version__.startswith(TORCH),
    reason=f"names of torch {TORCH}x are on file; {torch.__version__} may round otherwise",
)
@pytest.mark.parametrize("part", ["methods", "demo"])
def test_the_bits_are_those_written_down(part: str) -> None:
    """See digests.py for what is named, and for how to write it down where a change is meant."""
    before, now = tomllib.loads((HERE / "digests.toml").read_text()), named("probe", part)
    if before["probe"] != now["probe"]:
        pytest.skip("this processor's kernels round differently from those of the names on file")
    assert now[part] == before[part]
