"""The command compare: several methods by several seeds on one federation."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import (
    Data,
    DataRoot,
    File,
    Jobs,
    Preset,
    Ray,
    Rounds,
    SendData,
    Settings,
    read_cluster,
    read_experiment,
)
from isthmus.errors import IsthmusError, quote

if TYPE_CHECKING:
    from isthmus.batch.conduct import Forecast, Outcome
    from isthmus.batch.grid import Cell, Grid
    from isthmus.engines.base import Cluster
    from isthmus.experiment.settings import Experiment

MOST_JOBS = 1024
FAIR = (
    "For each seed, all methods had the same split, the same cohorts and the same budget (checked)."
)


def compare(
    methods: Annotated[
        str, typer.Option(metavar="NAMES", help="Separated by commas; see `isthmus list methods`.")
    ],
    file: File = None,
    seeds: Annotated[
        str, typer.Option(metavar="NUMBERS", help="How many, 5 for 1 to 5; or which, 3,7,11.")
    ] = "3",
    data: Data = None,
    rounds: Rounds = None,
    preset: Preset = None,
    settings: Settings = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,...",
            help="Values to choose from on validation data, for each method; may be repeated.",
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="METHOD", help="Whom the tables compare with.")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where runs, tables and page go.")
    ] = Path("comparison"),
    jobs: Jobs = None,
    data_root: DataRoot = Path("data"),
    ray: Ray = None,
    send_data: SendData = False,
    keep_best: Annotated[
        bool,
        typer.Option(
            "--keep-best/--no-keep-best",
            help="Keep each client's model that was best on validation data, too.",
        ),
    ] = False,
) -> None:
    """Compares methods over seeds on one federation; leaves tables and a page.

    Called again in the same way, or by `isthmus resume DIR`, it goes on where it stopped. `--set
    KEY=VALUE` is for all methods, `--set METHOD.KEY=VALUE` for one of them; so is `--tune`.

    Examples, one per line:

    `isthmus compare --methods local,fedavg,superfed-mm --seeds 5 --rounds 100`

    `isthmus compare --methods floco,ditto --set floco.tau=20 --set lr=0.05`

    `isthmus compare --methods fedprox,fedavg --tune lr=0.01,0.03,0.1`
    """
    from isthmus.batch import grid as grids

    names, numbers = grids.read_methods(methods), grids.read_seeds(seeds)
    named = {"data": data, "rounds": rounds, "preset": preset}
    own = grids.split_by_method(settings or [], names)
    experiments = {}
    for name in names:
        experiment = read_experiment(file, {"method": name, **named}, own[name])
        experiments[name] = _locate(experiment, numbers[0], data_root)
    tuning = grids.read_tuning(tune or [], names)
    grid = grids.check(grids.Grid(experiments, numbers, tuning, reference, keep_best))
    grids.refuse_another(grid, out)
    carry_out(grid, out, data_root, jobs, read_cluster(ray, send_data))


def go_on(out: Path, data_root: Path, jobs: int | None, cluster: "Cluster | None" = None) -> None:
    """Goes on with a comparison that was stopped or killed."""
    from isthmus.batch.grid import check, read

    carry_out(check(read(out)), out, data_root, jobs, cluster)


def carry_out(
    grid: "Grid", out: Path, data_root: Path, jobs: int | None, cluster: "Cluster | None" = None
) -> None:
    """Does what is left of a comparison, shows it, then writes its tables and its page."""
    from isthmus.batch.conduct import Conductor, hold
    from isthmus.batch.grid import is_comparison
    from isthmus.batch.pool import JobPool
    from isthmus.cli.progress import Board
    from isthmus.engines.ray import share_cluster
    from isthmus.system.machine import count_cores

    at_a_time = count_cores() if jobs is None else jobs
    if not 1 <= at_a_time <= MOST_JOBS:
        raise IsthmusError(
            f"--jobs {quote(jobs)}; expected at least 1 and at most {MOST_JOBS:,}; for example "
            "--jobs 2"
        )
    pool: JobPool[Cell]
    try:
        with ExitStack() as held:
            share = None
            if cluster is not None:
                share = held.enter_context(share_cluster(cluster, jobs))
                at_a_time = share.runs
            is_new = not out.exists()
            if not is_new:
                held.enter_context(hold(grid, out))
            with messages.catch_interrupts() as stop, JobPool(at_a_time) as pool:
                conductor = Conductor(grid, out, data_root, pool, stop, messages.print_note, share)
                forecast = conductor.forecast()
                _print_forecast(grid, forecast, at_a_time)
                if is_new:  # what is refused before leaves no directory
                    held.enter_context(hold(grid, out))
                rounds = {cell.name: cell.experiment.rounds for cell in forecast.cells}
                seconds = {cell.name: forecast.seconds(cell) for cell in forecast.cells}
                below = None if share is None else share.describe
                with Board(rounds, seconds=seconds, below=below) as board:
                    outcome = conductor.run(forecast, board)
            _conclude(grid, outcome, out)
    except KeyboardInterrupt:
        began = is_comparison(out)
        how = f"; go on with: isthmus resume {out}" if began else " before it began"
        messages.exit_stopped(f"stopped{how}")


def _locate(experiment: "Experiment", seed: int, data_root: Path) -> "Experiment":
    """Names own files so that they are found from any directory."""
    from isthmus.batch.grid import change
    from isthmus.data.own.own_files import find_own_files

    data = dict(experiment.data)
    if data.get("path"):
        data["path"] = str(find_own_files(data["path"], data_root))
    return change(experiment, seed=seed, data=data)


def _print_forecast(grid: "Grid", forecast: "Forecast", jobs: int) -> None:
    methods, seeds = len(grid.experiments), len(grid.seeds)
    tried = len(grid.trials()) // methods
    each = f", {tried} trials of each with seed {grid.tuning_seed}" if tried else ""
    length = messages.describe_length(sum(map(forecast.seconds, forecast.left)) / jobs)
    messages.print_line(
        f"{methods} methods, {seeds} seeds{each}: {methods * (seeds + tried)} runs, "
        f"{len(forecast.left)} left; estimate: {length} with {jobs} at a time, "
        f"{forecast.disk_bytes / 1e6:,.0f} MB on disk"
    )


def _conclude(grid: "Grid", outcome: "Outcome", out: Path) -> None:
    from rich.console import Console

    from isthmus.batch.conduct import write_results
    from isthmus.report.tables import comparison

    compared = write_results(grid, outcome, out)
    if compared is not None:
        Console().print(comparison.terminal(compared))
        print(FAIR)
        names = "table.md, table.tex, table.csv" + (", trials.csv" if grid.tune else "")
        print(f"tables: {names} in {out}")
        print(f"page: {(out / 'report.html').resolve().as_uri()}")
    for name, why in outcome.missing.items():
        messages.print_line(f"isthmus: {name} is missing: {why}")
    if outcome.missing:
        sys.exit(1)
