"""The command figure."""

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
        typer.Option(metavar="FILE", help="Output file: .svg, .pdf or .png [default: NAME.svg]."),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="Metric: top1, loss or ece; for curves also head_variance.")
    ] = "top1",
    model: Annotated[str, typer.Option(help="Models of curves: personal or shared.")] = "personal",
    seed: Annotated[int | None, typer.Option(help="Use only the runs of one seed.")] = None,
    columns: Annotated[
        int,
        typer.Option(
            min=1,
            max=2,
            metavar="NUMBER",
            help="Width in columns of a page: 1 (3.3 inches) or 2 (6.9 inches).",
        ),
    ] = 1,
    width: Annotated[float | None, typer.Option(help="Width in inches.")] = None,
    height: Annotated[float | None, typer.Option(help="Height in inches.")] = None,
) -> None:
    """Save one figure for a paper, at its printed size and readable in grey.

    Runs that differ only in their seed are one line, their mean, with a band from the lowest to the
    highest. The caption is printed. Needs `pip install 'isthmus[figures]'`.

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
            "figures need matplotlib; install it: pip install 'isthmus[figures]'"
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
