"""The commands of `isthmus data`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import messages
from isthmus.cli.list import wrap_text
from isthmus.cli.options import (
    AsJson,
    Data,
    DataRoot,
    File,
    Seed,
    Settings,
    read_experiment,
    read_reading,
)
from isthmus.errors import IsthmusError, nearest

if TYPE_CHECKING:
    from isthmus.data.federation import Federation
    from isthmus.data.heterogeneity import Heterogeneity
    from isthmus.experiment.settings import Experiment

app = typer.Typer(
    rich_markup_mode="markdown",
    help="Get data sets, and look at how they are divided among clients.",
)


@app.command()
def show(
    file: File = None,
    data: Data = None,
    seed: Seed = None,
    settings: Settings = None,
    data_root: DataRoot = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Show how an experiment divides its data: figures, relaxed rules, a picture.

    Examples, one per line:

    `isthmus data show --data digits --set partition=dirichlet-clientwise --set beta=0.3`

    `isthmus data show first/experiment.toml --json`

    A row of the picture is a client, a column a class. The digest identifies data and division.
    """
    import numpy as np

    from isthmus.cli.picture import draw_picture
    from isthmus.data.heterogeneity import measure_heterogeneity
    from isthmus.run.build import read_federation

    experiment = read_experiment(file, {"data": data, "seed": seed}, settings)
    federation = read_federation(experiment, data_root)
    counts = np.stack([federation.label_counts(i) for i in range(len(federation))])
    figures = measure_heterogeneity(counts)
    if as_json:
        print(json.dumps(_to_record(experiment, federation, figures) | {"counts": counts.tolist()}))
        return
    print(_to_text(experiment, federation, figures))
    encoding = sys.stdout.encoding or "ascii"
    print(draw_picture(counts, get_terminal_size().columns, encoding, federation.names))


@app.command(name="list")
def list_(
    data_root: DataRoot = Path("data"),
    as_json: AsJson = False,
) -> None:
    """List the data sets to download: description, licence, size, and whether they are here.

    Example: `isthmus data list --data-root ~/data`

    `isthmus list data` also lists those that come with isthmus.
    """
    from isthmus.data.get import origins

    known = origins.ORIGINS
    places = {name: remote.find(data_root) for name, remote in known.items()}
    ways = {
        name: ["official"] * bool(remote.files) + ["hub"] * bool(remote.hub)
        for name, remote in known.items()
    }
    if as_json:
        entries = [
            {
                "name": name,
                "what": remote.what,
                "licence": remote.licence,
                "nbytes": remote.nbytes or None,
                "sources": ways[name],
                "found": str(places[name]) if places[name] else None,
                "expected": [str(data_root / pattern) for pattern in remote.places[0]],
            }
            for name, remote in known.items()
        ]
        print(json.dumps(entries, indent=2))
        return
    width = max(map(len, known)) + 2
    for name, remote in known.items():
        here = places[name]
        size = [f"{remote.nbytes / 1e6:,.0f} MB"] if remote.nbytes else []
        source = f"from: {' or '.join(ways[name]) or 'its makers, by hand'}"
        facts = "; ".join([*size, f"licence: {remote.licence}", source])
        where = f"here: {here}" if here else f"not here: {data_root / remote.places[0][0]}"
        for first, text in ((name, remote.what), ("", facts), ("", where)):
            print("\n".join(wrap_text(text, f"{first:<{width}}")))


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name from `isthmus data list`.")],
    data_root: DataRoot = Path("data"),
    source: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Download from `official` (the publisher or a mirror) or `hub` (Hugging Face).",
        ),
    ] = "official",
    force: Annotated[bool, typer.Option("--force", help="Download it even if it is here.")] = False,
) -> None:
    """Download a data set, or resume its download; check it and put it in its place.

    Examples, one per line:

    `isthmus data get mnist --data-root ~/data`

    `isthmus data get femnist --source hub` (needs `pip install 'isthmus[hub]'`)

    `isthmus data get hf:OWNER/NAME` (any data set of the Hugging Face hub)
    """
    from isthmus.data.get import origins

    known = origins.ORIGINS
    if name.startswith("hf:"):
        from isthmus.data.get import hub

        print(f"{name}: {hub.download_set(name.removeprefix('hf:'), data_root)}")
        return
    if name not in known:
        raise IsthmusError(
            f"no data set to download is called {name!r}; {nearest(name, list(known))}"
        )
    remote = known[name]
    if source not in ("official", "hub"):
        raise IsthmusError(f"--source must be official or hub, not {source!r}")
    here = remote.find(data_root)
    if here is not None and not force:
        print(f"{name} is here: {here}; use --force to download it again")
        return
    with messages.show_arrivals() as show:
        if source == "hub":
            from isthmus.data.get import hub

            hub.download_from_hub(name, remote, data_root, show)
        else:
            from isthmus.data.get import download

            download.download_all(name, remote, data_root, force=force, show=show)
    print(f"{name} is here: {remote.find(data_root)}")


@app.command()
def schema(
    file: Annotated[
        Path | None, typer.Argument(metavar="TABLE", help="A table or an EXPERIMENT.toml.")
    ] = None,
    data: Data = None,
    settings: Settings = None,
    sites: Annotated[
        str, typer.Option(metavar="NAMES", help="Sites of the run, separated by commas.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file [default: print it].")
    ] = None,
    data_root: DataRoot = Path("data"),
) -> None:
    """Write a schema: of the columns of a table, to edit, or of a study that sites agree on.

    Examples, one per line:

    `isthmus data schema patients.csv --set label=outcome --out patients.toml`

    `isthmus data schema --data patients.csv --set label=outcome --sites ulm,bonn --out study.toml`

    For a table: the kind of each column, its categories, and the number of missing values. Use it
    with `--set schema=patients.toml`.

    With `--data`: the experiment of real sites, with shapes, classes, columns, their categories,
    means and deviations of these data, and no rows. Read it before you send it: a category may be
    the name of a person.
    """
    from isthmus.data.own.own_files import TABLES
    from isthmus.system.files import write_text

    if file is not None and file.suffix.lower() in TABLES and not (sites or data):
        text = _describe_table(file, settings, data_root)
        further = f"correct it; then isthmus run --data {file} --set schema={out}"
    else:
        text = _describe_study(file, data, settings, sites, data_root)
        further = "add method, rounds and so on; then send it to all sites"
    if out is None:
        print(text, end="")
        return
    if out.exists():
        raise IsthmusError(f"{out} exists already; name another file with --out")
    write_text(out, text)
    print(f"{out}: {further}")


def _describe_table(file: Path, settings: list[str] | None, data_root: Path) -> str:
    from isthmus.data.own.own_files import find_own_files
    from isthmus.data.own.reader import open_table
    from isthmus.data.own.schema import write_schema
    from isthmus.experiment import registry

    options = registry.complete("data", {"name": "table", **read_reading(file, settings)})
    table = open_table(find_own_files(str(file), data_root), options["delimiter"])
    given = [(options[role], role) for role in ("label", "client", "split", "weight")]
    if "label" not in table.header and "y" in table.header:
        given.append(("y", "label"))
    roles = {name: role for name, role in given if name in table.header}
    for name, role in given:
        if name not in (*roles, role, ""):
            known = [column for column in table.header if column]
            raise IsthmusError(f"{file} has no column {name!r} for {role}; {nearest(name, known)}")
    categorical = [name.strip() for name in options["categorical"].split(",")]
    missing = "" if options["missing"] == "refuse" else options["missing"]
    named = [value.strip() for value in str(options["missing_values"]).split(",") if value.strip()]
    return write_schema(table, roles, categorical, options["categories"], missing, named)


def _describe_study(
    file: Path | None, data: str | None, settings: list[str] | None, sites: str, data_root: Path
) -> str:
    import tomli_w

    from isthmus.data.own.own_files import TABLES, find_own_files
    from isthmus.data.own.reader import open_table
    from isthmus.data.own.sites import check_deployable_schema, describe
    from isthmus.experiment import registry

    if file is not None and file.suffix.lower() in TABLES:
        file, data = None, data or str(file)
    experiment = read_experiment(file, {"data": data}, settings)
    source = dict(experiment.data)
    alone = source["name"] == "table" and not source["schema"]
    if alone and source["client"] == "client":  # one site's rows need not say
        there = open_table(find_own_files(source["path"], data_root), source["delimiter"]).header
        source["client"] = "client" if "client" in there else ""
    arrays = registry.build("data", source).load(data_root, experiment.dividing_seed)
    described = describe(arrays)
    check_deployable_schema(described)
    names = [name.strip() for name in sites.split(",") if name.strip()]
    return tomli_w.dumps({"data": {"name": "sites", "names": names, "schema": described}})


def _to_record(
    experiment: "Experiment", federation: "Federation", figures: "Heterogeneity"
) -> dict[str, object]:
    return {
        "data": dict(experiment.data),
        "partition": dict(experiment.partition),
        "noise": dict(experiment.noise),
        "seed": experiment.dividing_seed,
        **figures._asdict(),
        "sizes": figures.sizes._asdict(),
        "classes_per_client": figures.classes_per_client._asdict(),
        "names": list(federation.names),
        "notes": list(federation.notes),
        "digest": federation.digest(),
    }


def _to_text(experiment: "Experiment", federation: "Federation", figures: "Heterogeneity") -> str:
    sizes, classes = figures.sizes, figures.classes_per_client
    lines = {
        "data": f"{experiment.data['name']}, seed {experiment.dividing_seed}",
        "partition": _describe_part(experiment.partition),
        "noise": _describe_part(experiment.noise),
        "clients": f"{figures.clients:,}",
        "examples": f"{figures.examples:,}; per client {sizes.least:,} to {sizes.most:,}, "
        f"median {sizes.median:,g}; Gini {figures.gini:.3f}",
        "classes": f"{figures.classes}; per client {classes.least} to {classes.most}, "
        f"median {classes.median:g}",
        "label entropy": f"{figures.entropy:.3f} nats, mean over clients; all labels together "
        f"{figures.pooled_entropy:.3f}",
        "label distance": f"{figures.distance:.3f}, mean total variation between two clients",
        "digest": federation.digest(),
    }
    width = max(len(key) for key in lines) + 2
    text = [f"{key:<{width}}{value}" for key, value in lines.items()]
    return "\n".join(text + [f"note: {note}" for note in federation.notes])


def _describe_part(table: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key}={value}" for key, value in table.items() if key != "name")
    return str(table["name"]) + (f" ({options})" if options else "")
