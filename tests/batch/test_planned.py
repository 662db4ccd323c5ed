"""What a display is shown of a comparison, whose jobs are answered without any process."""

from collections.abc import Callable, Iterator, Sequence
from math import nan
from pathlib import Path
from typing import Any

import pytest

from isthmus import Experiment
from isthmus.batch.comparison import Outcome, PlannedComparison, Trial, choose_trials
from isthmus.batch.grid import Grid
from isthmus.batch.headline import Headline
from isthmus.batch.named_runs import Batch, Failure, NamedRun
from isthmus.errors import IsthmusError

HEADLINE = Headline(personal=0.9, shared=0.5, validation=0.3, on_test=False)

Message = dict[str, Any]


class RecordedPool:
    """Answers every job with messages that are known beforehand."""

    size = 2

    def __init__(self, answer: Callable[[NamedRun], list[Message]]):
        self.answer = answer
        self.asked: list[str] = []
        self.workers: list[int] = []

    def run(
        self, jobs: Sequence[tuple[NamedRun, Message]], stop: Callable[[], bool]
    ) -> Iterator[tuple[NamedRun, Message]]:
        for run, job in jobs:
            self.asked.append(run.name)
            self.workers.append(job["workers"])
            for message in self.answer(run):
                yield run, message


class RecordedDisplay:
    """Writes down what it is to show."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def skip(self, name: str) -> None:
        self.lines.append(f"{name}: skipped")

    def start(self, name: str, done: int, best_loss: float, best_round: int) -> None:
        self.lines.append(f"{name}: after {done}, best {best_loss}")

    def update(self, name: str, round: int, headline: Headline | None) -> None:
        self.lines.append(f"{name}: round {round}, {headline and headline.personal}")

    def end(self, name: str, status: str = "done", why: str = "") -> None:
        self.lines.append(f"{name}: {status} {why}".rstrip())


def complete(run: NamedRun) -> list[Message]:
    return [
        {"started": 1, "best": [0.4, 1], "notes": ["the same note"]},
        {"round": 2, "headline": list(HEADLINE)},
        {"ended": "digest"},
    ]


def diverge(run: NamedRun) -> list[Message]:
    begun = {"started": 0, "best": [nan, 0], "notes": []}
    return [begun, {"failed": "too large", "diverged": True}]


def refuse(run: NamedRun) -> list[Message]:
    return [{"failed": "no such data"}]


def conduct(
    grid: Grid, out: Path, pool: RecordedPool, stop: bool = False
) -> tuple[Outcome, list[str], list[str]]:
    """The outcome, what was shown, and the notes."""
    notes: list[str] = []
    display = RecordedDisplay()
    batch = Batch(pool, out, lambda: stop, notes.append)  # type: ignore[arg-type]
    outcome = PlannedComparison(grid, out).run(batch, display)
    return outcome, display.lines, notes


def grid(*methods: str, **changes: Any) -> Grid:
    experiments = {method: Experiment(method=method, rounds=2) for method in methods}
    return Grid(experiments=experiments, seeds=(1, 2), **changes)


def test_a_display_is_shown_each_run_and_each_note_once(tmp_path: Path) -> None:
    """fedavg's first seed ended before."""
    place = tmp_path / "runs" / "fedavg-1"
    place.mkdir(parents=True)
    (place / "summary.json").write_text('{"status": "finished", "rounds": 2}')
    pool = RecordedPool(complete)
    outcome, lines, notes = conduct(grid("local", "fedavg"), tmp_path, pool)
    left = ["local · seed 1", "local · seed 2", "fedavg · seed 2"]
    assert pool.asked == left
    assert lines == ["fedavg · seed 1: skipped"] + [
        f"{name}: {what}" for name in left for what in ("after 1, best 0.4", "round 2, 0.9", "done")
    ]
    assert notes == ["the same note"]
    assert not outcome.missing
    assert len(outcome.cells) == 4
    assert (tmp_path / "compare.toml").is_file()


def test_a_run_that_cannot_begin_ends_the_comparison(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="local: no such data"):
        conduct(grid("local"), tmp_path, RecordedPool(refuse))


def test_no_test_figure_is_shown_of_a_run_by_which_settings_are_chosen(tmp_path: Path) -> None:
    display, run = RecordedDisplay(), NamedRun("trial", Experiment(), tmp_path, shows_figures=False)
    batch = Batch(RecordedPool(complete), tmp_path, lambda: False, print)  # type: ignore[arg-type]
    assert list(batch.run([run], display)) == [(run, None)]
    assert "trial: round 2, None" in display.lines


@pytest.mark.parametrize(
    ("size", "cores", "runs", "workers"),
    [(2, 2, 1, 2), (2, 2, 3, 1), (1, 1, 1, 1), (2, 1, 1, 1), (8, 8, 3, 2)],
)
def test_cores_that_no_run_would_have_are_shared_out(
    size: int, cores: int, runs: int, workers: int, tmp_path: Path
) -> None:
    """One process a run where there are as many runs; --jobs asks for one core each."""
    pool = RecordedPool(complete)
    pool.size = size
    named = [NamedRun(str(i), Experiment(), tmp_path / str(i)) for i in range(runs)]
    batch = Batch(pool, tmp_path, lambda: False, print, cores)  # type: ignore[arg-type]
    assert len(list(batch.run(named, RecordedDisplay()))) == runs
    assert set(pool.workers) == {workers}


def test_a_method_may_lose_all_trials(
    tmp_path: Path,
) -> None:
    pool = RecordedPool(diverge)
    tuned = grid("local", tune={"local": {"lr": ("0.1", "1e30")}})
    outcome, lines, _ = conduct(tuned, tmp_path, pool)
    assert lines == [
        "local · trial 1: after 0, best nan",
        "local · trial 1: failed too large",
        "local · trial 2: after 0, best nan",
        "local · trial 2: failed too large",
        "local · seed 1: failed all of its trials diverged",
        "local · seed 2: failed all of its trials diverged",
    ]
    assert outcome == Outcome([], {"local": "all of its trials diverged"})
    assert (tmp_path / "trials.csv").read_text().count("too large") == 2


def test_the_first_of_the_least_losses_is_chosen() -> None:
    """Of floco's trials two are equal; ditto's first diverged, local's have no loss."""
    values = ("0.1", "0.2", "0.3")
    losses = {"floco": (0.5, 0.2, 0.2), "ditto": (None, 0.4, 0.5), "local": (nan, nan, nan)}
    tuned = grid(*losses, tune={method: {"lr": values} for method in losses})
    trials = []
    for cell in tuned.trials():
        loss = losses[cell.method][(cell.trial or 1) - 1]
        failure = Failure("too large", diverged=True) if loss is None else None
        trials.append(Trial(cell, nan if loss is None else loss, failure=failure))
    best, missing = choose_trials(trials)
    assert best == {"floco": 2, "ditto": 2}
    assert missing == {"local": "all of its trials diverged"}


def test_what_is_stopped_is_an_interrupt_and_writes_no_table(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        conduct(grid("local"), tmp_path, RecordedPool(complete), stop=True)
    assert not (tmp_path / "table.md").exists()
