"""The command line. Nothing heavy is imported before a command needs it."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import compare, data, figure, landscape
from isthmus.cli.options import (
    Data,
    DataRoot,
    File,
    Jobs,
    Seed,
    Settings,
    Track,
    Workers,
    described,
)
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.training.federate import Run

app = typer.Typer(
    name="isthmus",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Personalized federated learning over connected modes.\n\n"
    "Start with `isthmus demo`. Then `isthmus run --method superfed-mm --data digits --rounds 40`.",
)
app.add_typer(data.app, name="data")

UsageError: Any = typer.BadParameter.__base__  # click's own, or the one that typer brings

DEMO: dict[str, dict[str, Any]] = {
    "local": {},
    "fedavg": {},
    "superfed-mm": {},
    "superfed-lm": {},
    "floco": {"vertices": 5, "tau": 20},
    "fedsimsup": {},
}
DEMO_SETTINGS: dict[str, Any] = {
    "data": "digits",
    "partition": {"name": "pathological", "shards": 2},
    "rounds": 50,
    "epochs": 5,
    "lr": 0.05,
    "eval_every": 5,
}


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"isthmus {version('isthmus')}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Does what comes before any command."""


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the page and the records go.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Another seed, another division of the digits.")] = 11,
) -> None:
    """Trains six methods on bundled digits, prints a table, writes a page.

    Twenty clients hold two kinds of handwritten digits each. Every one of them ends with a model
    of its own; the page shows what sharing did for it, what lies between the two models and around
    them, where clients are in FLOCO's simplex and how good its models are, and what FedSimSup's two
    networks each know. It takes less than a minute on two cores.

    Example: `isthmus demo --out demo`
    """
    from isthmus.cli import driver
    from isthmus.cli.progress import Board
    from isthmus.config.experiment import Experiment

    folder = _unused(out)
    with Board(dict.fromkeys(DEMO, DEMO_SETTINGS["rounds"])) as board:
        for method, options in DEMO.items():
            chosen = {"name": method, **options}
            experiment = Experiment(method=chosen, seed=seed, **DEMO_SETTINGS)
            driver.begin(experiment, folder / method, Path("data"), board=board)
    for method in ("superfed-mm", "floco"):
        landscape.landscape(folder / method)
    _report([folder / method for method in DEMO], folder / "report.html")


@app.command()
def run(
    file: File = None,
    method: Annotated[str | None, typer.Option(help="See `isthmus list methods`.")] = None,
    data: Data = None,
    rounds: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Communication rounds.")
    ] = None,
    seed: Seed = None,
    preset: Annotated[
        str | None, typer.Option(help="clean, paper or release: whose defaults to take.")
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the records go; runs/DATA-METHOD-SEED if left out."
        ),
    ] = None,
    data_root: DataRoot = Path("data"),
    sync: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="round: every round is on disk before the next; system: a power cut may lose all.",
        ),
    ] = "round",
    track: Track = None,
    workers: Workers = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show at the end where the time of a round went.")
    ] = False,
) -> None:
    """Runs one experiment, shows its figures, keeps its records.

    Examples, one per line:

    `isthmus run --method superfed-mm --data digits --rounds 40 --out first`

    `isthmus run --method fedprox --data digits --set mu=0.1 --set partition=iid`

    `isthmus run --method superfed-lm --data mnist --data-root ~/data`

    `isthmus run first/experiment.toml` runs the same again, to the same digest.
    """
    from isthmus.cli import driver

    named = {"method": method, "data": data, "rounds": rounds, "seed": seed, "preset": preset}
    experiment = described(file, named, settings)
    source = Path(experiment.data.get("path", "")).stem or experiment.data["name"]
    name = f"{source}-{experiment.method['name']}-{experiment.seed}"
    where = out or _unused(Path("runs") / name)
    done = driver.begin(experiment, where, data_root, sync, track or (), workers, profile=profile)
    _ended(done, where)


app.command()(compare.compare)


@app.command()
def resume(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The directory of a run, or of a comparison.")
    ],
    rounds: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Make the run longer: rounds in all.")
    ] = None,
    data_root: DataRoot = Path("data"),
    track: Track = None,
    workers: Workers = None,
    jobs: Jobs = None,
) -> None:
    """Goes on with a run, or a comparison, that was stopped or killed: to the same digest.

    Examples, one per line:

    `isthmus resume first`

    `isthmus resume first --rounds 80` makes a run longer, if its method allows it.
    """
    from isthmus.cli import driver
    from isthmus.config.experiment import Experiment, assign

    wanted = Experiment(**assign(f"rounds={rounds}")).rounds if rounds else None
    if compare.holds(run):
        for name, given in {"rounds": rounds, "track": track, "workers": workers}.items():
            if given:
                raise IsthmusError(
                    f"--{name}, but {run} is a comparison; expected a single run; leave it out"
                )
        compare.go_on(run, data_root, jobs)
        return
    if jobs is not None:
        raise IsthmusError(
            f"--jobs {jobs}, but {run} is no comparison; expected one; a run takes --workers"
        )
    _ended(driver.go_on(run, wanted, data_root, track or (), workers), run)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")],
    target: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Also show the rounds, seconds and bytes to this mean personal test top-1.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Shows how a run stands: its settings, its progress, its figures, its size on disk.

    Examples, one per line:

    `isthmus show first`

    `isthmus show first --target 0.9`
    """
    from isthmus.report import show as standing

    stands = standing.read(run, target)
    print(json.dumps(stands, indent=2) if as_json else standing.text(stands))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="Where the models go.")],
    client: Annotated[
        list[int] | None, typer.Option(help="A client's number; may be repeated.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All clients.")] = False,
    data_root: DataRoot = Path("data"),
) -> None:
    """Writes personal models out: safetensors, and a JSON card that says what each one is.

    Examples, one per line:

    `isthmus export first --client 7 --to models`

    `isthmus export first --all --to models`

    In Python, `isthmus.models.card.load("models/client-7.json")` gives the network back.
    """
    if bool(client) == everyone:
        raise IsthmusError(
            "neither or both of --client and --all; expected one of them; for example --client 0"
        )
    from isthmus.runs import opened

    with opened.open(run, data_root=data_root) as here:
        wrong = [i for i in client or [] if not 0 <= i < len(here)]
        if wrong:
            raise IsthmusError(
                f"no client {wrong[0]}; expected 0 to {len(here) - 1}; the run has {len(here)}"
            )
        for count, path in enumerate(opened.export(here, to, client), start=1):  # noqa: B007
            pass
    print(f"{count} {'model' if count == 1 else 'models'} in {to}, the last one's card: {path}")


@app.command()
def adapt(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")],
    data: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Newcomers' data: arrays x and y, or as in the run."),
    ],
    shots: Annotated[
        list[int] | None,
        typer.Option(help="Fewer examples to train on; may be repeated."),
    ] = None,
    data_root: DataRoot = Path("data"),
) -> None:
    """Lets clients that took part in no round join a finished run, and shows how they fare.

    Example: `isthmus adapt first --data newcomer_files.npz --shots 5 --shots 20`

    In an .npz file, `x` are inputs as in the run's data, `y` labels, `client` whose each is.
    Newcomers to a run on a table, or on folders, may come in a table or folders like the run's.
    """
    from isthmus.data import newcomer_files
    from isthmus.runs import opened
    from isthmus.training import newcomers

    with opened.open(run, data_root=data_root) as here:
        arrived = newcomer_files.read(data, here.setting.federation, here.experiment.data)
        found = here.adapt(arrived, [*shots, None] if shots else newcomers.SHOTS)
    print(newcomers.describe(found))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Directories of runs.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Whom the others are held against; fedavg if left out.",
        ),
    ] = None,
) -> None:
    """Prints a table of runs and writes one page that shows them.

    Example: `isthmus report demo/fedavg demo/superfed-mm --out report.html`
    """
    _report(runs, out, baseline)


app.command()(figure.figure)
app.command()(landscape.landscape)


@app.command(name="list")
def list_(
    what: Annotated[
        str, typer.Argument(help="methods, data, partitions, models or noise.")
    ] = "methods",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Lists what can be named: methods, data, partitions, models, noise, with their options.

    Example: `isthmus list methods --json`
    """
    from isthmus.cli import catalogue
    from isthmus.config import registry
    from isthmus.errors import nearest

    kinds = {"methods": "method", "data": "data", "partitions": "partition", "models": "model"}
    kinds["noise"] = "noise"
    if what not in kinds:
        raise IsthmusError(f"nothing to list is called {what!r}; {nearest(what, list(kinds))}")
    entries = registry.catalogue(kinds[what])
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    catalogue.show(what, entries)


def main() -> None:
    """Runs the program; a user's mistake is one line and exit code 2."""
    try:
        # Some versions of typer turn Ctrl-C into its exit code.
        if app(sys.argv[1:] or ["--help"], standalone_mode=False) == 130:
            raise KeyboardInterrupt
    except IsthmusError as error:
        _fail(str(error))
    except UsageError as error:
        _fail(" ".join(error.format_message().split()) + " See --help.")
    except (KeyboardInterrupt, typer.Abort):
        print("isthmus: stopped", file=sys.stderr)
        sys.exit(130)


def _fail(message: str) -> None:
    print(f"isthmus: {message}", file=sys.stderr)
    sys.exit(2)


def _unused(path: Path) -> Path:
    """Finds a directory that is not taken: path, path-2, path-3, ..."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _ended(run: "Run", out: Path) -> None:
    from isthmus.training.newcomers import describe

    if run.reason:
        ended = f"ended after round {run.progress.t} of {run.experiment.rounds}"
        print(f"{out}: {ended}: {run.reason}", file=sys.stderr)
    _table([out])
    if run.newcomers:
        print(describe(run.newcomers))
    print(f"records: {out}")
    print(f"digest: {run.digest}")


def _table(runs: list[Path]) -> None:
    from rich.console import Console

    from isthmus.records import reader
    from isthmus.report.tables import summary as tables

    Console().print(tables.terminal(tables.summary([reader.read(path) for path in runs])))


def _report(paths: list[Path], out: Path, baseline: str | None = None) -> None:
    from rich.console import Console

    from isthmus.records import reader
    from isthmus.report import contrasts, page
    from isthmus.report.tables import comparison, reach
    from isthmus.report.tables import summary as tables

    runs = [reader.read(path) for path in paths]
    target = reach.baseline_of(runs, baseline)
    if contrasts.seeded(runs):
        Console().print(comparison.terminal(contrasts.compare(runs, baseline)))
    else:
        Console().print(tables.terminal(tables.summary(runs)))
    if target is not None and len(runs) > 1:
        Console().print(reach.terminal(runs, target))
    written = page.write(runs, out, baseline=baseline)
    print(f"page: {written.resolve().as_uri()}")
