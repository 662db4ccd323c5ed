"""The command compare: several methods by several seeds on one federation."""

import csv
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from isthmus.errors import IsthmusError
from isthmus.options import Data, DataRoot, File, Settings, described

if TYPE_CHECKING:
    from isthmus.compare import Cell, Grid
    from isthmus.crew import Crew
    from isthmus.estimate import Estimate
    from isthmus.report.records import Run

Stopping = Callable[[], bool]

TRIALS = ("method", "trial", "seed", "settings", "round", "validation_loss", "validation_top1")
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
    rounds: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Communication rounds.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="clean, paper or release: whose defaults to take.")
    ] = None,
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
    jobs: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Runs at a time; as many as cores if left out."),
    ] = None,
    data_root: DataRoot = Path("data"),
) -> None:
    """Compares methods over seeds on one federation; leaves tables and a page.

    Called again in the same way, or by `isthmus resume DIR`, it goes on where it stopped. `--set
    KEY=VALUE` is for all methods, `--set METHOD.KEY=VALUE` for one of them; so is `--tune`.

    Examples, one per line:

    `isthmus compare --methods local,fedavg,superfed-mm --seeds 5 --data digits --rounds 100`

    `isthmus compare --methods floco,ditto --set floco.tau=20 --set lr=0.05 --out floco-ditto`

    `isthmus compare --methods fedprox,fedavg --tune fedprox.mu=0.01,0.1,1 --tune
    fedavg.lr=0.01,0.03,0.1`
    """
    from isthmus.compare import (
        Grid,
        by_method,
        checked,
        methods_of,
        refuse_another,
        seeds_of,
        tuned,
    )

    names, numbers = methods_of(methods), seeds_of(seeds)
    named = {"data": data, "rounds": rounds, "preset": preset}
    own = by_method(settings or [], names)
    experiments = {
        name: _placed(described(file, {"method": name, **named}, own[name]), numbers[0], data_root)
        for name in names
    }
    grid = checked(Grid(experiments, numbers, tuned(tune or [], names), reference))
    refuse_another(grid, out)
    conduct(grid, out, data_root, jobs)


def holds(path: Path) -> bool:
    """Tells whether a directory is that of a comparison."""
    from isthmus.compare import ASKED

    return (path / ASKED).is_file()


def go_on(out: Path, data_root: Path, rounds: int | None) -> None:
    """Goes on with a comparison that was stopped or killed."""
    from isthmus.compare import checked, read

    if rounds is not None:
        raise IsthmusError(
            f"--rounds {rounds}, but {out} is a comparison; expected a single run to make longer; "
            "compare anew with other --rounds and another --out"
        )
    conduct(checked(read(out)), out, data_root, None)


class Costs(NamedTuple):
    """What one run of each method is expected to need; of none that is left, nothing is known."""

    needed: "Mapping[str, Estimate]"

    def seconds(self, cell: "Cell") -> float:
        """How long a run takes; where it is not known, a guess."""
        return self.needed[cell.method].seconds if cell.method in self.needed else 1.0


def conduct(grid: "Grid", out: Path, data_root: Path, jobs: int | None) -> None:
    """Does what is left of a comparison, then writes its tables and its page."""
    from isthmus import compare, terminal
    from isthmus.crew import Crew

    at_a_time = _cores() if jobs is None else jobs
    if at_a_time < 1:
        raise IsthmusError(f"--jobs {jobs}; expected at least 1; for example --jobs 2")
    trials, likely = grid.trials(), grid.runs(dict.fromkeys(grid.tune, 1))
    compare.refuse_other_runs(trials if grid.tune else likely, out)
    cells = [*trials, *likely]
    left = [cell for cell in cells if not compare.finished(out / cell.place, cell.experiment)]
    if "local" not in grid.experiments:
        _note("without local, tables cannot tell which clients a method harms")
    crew: Crew[Cell]
    failed: dict[str, str] = {}
    try:
        with terminal.patience() as wished, Crew(at_a_time) as crew:
            costs = _estimated(left, out, data_root, crew, wished)
            _foretell(grid, left, costs, at_a_time)
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{compare.ASKED}.part").write_text(grid.toml(), encoding="utf-8")
            (out / f"{compare.ASKED}.part").replace(out / compare.ASKED)
            seconds = sum(costs.seconds(cell) for cell in left)
            with terminal.several(len(cells), len(cells) - len(left), seconds) as show:

                def run(some: "Sequence[Cell]") -> None:
                    failed.update(_run(some, out, data_root, crew, costs, wished, show))
                    if wished():
                        raise KeyboardInterrupt

                run(trials)
                chosen = _choose(grid, trials, out, failed) if grid.tune else None
                reported = grid.runs(chosen)
                compare.refuse_other_runs(reported, out)
                run(reported)
    except KeyboardInterrupt:
        _stopped(out)
    for method in grid.experiments:
        if grid.tune and method not in (chosen or {}):
            failed[method] = "none of its trials came to an end"
    _conclude(grid, [cell for cell in reported if cell.name not in failed], out, failed)


def _placed(experiment: Any, seed: int, data_root: Path) -> Any:
    """Names own files so that they are found from any directory."""
    from isthmus.compare import changed
    from isthmus.data.places import found

    data = dict(experiment.data)
    if data.get("path"):
        data["path"] = str(found(data["path"], data_root))
    return changed(experiment, seed=seed, data=data)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _job(do: str, cell: "Cell", out: Path, data_root: Path) -> tuple["Cell", dict[str, str]]:
    job = {"do": do, "experiment": cell.experiment.toml()}
    return cell, job | {"place": str(out / cell.place), "data_root": str(data_root)}


def _estimated(
    left: "Sequence[Cell]", out: Path, data_root: Path, crew: "Crew[Cell]", wished: Stopping
) -> Costs:
    """Tries one run of each method out, and refuses what would not fit."""
    from isthmus.estimate import Estimate, refuse_what_cannot_fit

    firsts = {cell.method: cell for cell in reversed(left)}
    jobs = [_job("estimate", cell, out, data_root) for cell in firsts.values()]
    needed, resident = {}, 0
    for cell, news in crew.work(jobs, wished):
        if "failed" in news:
            raise IsthmusError(f"{cell.method}: {news['failed']}")
        resident = max(resident, news["resident_bytes"])
        if news["ended"] is not None:
            needed[cell.method] = Estimate(**news["ended"])
    if wished():
        raise KeyboardInterrupt
    each = [needed[cell.method] for cell in left if cell.method in needed]
    together = min(crew.size, len(left))
    memory = sorted((cost.ram_bytes for cost in each), reverse=True)[:together]
    everything = Estimate(
        seconds=sum(cost.seconds for cost in each),
        ram_bytes=sum(memory) + (together - min(len(jobs), together)) * resident,
        disk_bytes=sum(cost.disk_bytes for cost in each),
        wire_bytes=sum(cost.wire_bytes for cost in each),
    )
    try:
        refuse_what_cannot_fit(everything, out.absolute())
    except IsthmusError as error:
        hint = f", or lower --jobs {together}" if together > 1 else ""
        raise IsthmusError(f"{len(left)} runs, {together} at a time: {error}{hint}") from None
    return Costs(needed)


def _foretell(grid: "Grid", left: "Sequence[Cell]", costs: Costs, jobs: int) -> None:
    from isthmus.terminal import lasting

    methods, seeds = len(grid.experiments), len(grid.seeds)
    tried = len(grid.trials()) // methods
    each = f", {tried} trials of each with seed {grid.tuning_seed}" if tried else ""
    lasts = lasting(sum(costs.seconds(cell) for cell in left) / jobs)
    needed = [costs.needed[cell.method] for cell in left if cell.method in costs.needed]
    print(
        f"{methods} methods, {seeds} seeds{each}: {methods * (seeds + tried)} runs, {len(left)} "
        f"left; estimate: {lasts} with {jobs} at a time, "
        f"{sum(cost.disk_bytes for cost in needed) / 1e6:,.0f} MB on disk",
        file=sys.stderr,
        flush=True,
    )


def _run(
    cells: "Sequence[Cell]",
    out: Path,
    data_root: Path,
    crew: "Crew[Cell]",
    costs: Costs,
    wished: Stopping,
    show: Callable[[Any], None],
) -> dict[str, str]:
    """Runs what is not finished, the longest first; gives the names of those that failed."""
    from isthmus.compare import finished
    from isthmus.terminal import Sight

    left = [cell for cell in cells if not finished(out / cell.place, cell.experiment)]
    left.sort(key=costs.seconds, reverse=True)
    stands: dict[str, Sight] = {}
    failed: dict[str, str] = {}
    told: set[str] = set()
    for cell, news in crew.work([_job("run", cell, out, data_root) for cell in left], wished):
        sight = stands.get(
            cell.name, Sight(cell.name, 0, cell.experiment.rounds, costs.seconds(cell))
        )
        for note in news.get("notes", []):
            if note not in told:
                _note(note)
                told.add(note)
        done = news.get("opened", news.get("round", sight.done))
        sight = sight._replace(done=done, figures=news.get("figures") or sight.figures)
        if "failed" in news:
            failed[cell.name] = news["failed"]
            sight = sight._replace(end=f"FAILED, {news['failed']}", figures="")
        elif news.get("ended"):
            sight = sight._replace(end="finished")
        stands[cell.name] = sight
        show(sight)
    return failed


def _choose(
    grid: "Grid", trials: "Sequence[Cell]", out: Path, failed: Mapping[str, str]
) -> dict[str, int]:
    """Chooses of each method the trial of least validation loss, and writes all of them down."""
    import numpy as np

    from isthmus.compare import chosen
    from isthmus.report import records

    rows: list[list[Any]] = []
    losses: dict[str, list[float]] = {method: [] for method in grid.experiments}
    for cell in trials:
        settings = " ".join(grid.tried(cell.method)[(cell.trial or 1) - 1])
        found: list[Any] = ["", "", ""]
        loss = float("nan")
        if cell.name not in failed:
            run = records.read(out / cell.place)
            means = [np.nanmean(run.values(m, split="validation")) for m in ("loss", "top1")]
            found, loss = [run.last, *(f"{mean:.6g}" for mean in means)], float(means[0])
        losses[cell.method].append(loss)
        rows.append([cell.method, cell.trial, grid.tuning_seed, settings, *found])
    best = chosen(losses)
    with (out / "trials.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*TRIALS, "chosen", "failed", "run"])
        for cell, row in zip(trials, rows, strict=True):
            mark = "yes" if best.get(cell.method) == cell.trial else "no"
            table.writerow([*row, mark, failed.get(cell.name, ""), cell.place.as_posix()])
    for method, number in best.items():
        _note(
            f"{method}: {' '.join(grid.tried(method)[number - 1])} has the least validation loss "
            f"of {len(grid.tried(method))} trials"
        )
    return best


def _conclude(grid: "Grid", cells: "Sequence[Cell]", out: Path, failed: Mapping[str, str]) -> None:
    from isthmus.report import page, records

    runs = [records.read(out / cell.place) for cell in cells]
    refuse_unlike(runs)
    if runs:
        _tables(runs, out, grid.reference, failed)
        page.write(runs, out / "report.html")
        print(FAIR)
        names = "table.md, table.tex, table.csv" + (", trials.csv" if grid.tune else "")
        print(f"tables: {names} in {out}")
        print(f"page: {(out / 'report.html').resolve().as_uri()}")
    for name, why in failed.items():
        print(f"isthmus: {name} failed: {why}", file=sys.stderr)
    if failed:
        sys.exit(1)


def _tables(
    runs: "Sequence[Run]", out: Path, reference: str | None, failed: Mapping[str, str]
) -> None:
    """Writes the tables, which say what is missing in them."""
    from rich.console import Console

    from isthmus.report import comparison

    Console().print(comparison.terminal(comparison.write(runs, out, reference)))
    for name, mark in (
        ("table.md", "\nMissing: "),
        ("table.tex", "% missing: "),
        ("table.csv", "# missing: "),
    ):
        with (out / name).open("a", encoding="utf-8") as file:
            file.writelines(f"{mark}{cell}: {why}\n" for cell, why in failed.items())


def refuse_unlike(runs: "Sequence[Run]") -> None:
    """Refuses runs of one seed that did not see the same clients, cohorts and budget."""
    same = ("clients", "clients_per_round", "rounds", "epochs", "batch_size")
    first: dict[int | None, Run] = {}
    for run in runs:
        before = first.setdefault(run.seed, run)
        here, there = ([r.split_digest, *map(r.settings.get, same)] for r in (run, before))
        for name, mine, theirs in zip(("split", *same), here, there, strict=True):
            if mine != theirs:
                raise IsthmusError(
                    f"{run.path} has {name} {mine}, {before.path} has {theirs}; expected the same "
                    "for all methods of a seed; are the data still those it began with?"
                )


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _stopped(out: Path) -> NoReturn:
    how = f"; go on with: isthmus resume {out}" if holds(out) else " before it began"
    print(f"isthmus: stopped{how}", file=sys.stderr)
    sys.exit(130)
