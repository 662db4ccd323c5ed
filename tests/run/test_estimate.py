from itertools import count
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from isthmus import Experiment, IsthmusError
from isthmus.engines.loop import Loop
from isthmus.methods import METHODS
from isthmus.run import forecast as estimate
from isthmus.run.build import build
from isthmus.run.forecast import refuse_what_cannot_fit
from isthmus.run.loop import train
from isthmus.run.sampler import StepSampler
from isthmus.run.store import Memory
from isthmus.run.trial import try_out
from isthmus.system.machine import Crowd
from small import fitting

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 200},
    "clients": 8,
    "clients_per_round": 3,
    "epochs": 2,
    "rounds": 6,
    "eval_every": 2,
    "seed": 1,
}


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which whatever is timed takes a second, and a machine without anybody else."""
    monkeypatch.setattr(StepSampler, "clock", count().__next__)
    monkeypatch.setattr(Crowd, "slow_down", lambda self, *_: 1.0)


@pytest.mark.parametrize("method", list(METHODS))
def test_traffic_is_foretold_exactly(method: str) -> None:
    """Every client of a round receives and sends as much as the one that was tried out."""
    built = build(Experiment(**SETTINGS, method=fitting(method)))
    needed, setting = estimate.estimate(*built), built.setting
    run = train(built, Memory(setting))
    assert needed is not None
    assert needed.wire_bytes == sum(d.cost.down_bytes + d.cost.up_bytes for d in run.rounds)
    assert needed.seconds > 0
    assert needed.ram_bytes > 16 * setting.task.w0.nbytes


def test_disk_grows_with_the_clients_that_take_part() -> None:
    """A client of SuPerFed keeps 4 P + 2 bytes, on whole pages; one of FedAvg nothing."""

    def disk(method: str, rounds: int) -> int:
        given = SETTINGS | {"method": method, "rounds": rounds, "eval_every": 0}
        needed = estimate.estimate(*build(Experiment(**given)))
        assert needed is not None
        return needed.disk_bytes

    one = disk("superfed-mm", 50) - disk("superfed-mm", 1)
    vector = build(Experiment(**SETTINGS))[1].task.w0.nbytes
    assert one == pytest.approx(ceil((vector + 2) / 4096) * 4096 * (8 - 3), rel=0.01)
    assert disk("fedavg", 50) == disk("fedavg", 1)


def test_what_cannot_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    much = estimate.Estimate(seconds=1, ram_bytes=10, disk_bytes=10**18, wire_bytes=0)
    with pytest.raises(IsthmusError, match=r"1,000,000,000,000 MB on disk, .* are free"):
        refuse_what_cannot_fit(much, tmp_path / "not" / "there")
    monkeypatch.setattr(estimate, "free_memory", lambda: 5)
    with pytest.raises(IsthmusError, match="MB of memory"):
        refuse_what_cannot_fit(much._replace(disk_bytes=0), tmp_path)
    with pytest.raises(IsthmusError, match="MB of memory"):
        estimate.estimate(*build(Experiment(**SETTINGS)))
    monkeypatch.setattr(estimate, "free_memory", lambda: None)  # where the system does not tell
    refuse_what_cannot_fit(much._replace(disk_bytes=0), tmp_path)


def test_a_client_that_diverges_leaves_the_word_to_the_run() -> None:
    """The trial is of the last round; the run itself says in which one it happened."""
    settings = SETTINGS | {"method": {"name": "fedprox", "mu": 1e300}}
    built = build(Experiment(**settings))
    assert estimate.estimate(*built) is None
    with pytest.raises(IsthmusError, match="diverged in round 1"):
        train(built, Memory(built.setting))


@pytest.mark.usefixtures("ticks")
def test_epochs_that_a_method_sets_itself_are_not_multiplied() -> None:
    """FedRep's epochs are its own: whatever `epochs` says, it takes as long."""

    def count_seconds(epochs: int) -> float:
        method = {"name": "fedrep", "head_epochs": 2, "body_epochs": 1}
        given = SETTINGS | {"method": method, "epochs": epochs, "rounds": 100, "eval_every": 0}
        needed = estimate.estimate(*build(Experiment(**given)))
        assert needed is not None
        return needed.seconds

    assert count_seconds(20) == count_seconds(1)


@pytest.mark.parametrize("unroll", [1, 4])
@pytest.mark.parametrize("method", ["fedavg", "superfed-mm", "fedrep", "ditto", "floco", "apfl"])
def test_programs_are_foretold(method: str, unroll: int) -> None:
    """As many as the run makes, each of which takes a compiler seconds."""
    given = {"step": "compiled", "unroll": unroll, "method": fitting(method)}
    built = build(Experiment(**SETTINGS | given))
    engine = built.setting.engine
    assert isinstance(engine, Loop)
    assert engine.compiled is not None
    engine.compiled.make_program = lambda graph, _: graph.forward
    trial = try_out(*built)
    train(built, Memory(built.setting))
    assert trial.programs == engine.compiled.programs


@pytest.mark.usefixtures("ticks")
def test_a_block_of_clients_is_tried_out_as_one() -> None:
    """Stacked clients share the calls of operations."""
    more = {"data": {"name": "synthetic", "samples": 1000}, "rounds": 1}
    given = SETTINGS | more | {"clients": 40, "clients_per_round": 40}

    def count_seconds(**engine: Any) -> float:
        return try_out(*build(Experiment(**given | engine), workers=1)).last.seconds

    assert count_seconds(engine="stacked", block=40) == count_seconds(engine="loop") / 40


def test_what_others_take_makes_a_run_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    built = build(Experiment(**SETTINGS), workers=1)
    seconds = []
    for times in (1.0, 1000.0):
        monkeypatch.setattr(Crowd, "slow_down", lambda self, *_, times=times: times)
        needed = estimate.estimate(*built)
        assert needed is not None
        seconds.append(needed.seconds)
    alone, crowded = seconds
    assert crowded > 100 * alone
