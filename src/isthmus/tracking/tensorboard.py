"""TensorBoard: event files, which show curves and a table of settings beside figures.

with write_events("events/first", experiment) as write:
    federate(experiment, out="first", watch=write)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.system.files import explain_unwritable
from isthmus.tracking.callback import Tracker, Write, check_installed, scalars, settings

if TYPE_CHECKING:
    from isthmus.experiment.settings import Experiment
    from isthmus.run.loop import RoundResult


@contextmanager
def write_events(directory: Path | str, experiment: "Experiment") -> Iterator[Write]:
    """Write event files for TensorBoard; a resumed run adds another file."""
    check_installed("tensorboard", TENSORBOARD)
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import hparams

    place, described = Path(directory), False

    def write(done: "RoundResult") -> None:
        nonlocal described
        numbers = scalars(experiment, done)
        tested = {name: number for name, number in numbers.items() if "/test/" in name}
        with explain_unwritable(place):
            if tested and not described:  # its table shows the settings beside these figures
                described = True
                for summary in hparams(settings(experiment), tested):
                    writer.file_writer.add_summary(summary)
            for name, number in numbers.items():
                writer.add_scalar(name, number, done.cost.round)
            writer.flush()

    with explain_unwritable(place):
        writer = SummaryWriter(str(directory))
    try:
        yield write
    finally:
        with explain_unwritable(place):
            writer.close()


TENSORBOARD = Tracker(
    open=lambda run, experiment: write_events(run / "tensorboard", experiment),
    needs=("tensorboard",),
)
