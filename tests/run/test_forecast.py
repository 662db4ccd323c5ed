"""What a run needs is counted, and nothing is tried out."""

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from isthmus import Experiment, IsthmusError
from isthmus.methods import METHODS
from isthmus.run import forecast as forecasts
from isthmus.run.build import build
from isthmus.run.forecast import RunForecast, forecast, refuse_what_cannot_fit
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


def predict(out: Path, done: int = 0, **changes: Any) -> RunForecast:
    return forecast(*build(Experiment(**SETTINGS | changes), workers=1), out, done)


@pytest.mark.parametrize("method", list(METHODS))
def test_seconds_are_a_range_and_memory_is_what_training_holds_at_least(
    method: str, tmp_path: Path
) -> None:
    """Of one process: a model and its gradient."""
    needed = predict(tmp_path / "run", method=fitting(method))
    assert 0 < needed.least_seconds < needed.most_seconds
    assert needed.seconds is None
    assert needed.memory_bytes == 2 * build(Experiment(**SETTINGS)).setting.task.w0.nbytes


def test_twice_the_epochs_or_the_rounds_take_twice_the_least(tmp_path: Path) -> None:
    once, epochs, rounds = (
        predict(tmp_path / "run", method="fedavg", eval_every=0, **changes).least_seconds
        for changes in ({}, {"epochs": 4}, {"rounds": 12})
    )
    assert epochs == rounds == pytest.approx(2 * once)


def test_a_run_beside_it_with_another_seed_tells_how_long_it_takes(tmp_path: Path) -> None:
    """Of its rounds 10 s and 2 s, 6 s on average; two of six rounds are done here."""
    there = build(Experiment(**SETTINGS | {"seed": 7, "rounds": 2})).experiment
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "experiment.toml").write_text(there.toml())
    lines = "# x\nround,train_seconds,evaluate_seconds\n1,8.0,2.0\n2,2.0,0.0\n"
    (tmp_path / "other" / "rounds.csv").write_text(lines)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "experiment.toml").write_text("seed = ")
    needed = predict(tmp_path / "run", done=2)
    assert (needed.seconds, needed.record) == (24.0, "other")
    assert predict(tmp_path / "run", lr=0.5).seconds is None
    assert predict(tmp_path / "elsewhere" / "run").seconds is None


def test_disk_grows_with_the_clients_that_take_part(tmp_path: Path) -> None:
    """A client of SuPerFed keeps a vector, on whole pages; one of FedAvg nothing."""

    def disk(method: str, rounds: int) -> int:
        return predict(tmp_path, method=method, rounds=rounds, eval_every=0).disk_bytes

    vector = build(Experiment(**SETTINGS)).setting.task.w0.nbytes
    pages = ceil((vector + 2) / 4096) * 4096
    grown = disk("superfed-mm", 50) - disk("superfed-mm", 1)
    assert grown == pytest.approx(pages * (8 - 3), rel=0.01)
    assert disk("fedavg", 50) == disk("fedavg", 1)


def test_what_cannot_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse: Callable[..., None] = lambda **needs: refuse_what_cannot_fit(  # noqa: E731
        RunForecast(0, 1, **needs), tmp_path / "not" / "there"
    )
    refuse(memory_bytes=1, disk_bytes=1)
    with pytest.raises(IsthmusError, match=r"1,000,000,000,000 MB on disk, .* are free"):
        refuse(memory_bytes=1, disk_bytes=10**18)
    monkeypatch.setattr(forecasts, "free_memory", lambda: 5)
    with pytest.raises(IsthmusError, match="MB of memory"):
        refuse(memory_bytes=6, disk_bytes=1)
