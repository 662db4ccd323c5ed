"""MLflow: a run of its own, in a file or on a server.

with write_run(experiment, name="first") as write:
    federate(experiment, out="first", watch=write)
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.errors import IsthmusError
from isthmus.system.files import explain_unwritable, write_text
from isthmus.tracking.callback import Tracker, Write, check_installed, scalars, settings

if TYPE_CHECKING:
    from isthmus.experiment.settings import Experiment
    from isthmus.run.loop import RoundResult


@contextmanager
def write_run(
    experiment: "Experiment", name: str | None = None, keep: Path | None = None
) -> Iterator[Write]:
    """Write a run to MLflow, to the place that its environment variables name.

    With none set that is MLflow's own default, a file in the current directory. `keep` is a file
    for the id of MLflow's run: where it is there already, that run goes on. MLflow's reports about
    its users stay off, unless MLFLOW_DISABLE_TELEMETRY says otherwise.
    """
    check_installed("mlflow", MLFLOW)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient, get_tracking_uri
    from sqlalchemy.exc import SQLAlchemyError

    def create() -> str:
        place = os.environ.get("MLFLOW_EXPERIMENT_NAME", "isthmus")
        there = client.get_experiment_by_name(place)
        where = client.create_experiment(place) if there is None else there.experiment_id
        run: str = client.create_run(where, run_name=name).info.run_id
        listed = settings(experiment).items()
        client.log_batch(run, params=[Param(key, str(value)) for key, value in listed])
        if keep is not None:
            write_text(keep, f"{run}\n")
        return run

    def write(done: "RoundResult") -> None:
        now, numbers = int(1000 * time.time()), scalars(experiment, done)
        metrics = [Metric(key, value, now, done.cost.round) for key, value in numbers.items()]
        client.log_batch(run, metrics)

    _try_file(get_tracking_uri())
    try:
        client = MlflowClient()
        run = keep.read_text().strip() if keep and keep.is_file() else create()
        client.update_run(run, status="RUNNING")
        status = "FAILED"
        try:
            yield write
            status = "FINISHED"
        finally:
            client.set_terminated(run, status)
    except (MlflowException, SQLAlchemyError) as error:
        reason = str(error).splitlines()[0]
        raise IsthmusError(
            f"MLflow rejected the run: {reason}; set MLFLOW_TRACKING_URI to another server or "
            "file, or leave out mlflow"
        ) from None


def _try_file(address: str) -> None:
    """Check that MLflow's database can be written; MLflow itself would retry for two minutes."""
    kind, _, rest = address.partition(":///")
    if kind == "sqlite" and rest:
        path = Path(rest.partition("?")[0])
        with explain_unwritable(path), path.open("ab"):
            pass


MLFLOW = Tracker(
    open=lambda run, experiment: write_run(experiment, run.name, run / "mlflow.txt"),
    needs=("mlflow", "sqlalchemy", "alembic"),
)
