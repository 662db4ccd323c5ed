"""Writers for TensorBoard and MLflow: callbacks for `federate(..., watch=...)`.

    with tensorboard("events/first", experiment) as write:
        federate(experiment, out="first", watch=write)

A callback for anything else is a function of what `federate` tells after each round; `scalars`
gives it the numbers by their names. The writers need `pip install 'isthmus[tracking]'`.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.errors import IsthmusError, nearest
from isthmus.metrics.metric import METRICS
from isthmus.records.schema import ROUNDS

if TYPE_CHECKING:
    from isthmus.config.experiment import Experiment
    from isthmus.training.federate import Done

Write = Callable[["Done"], None]
Value = bool | int | float | str

NEEDS = {"tensorboard": ("tensorboard",), "mlflow": ("mlflow", "sqlalchemy", "alembic")}


def scalars(experiment: "Experiment", done: "Done") -> dict[str, float]:
    """Names the numbers of a round: its cost and, where it was evaluated, means over clients.

    A name says which model it is about, which part of the data, and over what it is a mean.
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
    """Lists all settings of an experiment by their names, options of a part as `part.option`."""
    flat = experiment.flat()
    return {key: v if isinstance(v, Value) else str(v) for key, v in flat.items()}


@contextmanager
def tensorboard(directory: Path | str, experiment: "Experiment") -> Iterator[Write]:
    """Writes event files for TensorBoard; a run that goes on adds one to those that are there."""
    check(["tensorboard"])
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import hparams

    with SummaryWriter(str(directory)) as writer:
        described = False

        def write(done: "Done") -> None:
            nonlocal described
            numbers = scalars(experiment, done)
            tested = {name: number for name, number in numbers.items() if "/test/" in name}
            if tested and not described:  # its table shows the settings beside these figures
                described = True
                for summary in hparams(settings(experiment), tested):
                    writer.file_writer.add_summary(summary)
            for name, number in numbers.items():
                writer.add_scalar(name, number, done.cost.round)
            writer.flush()

        yield write


@contextmanager
def mlflow(
    experiment: "Experiment", name: str | None = None, keep: Path | None = None
) -> Iterator[Write]:
    """Writes a run to MLflow, wherever its environment variables say.

    With none set that is MLflow's own default, a file in the current directory. `keep` is a file
    for the id of MLflow's run: where it is there already, that run goes on. MLflow's reports about
    its users stay off, unless MLFLOW_DISABLE_TELEMETRY says otherwise.
    """
    check(["mlflow"])
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    def begun() -> str:
        place = os.environ.get("MLFLOW_EXPERIMENT_NAME", "isthmus")
        there = client.get_experiment_by_name(place)
        where = client.create_experiment(place) if there is None else there.experiment_id
        run: str = client.create_run(where, run_name=name).info.run_id
        listed = settings(experiment).items()
        client.log_batch(run, params=[Param(key, str(value)) for key, value in listed])
        if keep is not None:
            keep.write_text(f"{run}\n")
        return run

    def write(done: "Done") -> None:
        now, numbers = int(1000 * time.time()), scalars(experiment, done)
        metrics = [Metric(key, value, now, done.cost.round) for key, value in numbers.items()]
        client.log_batch(run, metrics)

    try:
        client = MlflowClient()
        run = keep.read_text().strip() if keep and keep.is_file() else begun()
        client.update_run(run, status="RUNNING")
        ended = "FAILED"
        try:
            yield write
            ended = "FINISHED"
        finally:
            client.set_terminated(run, ended)
    except MlflowException as error:
        said = str(error).splitlines()[0]
        raise IsthmusError(
            f"MLflow did not take the run ({said}); expected a tracking server or file that does; "
            "set MLFLOW_TRACKING_URI, or track without it"
        ) from None


@contextmanager
def writing(names: Sequence[str], out: Path, experiment: "Experiment") -> Iterator[Write]:
    """Writes to the named trackers, with what must stay with the run in its directory."""
    with ExitStack() as opened:
        writers = []
        if "tensorboard" in names:
            writers.append(opened.enter_context(tensorboard(out / "tensorboard", experiment)))
        if "mlflow" in names:
            kept = mlflow(experiment, out.name, out / "mlflow.txt")
            writers.append(opened.enter_context(kept))

        def write(done: "Done") -> None:
            for each in writers:
                each(done)

        yield write


def check(names: Sequence[str]) -> None:
    """Refuses trackers that are not known, or not installed."""
    for name in names:
        if name not in NEEDS:
            raise IsthmusError(f"no tracker is called {name!r}; {nearest(name, list(NEEDS))}")
        missing = [module for module in NEEDS[name] if find_spec(module) is None]
        if missing:
            raise IsthmusError(
                f"{name} needs {missing[0]}, which is not installed; expected the extra tracking; "
                "type: pip install 'isthmus[tracking]'"
            )
