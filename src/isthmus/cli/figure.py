"""The command that saves one figure. Nothing heavy is imported before it needs it."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import HOOKS
from isthmus.errors import IsthmusError


def figure(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Directories of runs, or records of reproduce (.json)."),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `isthmus list figures`.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An .svg, .pdf or .png file; NAME.svg if left out."),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="top1, loss or ece; for curves also head_variance.")
    ] = "top1",
    model: Annotated[str, typer.Option(help="Of curves: personal or shared models.")] = "personal",
    seed: Annotated[
        int | None, typer.Option(help="Only the runs of one seed; all if left out.")
    ] = None,
    columns: Annotated[
        int,
        typer.Option(
            min=1, max=2, metavar="NUMBER", help="One column of a page, 3.3 inches, or both, 6.9."
        ),
    ] = 1,
    width: Annotated[float | None, typer.Option(help="Another width, in inches.")] = None,
    height: Annotated[float | None, typer.Option(help="Another height, in inches.")] = None,
) -> None:
    """Saves one figure for a paper: at its printed size, labelled, known apart in grey.

    Runs that differ only in their seed are one line, their mean, with a band from the lowest to the
    highest. What to write under the figure is printed. It needs `pip install 'isthmus[figures]'`.

    Examples, one per line:

    `isthmus figure demo/local demo/fedavg demo/superfed-mm rounds --out rounds.svg`

    `isthmus figure demo/superfed-mm path --metric loss --columns 2 --out path.pdf`

    `isthmus figure reproduction/results/*.json rounds`
    """
    try:
        from isthmus.report.figures.printing import WIDTHS, save
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise IsthmusError(
            "figures need matplotlib; expected it to be installed; pip install 'isthmus[figures]'"
        ) from None
    from isthmus.run import record as reader

    saved = save(
        [
            HOOKS["read-record"](path, name, metric)
            if path.suffix == ".json"
            else reader.read(path)
            for path in runs
        ],
        name,
        out or Path(f"{name}.svg"),
        metric=metric,
        model=model,
        seed=seed,
        width=WIDTHS[columns] if width is None else width,
        height=height,
    )
    print(f"caption: {saved.caption}")
    print(f"figure: {saved.path}")
