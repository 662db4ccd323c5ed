"""The command adapt."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import HOOKS, DataRoot, ReadingSettings, RunPath, read_reading


def adapt(
    run: RunPath,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Newcomers' data: arrays x and y, or in the form of the run's data.",
        ),
    ],
    shots: Annotated[
        list[int] | None,
        typer.Option(help="Limit the examples to train on (repeatable)."),
    ] = None,
    settings: ReadingSettings = None,
    data_root: DataRoot = Path("data"),
) -> None:
    """Let clients that took part in no round join a finished run, and evaluate them.

    Example: `isthmus adapt first --data newcomers.npz --shots 5 --shots 20`

    In an .npz file, `x` are inputs as in the run's data, `y` labels, `client` the owner of each
    example. If the run's data are a table or folders, newcomers' data may be too. For a run at
    sites, a newcomer copies the server's `run` directory and adapts at home.
    """
    from isthmus.data.own import newcomer_files
    from isthmus.run import newcomers

    with HOOKS["open-run"](run, data_root) as here:
        reading = read_reading(data, settings) or here.experiment.data
        arrived = newcomer_files.read_newcomers(data, here.setting.federation, reading)
        for note in arrived.notes:
            messages.print_note(note)
        found = here.join(arrived, [*shots, None] if shots else newcomers.SHOTS)
        print(newcomers.describe(found))
        here.record(found, arrived, data)
    print(f"added to {run / 'newcomers.csv'}")
