"""The command cross."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.landscape import read_clients
from isthmus.cli.options import DataRoot, RunPath, Which
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.run.open import Cross

MAX_ROWS = 12  # of a table in the terminal
QUIET_SECONDS = 2.0  # before progress is shown


def cross(
    run: RunPath,
    clients: Annotated[
        str | None, typer.Option(metavar="3,7,9", help="Clients to measure [default: up to 100].")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Number of clients to draw at random.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split of the clients' data: train, validation or test.")
    ] = "test",
    which: Which = "last",
    data_root: DataRoot = Path("data"),
) -> None:
    """Evaluate every client's personal model on every other client's data.

    Examples, one per line:

    `isthmus cross first`

    `isthmus cross first --clients 3,7,9 --split validation`

    Writes cross.csv into the run; `isthmus report` draws it.
    """
    from isthmus.run import cross as measuring
    from isthmus.run import open as opened

    if split not in opened.SPLITS:
        raise IsthmusError(f"--split must be train, validation or test, not {split!r}")
    if clients is not None and sample is not None:
        raise IsthmusError("give either --clients or --sample, for example --sample 20")
    began = time.monotonic()
    with opened.open(run, data_root=data_root) as here, messages.show_arrivals() as tell:

        def tell_later(what: str, done: int, total: int) -> None:
            if time.monotonic() - began > QUIET_SECONDS:
                tell(what, done, total)

        ids = read_clients(clients, here) if clients else []
        ids = ids or measuring.choose_clients(here, sample, split)
        path, found = measuring.survey(run, here, ids, split, tell_later, which)
        total = len(here)
        names = [here.setting.federation.name(i) or str(i) for i in found.clients.tolist()]
    if len(names) <= MAX_ROWS:
        _print_table(found, names)
    print(measuring.describe(found, total))
    print(f"all of it: {path}")


def _print_table(found: "Cross", names: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    print(f"top-1 %: a row for each client's model, a column for each client's {found.split} part")
    heads = ["model of", *names]
    table = Table(*heads, box=None, header_style="bold", pad_edge=False)
    for of, row in zip(names, found.top1.tolist(), strict=True):
        table.add_row(of, *(f"{100 * value:.1f}" for value in row))
    Console().print(table)
