"""Early stopping on validation: which round a run ends at, and that nothing else can move it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.evaluation import Evaluation, Score
from isthmus.metrics.score import Figures
from isthmus.run.loop import RoundResult, find_stop_reason, resume, update_best
from isthmus.run.store import Best, Progress

SETTINGS: dict[str, Any] = {
    "method": "fedavg",
    "data": {"name": "synthetic", "samples": 120},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "lr": 0.3,
    "lr_decay": 1.0,
    "rounds": 30,
    "eval_every": 2,
    "patience": 2,
    "model": {"name": "mlp", "hidden": 8},
    "seed": 3,
}


def experiment(**changes: Any) -> Experiment:
    return Experiment(**SETTINGS | changes)


def evaluated(loss: float) -> Evaluation:
    """Two clients whose validation losses have this mean."""
    losses = np.array([loss - 1, loss + 1])
    figures = Figures(*(losses if name == "loss" else losses * 0 for name in Figures._fields))
    return Evaluation(
        (Score("personal", "validation", np.arange(2), np.zeros((2, 0)), figures, None),), None
    )


def losses(path: Path) -> dict[int, float]:
    """The mean validation loss of the personal models at each evaluated round, from clients.csv."""
    found: dict[int, list[float]] = {}
    for line in (path / "clients.csv").read_text().splitlines():
        columns = line.split(",")
        if columns[2:3] == ["personal"] and columns[4] == "validation":
            found.setdefault(int(columns[0]), []).append(float(columns[8]))
    return {round: sum(each) / len(each) for round, each in found.items()}


def summary(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((path / "summary.json").read_text())
    return read


def test_only_a_lower_loss_is_better() -> None:
    """Losses 5, 4, 4, 6, 3 after rounds 2, 4, 6, 8, 10: the equal one and the higher one count."""
    best, stood = Best(), []
    for round, loss in ((2, 5.0), (4, 4.0), (6, 4.0), (8, 6.0), (10, 3.0)):
        best = update_best(experiment(), best, round, evaluated(loss))
        stood.append((best.round, best.since))
    assert stood == [(2, 0), (4, 0), (4, 1), (4, 2), (10, 0)]


def test_a_loss_that_is_no_number_is_not_better() -> None:
    assert update_best(experiment(), Best(4.0, 2), 4, evaluated(float("nan"))) == Best(4.0, 2, 1)


def test_what_eval_every_does_not_call_for_does_not_count() -> None:
    best = Best(4.0, 2)
    assert update_best(experiment(), best, 5, evaluated(1.0)) == best
    assert update_best(experiment(), best, 4, None) == best


def test_a_run_has_a_reason_to_end_only_when_patience_is_over() -> None:
    def reason(done: int, best: Best, **changes: Any) -> str:
        return find_stop_reason(experiment(**changes), Progress(done, (), {}, best=best))

    assert not reason(6, Best(4.0, 4, 1))
    check(reason(8, Best(4.0, 4, 2)))
    assert not reason(30, Best(4.0, 26, 2)), "all rounds are done anyway"
    assert not reason(8, Best(4.0, 4, 2), patience=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one piece that gives up."""
    path = tmp_path_factory.mktemp("whole") / "run"
    federate(experiment(), out=path)
    return path


def test_a_run_ends_two_evaluations_after_its_best(whole: Path) -> None:
    """By the records alone: the last two losses are not below the least one, all others were
    followed by a lower one in time."""
    seen = losses(whole)
    last, best = max(seen), min(seen, key=lambda round: seen[round])
    assert last < 30
    assert last == best + 2 * 2
    said = summary(whole)
    assert (said["status"], said["rounds"]) == ("finished", last)
    check(said["reason"])


def test_a_run_that_gave_up_is_that_of_so_many_rounds(whole: Path) -> None:
    """The figures are those of the round it ended at; patience moves no number before."""
    last = summary(whole)["rounds"]
    plain = federate(experiment(patience=0, rounds=last))
    assert plain.digest == summary(whole)["digest"]
    assert plain.reason == ""


def test_a_run_that_gave_up_does_nothing_more(
    whole: Path, tmp_path: Path, isthmus: Isthmus
) -> None:
    whole = shutil.copytree(whole, tmp_path / "run")
    before, rows = summary(whole), losses(whole)
    for more in ([], ["--rounds", "40"]):
        said = isthmus("resume", whole, *more)
        assert said.code == 0, said.err
        assert said.digest == before["digest"]
        check(said.err)
        assert "estimate" not in said.err
    assert losses(whole) == rows
    after = summary(whole)
    assert (after["status"], after["reason"]) == ("finished", before["reason"])


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_that_was_stopped_gives_up_at_the_same_round(
    whole: Path, tmp_path: Path, every: int
) -> None:
    """What is waited for is in the transaction of the round, not in the process."""

    def tired(done: RoundResult) -> bool:
        return done.cost.round % every == 0

    path = tmp_path / "run"
    run = federate(experiment(), out=path, watch=tired)
    for _ in range(30):
        if run.reason:
            break
        run = resume(path, watch=tired)
    one, other = summary(whole), summary(path)
    assert [one[key] for key in ("rounds", "digest", "reason")] == [
        other[key] for key in ("rounds", "digest", "reason")
    ]
    assert losses(path) == losses(whole)


def test_a_longer_run_gives_up_where_it_would_have_in_one_piece(
    whole: Path, tmp_path: Path
) -> None:
    """Five rounds are evaluated after the fifth, which eval_every = 2 does not call for."""
    path = tmp_path / "run"
    federate(experiment(rounds=5), out=path)
    assert 5 in losses(path)
    resume(path, rounds=30)
    assert summary(path)["digest"] == summary(whole)["digest"]


def test_newcomers_join_a_run_that_gave_up(tmp_path: Path) -> None:
    run = federate(experiment(held_out=0.25, clients=8, patience=1), out=tmp_path / "run")
    assert run.reason
    assert run.newcomers
    assert (tmp_path / "run" / "newcomers.csv").is_file()


def test_the_summary_of_a_run_says_why_it_ended(whole: Path, isthmus: Isthmus) -> None:
    said = isthmus("show", whole)
    assert f"ended early: {summary(whole)['reason']}" in said.out
    assert json.loads(isthmus("show", whole, "--json").out)["reason"] == summary(whole)["reason"]


@pytest.mark.parametrize(
    "changes",
    [
        {"validation": 0},
        {"eval_every": 0},
    ],
)
def test_patience_needs_something_to_judge_by(changes: dict[str, Any]) -> None:
    with raises(IsthmusError):
        experiment(**changes)
