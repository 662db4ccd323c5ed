"""The commands below `isthmus data`. Nothing heavy is imported before a command needs it."""

import json
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.options import Data, DataRoot, File, Seed, Settings, described

if TYPE_CHECKING:
    from isthmus.data.federation import Federation
    from isthmus.data.heterogeneity import Heterogeneity
    from isthmus.experiment import Experiment

app = typer.Typer(
    rich_markup_mode="markdown", help="Looks at data, and at how they are divided among clients."
)


@app.command()
def show(
    file: File = None,
    data: Data = None,
    seed: Seed = None,
    settings: Settings = None,
    data_root: DataRoot = Path("data"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Shows how an experiment divides its data: figures, what was relaxed, a picture.

    Examples, one per line:

    `isthmus data show --data digits --set partition=dirichlet-clientwise --set beta=0.3`

    `isthmus data show first/experiment.toml --json`

    A row of the picture is a client, a column is a class. The digest names data and division.
    """
    import numpy as np

    from isthmus.data.heterogeneity import heterogeneity
    from isthmus.picture import picture
    from isthmus.rounds import federation_of

    experiment = described(file, {"data": data, "seed": seed}, settings)
    federation = federation_of(experiment, data_root)
    counts = np.stack([federation.label_counts(i) for i in range(len(federation))])
    found = heterogeneity(counts)
    if as_json:
        print(json.dumps(_record(experiment, federation, found) | {"counts": counts.tolist()}))
        return
    print(_text(experiment, federation, found))
    print(picture(counts, get_terminal_size().columns, sys.stdout.encoding or "ascii"))


def _record(
    experiment: "Experiment", federation: "Federation", found: "Heterogeneity"
) -> dict[str, object]:
    return {
        "data": dict(experiment.data),
        "partition": dict(experiment.partition),
        "seed": experiment.seed,
        **found._asdict(),
        "sizes": found.sizes._asdict(),
        "classes_per_client": found.classes_per_client._asdict(),
        "notes": list(federation.notes),
        "digest": federation.digest(),
    }


def _text(experiment: "Experiment", federation: "Federation", found: "Heterogeneity") -> str:
    options = ", ".join(f"{k}={v}" for k, v in experiment.partition.items() if k != "name")
    name = experiment.partition["name"] + (f" ({options})" if options else "")
    sizes, classes = found.sizes, found.classes_per_client
    lines = {
        "data": f"{experiment.data['name']}, seed {experiment.seed}",
        "partition": name,
        "clients": f"{found.clients:,}",
        "examples": f"{found.examples:,}; per client {sizes.least:,} to {sizes.most:,}, "
        f"median {sizes.median:,g}; Gini {found.gini:.3f}",
        "classes": f"{found.classes}; per client {classes.least} to {classes.most}, "
        f"median {classes.median:g}",
        "label entropy": f"{found.entropy:.3f} nats, mean over clients; all labels together "
        f"{found.pooled_entropy:.3f}",
        "label distance": f"{found.distance:.3f}, mean total variation between two clients",
        "digest": federation.digest(),
    }
    width = max(len(key) for key in lines) + 2
    text = [f"{key:<{width}}{value}" for key, value in lines.items()]
    return "\n".join(text + [f"note: {note}" for note in federation.notes])
