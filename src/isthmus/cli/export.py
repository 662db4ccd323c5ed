"""The command export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import DataRoot, RunPath, Which
from isthmus.errors import IsthmusError


def export(
    run: RunPath,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Output directory.")],
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="CLIENT", help="Number or name of a client (repeatable)."),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Export all clients.")] = False,
    which: Which = "last",
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="safetensors: parameters; torch or onnx: a program that also prepares the inputs.",
        ),
    ] = "safetensors",
    data_root: DataRoot = Path("data"),
) -> None:
    """Export personal models, each with a JSON card that describes it.

    Examples, one per line:

    `isthmus export first --client 7 --out models`

    `isthmus export first --all --out models`

    `isthmus export first --client 7 --format onnx --out models`

    In Python, `isthmus.models.card.load("models/client-7.json")` takes a table to probabilities,
    and `load_network` beside it gives the network back.
    """
    if bool(client) == everyone:
        raise IsthmusError("give either --client or --all, for example --client 0")
    from isthmus.run import open as opened
    from isthmus.run.export import export as export_models

    with opened.open(run, data_root=data_root) as here:
        ids = [here.find(name) for name in client] if client else None
        cards = list(export_models(here, out, ids, which, form))
    models = "model" if len(cards) == 1 else "models"
    print(f"{len(cards)} {models} in {out}, the last one's card: {cards[-1]}")
    checks = [json.loads(card.read_text("utf-8")).get("checked") for card in cards]
    if all(checks):
        examples = sum(check["examples"] for check in checks)
        apart = max(check["largest_difference"] for check in checks)
        print(
            f"checked on {examples:,} examples of their clients: probabilities differ by at most "
            f"{apart:.1g} from those of the run's models ({checks[0]['tolerance']:g} is allowed)"
        )
