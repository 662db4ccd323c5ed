"""The command list."""

import json
from typing import Annotated

import typer

from isthmus.cli.options import AsJson
from isthmus.errors import IsthmusError, nearest


def list_(
    what: Annotated[
        str, typer.Argument(help="methods, data, partitions, models or noise.")
    ] = "methods",
    as_json: AsJson = False,
) -> None:
    """Lists what can be named: methods, data, partitions, models, noise, with their options.

    Example: `isthmus list methods --json`
    """
    from isthmus.cli import catalogue
    from isthmus.config import registry

    kinds = {part if part in ("data", "noise") else f"{part}s": part for part in registry.PARTS}
    if what not in kinds:
        raise IsthmusError(f"nothing to list is called {what!r}; {nearest(what, list(kinds))}")
    entries = registry.describe_choices(kinds[what])
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    catalogue.show(what, entries)
