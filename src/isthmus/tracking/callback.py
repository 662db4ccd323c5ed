"""What any callback of `federate(..., watch=...)` needs: a round's numbers by their names.

    def watch(done):
        print(done.cost.round, scalars(experiment, done))

    federate(experiment, watch=watch)

A tracker is such a callback for a program that has to be opened and closed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.errors import IsthmusError
from isthmus.metrics.metric import METRICS
from isthmus.run.schema import ROUNDS

if TYPE_CHECKING:
    from isthmus.experiment.settings import Experiment
    from isthmus.run.loop import RoundResult

Write = Callable[["RoundResult"], None]
Value = bool | int | float | str


@dataclass(frozen=True)
class Tracker:
    """A program that gets the figures of a run."""

    open: Callable[[Path, "Experiment"], AbstractContextManager[Write]]  # with a run's directory
    needs: tuple[str, ...]  # modules of the extra `tracking`


def scalars(experiment: "Experiment", done: "RoundResult") -> dict[str, float]:
    """Return the metrics of a round by name: its cost and, if evaluated, means over clients.

    A name contains the model, the split of the data, and what the mean is over.
    """
    cost, evaluation = done.cost, done.evaluation
    numbers: dict[str, float | None] = {
        column.scalar: getattr(cost, column.name) for column in ROUNDS if column.scalar
    }
    if evaluation is not None:
        oracle = evaluation.chosen and experiment.rule.on_test
        per_batch = experiment.calibration == "per-batch"
        names = {metric: m.column(per_batch).replace("_", " ") for metric, m in METRICS.items()}
        for score in evaluation.scores:
            if score.pooled is None:  # of a path: many models per client
                continue
            chosen = " chosen on test data" if oracle and score.model == "personal" else ""
            for metric, name in names.items():
                mean = float(getattr(score.figures, metric).mean())
                numbers[f"{score.model}{chosen}/{score.split}/{name} mean over clients"] = mean
        if evaluation.server is not None:
            for metric, name in names.items():
                figure = float(getattr(evaluation.server, metric))
                numbers[f"shared/server test set/{name}"] = figure
    return {name: float(number) for name, number in numbers.items() if number is not None}


def settings(experiment: "Experiment") -> dict[str, Value]:
    """Return all settings of an experiment by their names, options of a part as `part.option`."""
    flat = experiment.flat()
    return {key: v if isinstance(v, Value) else str(v) for key, v in flat.items()}


def check_installed(name: str, tracker: Tracker) -> None:
    """Refuse a tracker that is not installed."""
    missing = [module for module in tracker.needs if find_spec(module) is None]
    if missing:
        raise IsthmusError(
            f"{name} needs {missing[0]}, which is not installed; install it: pip install "
            "'isthmus[tracking]'"
        )
