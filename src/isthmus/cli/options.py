"""Options that several commands share, and the experiment that they describe."""

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
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run.")]
RunPaths = Annotated[list[Path], typer.Argument(metavar="RUN", help="Directories of runs.")]
Data = Annotated[
    str | None, typer.Option(help="A name from `isthmus list data`, or your own file or directory.")
]
Seed = Annotated[str | None, typer.Option(metavar="NUMBER", help="Seed of every random draw.")]
Rounds = Annotated[str | None, typer.Option(metavar="NUMBER", help="Communication rounds.")]
Preset = Annotated[
    str | None, typer.Option(help="Defaults to start from: clean, paper or release.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set any other setting (repeatable)."),
]
ReadingSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        metavar="KEY=VALUE",
        help="Option for reading the data file, e.g. label=outcome (repeatable).",
    ),
]
DataRoot = Annotated[
    Path,
    typer.Option(
        "--data-root",
        envvar="ISTHMUS_DATA_ROOT",
        metavar="DIR",
        help="Directory of data sets that do not come with isthmus.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="NUMBER",
        help="Worker processes [default: one per core]. Results do not depend on it.",
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Compute on the Ray cluster with its head at HOST:PORT, or start one on this machine "
        "(`local`). Results do not depend on it.",
    ),
]
SendData = Annotated[
    bool,
    typer.Option(
        "--send-data",
        help="Send the data to the nodes of the cluster; otherwise each reads its own copy in the "
        "data root.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Number of runs at a time [default: one per core]. Results do not depend on it.",
    ),
]
Which = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="Use the `last` models, or the `best` ones on validation data if the run kept them.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="Also write metrics to tensorboard or mlflow (repeatable).",
    ),
]


def read_reading(path: Path | str, settings: Sequence[str] | None) -> dict[str, Any]:
    """Return the options for reading a file that --read gives; none where there is no --read."""
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
            "--send-data needs a cluster to send the data to; add --ray, for example --ray "
            "10.0.0.1:6379"
        )
    if ray is None:
        return None
    from isthmus.engines.base import Cluster

    return Cluster(ray, send_data)


def require_sites(command: str) -> None:
    """Refuse a command for real sites where their extra is not installed."""
    from importlib.util import find_spec

    if not find_spec("nvflare"):
        raise IsthmusError(
            f"`isthmus {command}` needs NVFlare; install it: pip install 'isthmus[sites]'"
        )


def read_experiment(
    file: Path | None, named: Mapping[str, str | None], settings: Sequence[str] | None
) -> "Experiment":
    """Return the experiment that a file, options by name and those of --set describe."""
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
