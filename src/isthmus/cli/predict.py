"""The command predict."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import HOOKS, DataRoot
from isthmus.errors import IsthmusError


def predict(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Directory of a run; leave it out at a site."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="New examples: a table or an array x.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="CLIENT", help="Number or name of a client of the run.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file.")] = Path(
        "predictions.csv"
    ),
    which: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Use the `best` model on validation data or the `last` one [default: best at a "
            "site, last of a run].",
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Folder of a site.")
    ] = Path(),
    data_root: DataRoot = Path("data"),
) -> None:
    """Predict with a personal model: the likeliest class of each example and all probabilities.

    Examples, one per line:

    `isthmus predict first --client 7 --data new.npz --out predictions.csv`

    `isthmus predict --data new.csv` (in the folder of a site)

    New examples are scaled as the run's were; a table that lacks a column is refused.
    """
    from isthmus.run import open as opened
    from isthmus.run.predict import predict as compute
    from isthmus.run.predict import write_predictions

    if data is None:
        raise IsthmusError("name the file of the new examples with --data")
    if run is None:
        model, arrays, scales = HOOKS["open-model-of-site"](folder, which or "best")
        found = compute(model, data, arrays, scales, messages.print_note)
    elif client is None:
        raise IsthmusError("name the client whose model to use, for example --client 0")
    else:
        with opened.open(run, data_root=data_root) as here:
            federation, i = here.setting.federation, here.find(client)
            arrays, scales = federation.arrays, federation.scales(i)
            model = here.client(i, which or "last")
            found = compute(model, data, arrays, scales, messages.print_note)
    write_predictions(out, found, arrays.labels)
    print(f"{len(found):,} predictions in {out}")
