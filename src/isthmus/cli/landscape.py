"""The command that measures the landscape around a run's models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import DataRoot, RunPath
from isthmus.errors import IsthmusError, quote

if TYPE_CHECKING:
    from isthmus.run.open import Opened

MOST_POINTS = 500  # along a side: 250,000 models


def landscape(
    run: RunPath,
    clients: Annotated[
        str | None,
        typer.Option(metavar="3,7", help="Two clients, or three: then without the shared model."),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option("--with", metavar="RUN", help="Another run, whose shared model is the third."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="server,3",
            help="Whose data to measure on; if left out, the server's and the plane's clients'.",
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Of clients' data: train, validation or test.")
    ] = "test",
    points: Annotated[int, typer.Option(help="Points of the grid, along each side.")] = 21,
    data_root: DataRoot = Path("data"),
) -> None:
    """Measures models that were never trained: a plane through three, and FLOCO's simplex.

    Examples, one per line:

    `isthmus landscape first` takes the shared model and two clients' own ones.

    `isthmus landscape first --clients 3,7,9 --points 31`

    `isthmus landscape demo/superfed-mm --with demo/fedavg --clients 3 --on server`

    It leaves landscape.csv and, for FLOCO, simplex.csv in the run; `isthmus report` draws them.
    """
    from isthmus.run import landscape as measuring
    from isthmus.run import open as opened

    if split not in measuring.SPLITS:
        raise IsthmusError(f"--split {split!r}; expected train, validation or test; say which")
    if not 2 <= points <= MOST_POINTS:
        raise IsthmusError(
            f"--points {quote(points)}; expected 2 to {MOST_POINTS}; for example --points 21"
        )
    third = None
    if beside is not None:
        with opened.open(beside, data_root=data_root) as there:
            third = measuring.shared_model(there, beside.resolve().name)
    with opened.open(run, data_root=data_root) as here, messages.show_arrivals() as tell:
        written = measuring.survey(
            run,
            here,
            clients=read_clients(clients, here) if clients else (),
            third=third,
            on=_read_names(on, measuring.with_data(here, split), split) if on else (),
            split=split,
            points=points,
            tell=tell,
        )
    for path, what in written.items():
        print(f"{what}: {path}")


def read_clients(text: str, run: "Opened") -> list[int]:
    """Reads numbers or names of clients, separated by commas."""
    ids = [run.find(word) for word in _split(text)]
    if not ids or len(set(ids)) < len(ids):
        raise IsthmusError(
            f"--clients {quote(text)}; expected different clients, by number or name; for example "
            "--clients 0,1"
        )
    return ids


def _read_names(text: str, known: list[str], split: str) -> list[str]:
    names = list(dict.fromkeys(_split(text)))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise IsthmusError(
            f"--on {text!r}: no {split} data of {(unknown or [text])[0]!r}; expected 'server', if "
            f"it has a test set, and numbers of clients; for example --on {known[0]}"
        )
    return names


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
