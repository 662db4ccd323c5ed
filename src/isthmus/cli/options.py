"""Options that several commands have, and the experiment that they describe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.errors import IsthmusError
from isthmus.system.plugins import Registry

if TYPE_CHECKING:
    from isthmus.engines.base import Cluster
    from isthmus.experiment.settings import Experiment

HOOKS = Registry("isthmus.hooks", {})  # what sites and papers add to commands of the core

File = Annotated[Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="An experiment file.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")]
RunPaths = Annotated[list[Path], typer.Argument(metavar="RUN", help="Directories of runs.")]
Data = Annotated[
    str | None, typer.Option(help="See `isthmus list data`; or a file or directory of your own.")
]
Seed = Annotated[str | None, typer.Option(metavar="NUMBER", help="Decides every random draw.")]
Rounds = Annotated[str | None, typer.Option(metavar="NUMBER", help="Communication rounds.")]
Preset = Annotated[
    str | None, typer.Option(help="clean, paper or release: whose defaults to take.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; may be repeated."),
]
ReadingSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="How it is read: label, split; repeat it."),
]
DataRoot = Annotated[
    Path,
    typer.Option(
        "--data-root",
        envvar="ISTHMUS_DATA_ROOT",
        metavar="DIR",
        help="Where data sets lie that do not come with isthmus.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="NUMBER",
        help="Processes that compute; one per core if left out. No result depends on it.",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Compute on the Ray cluster whose head is at HOST:PORT; local: on one of this machine "
        "alone. No result depends on it.",
    ),
]
SendData = Annotated[
    bool,
    typer.Option(
        "--send-data", help="Send the data to the cluster's nodes; else they have them in DIR too."
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Runs of a comparison at a time; one per core if left out. No result depends on it.",
    ),
]
Which = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="last, or best: on validation data, where the run keeps them.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="tensorboard or mlflow: write the figures there too; may be repeated.",
    ),
]


def read_reading(path: Path | str, settings: Sequence[str] | None) -> dict[str, Any]:
    """Reads how a file is read, as options of the source that does; nothing where none is given."""
    from isthmus.data.own.own_files import detect_kind, find_own_files
    from isthmus.data.own.schema import inline_schema
    from isthmus.experiment.settings import read_value

    if not settings:
        return {}
    pairs = [text.partition("=") for text in settings]
    options = {key.strip(): read_value(value) for key, _, value in pairs}
    named = {"name": detect_kind(find_own_files(str(path), Path())), **options}
    return inline_schema(named, Path())


def read_cluster(ray: str | None, send_data: bool) -> "Cluster | None":
    """Return where to compute, if it is on a cluster."""
    if ray is None and send_data:
        raise IsthmusError(
            "--send-data without --ray; expected a cluster to send them to; for example --ray "
            "10.0.0.1:6379"
        )
    if ray is None:
        return None
    from isthmus.engines.base import Cluster

    return Cluster(ray, send_data)


def require_sites(command: str) -> None:
    """Refuses a command that needs what talks to real sites where it is not installed."""
    from importlib.util import find_spec

    if not find_spec("nvflare"):
        raise IsthmusError(
            f"`isthmus {command}` needs NVFlare; expected it to be installed; "
            "pip install 'isthmus[sites]'"
        )


def read_experiment(
    file: Path | None, named: Mapping[str, str | None], settings: Sequence[str] | None
) -> "Experiment":
    """Reads the experiment that a file, options by name and those of --set describe."""
    from isthmus.data import SOURCES
    from isthmus.data.own.own_files import ARRAYS, TABLES, detect_kind, find_own_files
    from isthmus.experiment.registry import merge
    from isthmus.experiment.settings import Experiment, read, read_assignments, read_value

    given, data = read(file) if file else {}, named.get("data")
    own: dict[str, Any] = {}
    if data and data.startswith("hf:"):
        own = {"data": {"name": "hub", "path": data.removeprefix("hf:")}}
    like_a_file = data is not None and data.endswith((*TABLES, *ARRAYS, "/"))
    if data and not own and data not in SOURCES and (like_a_file or Path(data).exists()):
        place = find_own_files(data, Path())
        own = {"data": {"name": detect_kind(place), "path": str(place)}}
    values = {
        key: read_value(text) for key, text in named.items() if text is not None and key not in own
    }
    changes = merge(own, read_assignments(settings or [], merge(given, own), values))
    return Experiment.load(file, changes) if file else Experiment(**changes)
