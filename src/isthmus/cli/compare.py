"""The command compare: several methods by several seeds on one federation."""

import shutil
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
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.batch.comparison import Outcome, PlannedComparison
    from isthmus.batch.grid import Grid
    from isthmus.engines.base import Cluster
    from isthmus.experiment.settings import Experiment

FAIR = "For each seed, all methods had the same split, cohorts and budget (checked)."


def compare(
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Methods, separated by commas; see `isthmus list methods`."
        ),
    ],
    file: File = None,
    seeds: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS",
            help="Number of seeds (5: 1 to 5), or seeds (3,7,11).",
        ),
    ] = "3",
    data: Data = None,
    rounds: Rounds = None,
    preset: Preset = None,
    settings: Settings = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,...",
            help="Values to choose from on validation data, per method (repeatable).",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD", help="Method the others are compared with [default: fedavg]."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Output directory for runs, tables and the page.")
    ] = Path("comparison"),
    jobs: Jobs = None,
    data_root: DataRoot = Path("data"),
    ray: Ray = None,
    send_data: SendData = False,
    keep_best: Annotated[
        bool,
        typer.Option(
            "--keep-best/--no-keep-best",
            help="Also keep each client's best model on validation data.",
        ),
    ] = False,
) -> None:
    """Compare methods over seeds on one federation; write tables and a page.

    The same command again, or `isthmus resume DIR`, continues where it stopped. `--set KEY=VALUE`
    applies to all methods, `--set METHOD.KEY=VALUE` to one of them; so does `--tune`.

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
    asked = {"experiments": experiments, "seeds": numbers, "tune": tuning, "keep_best": keep_best}
    grid = grids.check(grids.Grid.model_validate(asked | {"reference": baseline}))
    grids.refuse_another(grid, out)
    carry_out(grid, out, data_root, jobs, read_cluster(ray, send_data))


def go_on(out: Path, data_root: Path, jobs: int | None, cluster: "Cluster | None" = None) -> None:
    """Resume a comparison that was stopped or killed."""
    from isthmus.batch.grid import check, read

    carry_out(check(read(out)), out, data_root, jobs, cluster)


def carry_out(
    grid: "Grid", out: Path, data_root: Path, jobs: int | None, cluster: "Cluster | None" = None
) -> None:
    """Run what is left of a comparison, print it, then write its tables and its page."""
    from isthmus.batch import grid as grids
    from isthmus.batch.comparison import PlannedComparison
    from isthmus.batch.named_runs import hold, read_jobs
    from isthmus.cli.progress import open_batch

    at_a_time = read_jobs(jobs)
    is_new, is_mine = not out.exists(), False
    try:
        with ExitStack() as held:
            share = None
            if cluster is not None:
                from isthmus.engines.ray import share_cluster

                share = held.enter_context(share_cluster(cluster, jobs))
                at_a_time = share.runs
            held.enter_context(hold(out, grids.LOCK))
            is_mine = is_new
            grids.refuse_another(grid, out)  # another process may have started one here
            planned = PlannedComparison(grid, out)
            _print_plan(planned, at_a_time)
            rounds = {cell.name: cell.experiment.rounds for cell in planned.cells}
            kinds = {cell.name: cell.method for cell in planned.cells}
            with open_batch(rounds, data_root, jobs, kinds, share) as (batch, board):
                outcome = planned.run(batch, board)
            _conclude(grid, outcome, out)
    except KeyboardInterrupt:
        began = grids.is_comparison(out)
        how = f"; continue with: isthmus resume {out}" if began else " before it began"
        messages.exit_stopped(f"stopped{how}")
    except IsthmusError:
        if is_mine and not any((out / name).exists() for name in ("runs", "trials")):
            shutil.rmtree(out, ignore_errors=True)  # nothing ran: what was asked for cannot be
        raise


def _locate(experiment: "Experiment", seed: int, data_root: Path) -> "Experiment":
    """Name the user's files by absolute paths, so that a comparison resumes from any directory."""
    from isthmus.batch.grid import change

    data = dict(experiment.data)
    if data.get("path"):
        from isthmus.data.own.own_files import find_own_files

        data["path"] = str(find_own_files(data["path"], data_root))
    return change(experiment, seed=seed, data=data)


def _print_plan(planned: "PlannedComparison", jobs: int) -> None:
    grid = planned.grid
    methods, seeds = len(grid.experiments), len(grid.seeds)
    tried = len(planned.trials) // methods
    each = f", {tried} trials of each with seed {grid.tuning_seed}" if tried else ""
    messages.print_line(
        f"{methods} methods, {seeds} seeds{each}: {methods * (seeds + tried)} runs, "
        f"{len(planned.left)} left, with {jobs} at a time"
    )


def _conclude(grid: "Grid", outcome: "Outcome", out: Path) -> None:
    from rich.console import Console

    from isthmus.batch.comparison import write_results
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
