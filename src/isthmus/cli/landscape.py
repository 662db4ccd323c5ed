"""The command landscape."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import DataRoot, RunPath
from isthmus.errors import IsthmusError, quote

if TYPE_CHECKING:
    from isthmus.run.open import Opened

MAX_POINTS = 500  # along a side: 250,000 models


def landscape(
    run: RunPath,
    clients: Annotated[
        str | None,
        typer.Option(metavar="3,7", help="Two clients, or three to leave out the shared model."),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option("--with", metavar="RUN", help="Another run: its shared model is the third."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="server,3",
            help="Data to measure on [default: the server's and those of the plane's clients].",
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split of the clients' data: train, validation or test.")
    ] = "test",
    points: Annotated[int, typer.Option(help="Grid points along each side.")] = 21,
    data_root: DataRoot = Path("data"),
) -> None:
    """Evaluate models on a plane through three trained ones, and in FLOCO's simplex.

    Examples, one per line:

    `isthmus landscape first` (the shared model and those of two clients)

    `isthmus landscape first --clients 3,7,9 --points 31`

    `isthmus landscape demo/superfed-mm --with demo/fedavg --clients 3 --on server`

    Writes landscape.csv and, for FLOCO, simplex.csv into the run; `isthmus report` draws them.
    """
    from isthmus.run import landscape as measuring
    from isthmus.run import open as opened

    if split not in opened.SPLITS:
        raise IsthmusError(f"--split must be train, validation or test, not {split!r}")
    if not 2 <= points <= MAX_POINTS:
        raise IsthmusError(f"--points must be 2 to {MAX_POINTS}, not {quote(points)}")
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
    """Return the clients whose numbers or names are given, separated by commas."""
    ids = [run.find(word) for word in _split(text)]
    if not ids or len(set(ids)) < len(ids):
        raise IsthmusError(
            f"--clients must name different clients, not {quote(text)}; for example --clients 0,1"
        )
    return ids


def _read_names(text: str, known: list[str], split: str) -> list[str]:
    names = list(dict.fromkeys(_split(text)))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise IsthmusError(
            f"--on {text!r}: there are no {split} data of {(unknown or [text])[0]!r}; name the "
            f"server, if it has a test set, or clients by number; for example --on {known[0]}"
        )
    return names


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
