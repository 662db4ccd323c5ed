"""Metrics of a run, written to other programs while it runs.

A new tracker is its file here and an entry of TRACKERS, or an entry point of another package.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.errors import IsthmusError, nearest
from isthmus.system.plugins import Registry
from isthmus.tracking.callback import Write, check_installed

if TYPE_CHECKING:
    from isthmus.experiment.settings import Experiment
    from isthmus.run.loop import RoundResult

TRACKERS = Registry(
    "isthmus.trackers",
    {
        "tensorboard": "isthmus.tracking.tensorboard:TENSORBOARD",
        "mlflow": "isthmus.tracking.mlflow:MLFLOW",
    },
)


def check(names: Sequence[str]) -> None:
    """Refuse trackers that are not known, or not installed."""
    for name in names:
        if name not in TRACKERS:
            raise IsthmusError(f"no tracker is called {name!r}; {nearest(name, list(TRACKERS))}")
        check_installed(name, TRACKERS[name])


@contextmanager
def track(names: Sequence[str], run: Path, experiment: "Experiment") -> Iterator[Write]:
    """Write to the named trackers, with what must stay with the run in its directory."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(TRACKERS[name].open(run, experiment))
            for name in dict.fromkeys(names)
        ]

        def write(done: "RoundResult") -> None:
            for each in writers:
                each(done)

        yield write
