"""The command report."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import RunPaths


def report(
    runs: RunPaths,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file.")] = Path("report.html"),
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Method the others are compared with [default: fedavg].",
        ),
    ] = None,
) -> None:
    """Print a table of runs and write a page about them.

    Example: `isthmus report demo/fedavg demo/superfed-mm --out report.html`
    """
    from rich.console import Console

    from isthmus.report import contrasts, page
    from isthmus.report.tables import comparison, reach, summary
    from isthmus.run import record as reader

    records = [reader.read(path) for path in runs]
    target = contrasts.choose_reference(records, baseline)
    if contrasts.have_several_seeds(records):
        Console().print(comparison.terminal(contrasts.compare(records, baseline)))
    else:
        Console().print(summary.terminal(summary.summarize(records)))
    if target is not None and len(runs) > 1:
        Console().print(reach.terminal(records, target))
    written = page.write(records, out, baseline=baseline)
    print(f"page: {written.resolve().as_uri()}")
