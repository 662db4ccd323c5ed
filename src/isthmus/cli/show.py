"""The command show."""

import json
from typing import Annotated

import typer

from isthmus.cli.options import AsJson, RunPath
from isthmus.errors import IsthmusError


def show(
    run: RunPath,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Also print the rounds, seconds and bytes to reach this mean personal test top-1.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the status of a run: settings, progress, results, size on disk.

    Examples, one per line:

    `isthmus show first`

    `isthmus show first --target 0.9`
    """
    from isthmus.report.show import collect, describe

    facts = collect(run, target)
    print(json.dumps(facts, indent=2, default=str) if as_json else describe(facts))
    if facts.get("damaged"):
        raise IsthmusError(facts["status"])
