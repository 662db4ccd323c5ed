"""One virtual environment per framework, made when it is first needed and kept.

torch comes first and pinned, to the version that we run with: as a dependency of another package it
may bring gigabytes of CUDA, and another version would be another contest.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import torch

PLACE = Path(__file__).parent / ".envs"  # ignored by git
PACKAGES = {"flower": "flwr[simulation]>=1.41,<1.43", "pfl": "pfl[pytorch]>=0.6,<0.7"}

VARIABLES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's workers give way to all other processes otherwise
}


class PeerError(RuntimeError):
    """Says which framework could not be installed or ended early, and why."""


def find_python(name: str) -> Path:
    """Find the interpreter of a framework's environment, which is made if it is not there."""
    folder = PLACE / name
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = folder / "ready"
    wanted = f"torch=={torch.__version__.partition('+')[0]}"
    if ready.is_file() and ready.read_text() == f"{wanted} {PACKAGES[name]}":
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run(name, sys.executable, "-m", "venv", str(folder))
    _run(name, str(python), "-m", "pip", "install", "--quiet", wanted)
    _run(name, str(python), "-m", "pip", "install", "--quiet", wanted, "numpy", PACKAGES[name])
    ready.write_text(f"{wanted} {PACKAGES[name]}")
    return python


def _run(name: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        raise PeerError(f"{name} could not be installed: {' / '.join(lines[-3:])}")
