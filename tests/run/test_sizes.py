"""Sizes that no machine has are refused in a line, before any memory is taken."""

import re
from pathlib import Path

import pytest
import torch

from commands import Isthmus
from golden import raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.run.build import refuse_huge
from isthmus.system.machine import explain_lack_of_memory

SMALL = [
    *("run", "--data", "synthetic", "--rounds", "1", "--set", "samples=60", "--set", "clients=4"),
    *("--set", "clients_per_round=2", "--set", "epochs=1", "--out", "out"),
]
HUGE = {
    "samples=1000000000000": r"samples=10+, features=16, classes=10 take about 6.144e\+05 GB",
    "features=4611686018427387904": r"features=46\d+, classes=10 take about .* GB of memory, ",
    "hidden=1000000000": r"model mlp has 27,000,000,010 parameters, which take about 864 GB",
    "hidden=9223372036854775807": "there is not enough memory; lower",
    "hidden=9223372036854775808": "hidden must be less than or equal to 92.*",
    f"clients={10**400}": "clients must be less than or equal to 92.*",
    "rounds=10000000": "rounds must be less than or equal to 1000000, not 10000000",
    "epochs=1000000000": "epochs must be less than or equal to 1000000, not 1000000000",
}


@pytest.mark.parametrize("setting", HUGE)
def test_a_size_is_refused_before_it_is_made(isthmus: Isthmus, setting: str) -> None:
    said = isthmus(*SMALL, "--set", setting).mistake
    assert re.search(HUGE[setting], said), said
    assert len(said) < 300
    assert not Path("out").exists()


@pytest.mark.parametrize("workers", [0, 10**9])
def test_processes_beyond_reason_are_refused(workers: int) -> None:
    with raises(IsthmusError):
        federate(Experiment(method="fedavg", data="synthetic", rounds=1), workers=workers)


def test_networks_of_usual_sizes_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting would import much of torch; a bundled network is counted by its widest layer."""
    monkeypatch.setattr(torch, "device", None)
    refuse_huge({"name": "twonn", "hidden": 200}, (3, 224, 224), 200)
    with pytest.raises(TypeError):  # as counting does without a device
        refuse_huge({"name": "twonn", "hidden": 10**7}, (3, 224, 224), 200)


def test_memory_that_is_refused_is_a_line_and_other_errors_stay() -> None:
    for error in (MemoryError("x"), RuntimeError("DefaultCPUAllocator: can't allocate memory: y")):
        with (
            raises(IsthmusError),
            explain_lack_of_memory(),
        ):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), explain_lack_of_memory():
        raise RuntimeError("shapes")
