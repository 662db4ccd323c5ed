"""The command compare: several methods by several seeds on one federation."""

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from isthmus.cli.options import Data, DataRoot, File, Jobs, Settings, described
from isthmus.errors import IsthmusError
from isthmus.system.files import write_text
from isthmus.system.machine import count_cores

if TYPE_CHECKING:
    from isthmus.cli.progress import Board
    from isthmus.comparison.grid import Cell, Grid
    from isthmus.comparison.processes import Crew, News
    from isthmus.config.experiment import Experiment
    from isthmus.records.reader import Run
    from isthmus.training.estimate import Estimate

TRIALS = (
    *("method", "trial", "seed", "settings", "validation_loss", "validation_top1"),
    *("chosen", "failed", "run"),
)
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
    jobs: Jobs = None,
    data_root: DataRoot = Path("data"),
) -> None:
    """Compares methods over seeds on one federation; leaves tables and a page.

    Called again in the same way, or by `isthmus resume DIR`, it goes on where it stopped. `--set
    KEY=VALUE` is for all methods, `--set METHOD.KEY=VALUE` for one of them; so is `--tune`.

    Examples, one per line:

    `isthmus compare --methods local,fedavg,superfed-mm --seeds 5 --rounds 100`

    `isthmus compare --methods floco,ditto --set floco.tau=20 --set lr=0.05`

    `isthmus compare --methods fedprox,fedavg --tune lr=0.01,0.03,0.1`
    """
    from isthmus.comparison.grid import (
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
    from isthmus.comparison.grid import ASKED

    return (path / ASKED).is_file()


def go_on(out: Path, data_root: Path, jobs: int | None) -> None:
    """Goes on with a comparison that was stopped or killed."""
    from isthmus.comparison.grid import checked, read

    conduct(checked(read(out)), out, data_root, jobs)


def conduct(grid: "Grid", out: Path, data_root: Path, jobs: int | None) -> None:
    """Does what is left of a comparison, then writes its tables and its page."""
    from isthmus.cli import messages
    from isthmus.cli.progress import Board
    from isthmus.comparison.grid import ASKED, refuse_other_runs
    from isthmus.comparison.processes import Crew

    at_a_time = count_cores() if jobs is None else jobs
    if at_a_time < 1:
        raise IsthmusError(f"--jobs {jobs}; expected at least 1; for example --jobs 2")
    trials, likely = grid.trials(), grid.runs(dict.fromkeys(grid.tune, 1))
    refuse_other_runs(trials if grid.tune else likely, out)
    if "local" not in grid.experiments:
        _note("without local, tables cannot tell which clients a method harms")
    crew: Crew[Cell]
    missing: dict[str, str] = {}
    chosen: dict[str, int] | None = None
    try:
        with messages.patience() as wished, Crew(at_a_time) as crew:
            work = Work(out, data_root, crew, wished)
            cells = [*trials, *likely]
            left = work.left(cells)
            costs = work.estimated(left)
            _foretell(grid, left, costs, at_a_time)
            _write(out / ASKED, grid.toml())
            rounds = {cell.name: cell.experiment.rounds for cell in cells}
            seconds = {cell.name: costs.seconds(cell) for cell in cells}
            with Board(rounds, seconds=seconds) as board:
                for cell in cells:
                    if cell not in left:
                        board.skip(cell.name)
                if grid.tune:
                    chosen, missing = _chosen(grid, trials, out, work.run(trials, costs, board))
                for cell in likely:
                    if cell.method in missing:
                        board.end(cell.name, "failed", missing[cell.method])
                reported = grid.runs(chosen)
                refuse_other_runs(reported, out)
                failures = work.run(reported, costs, board)
    except KeyboardInterrupt:
        _stopped(out)
    missing |= {name: failure.why for name, failure in failures.items()}
    _conclude(grid, [cell for cell in reported if cell.name not in missing], out, missing)


class Costs(NamedTuple):
    """What one run of each method is expected to need, of those that have runs left."""

    needed: "Mapping[str, Estimate]"

    def seconds(self, cell: "Cell") -> float:
        """How long a run takes; where it is not known, a guess."""
        return self.needed[cell.method].seconds if cell.method in self.needed else 1.0


class Failure(NamedTuple):
    """Why a run did not come to its end."""

    why: str
    diverged: bool  # it would do so again


class Work:
    """Runs of one comparison, done by a crew."""

    def __init__(self, out: Path, data_root: Path, crew: "Crew[Cell]", wished: Callable[[], bool]):
        self._out = out
        self._data_root = data_root
        self._crew = crew
        self._wished = wished

    def left(self, cells: "Sequence[Cell]") -> "list[Cell]":
        """Lists the runs that did not come to their end."""
        from isthmus.comparison.grid import finished

        return [cell for cell in cells if not finished(self._out / cell.place, cell.experiment)]

    def estimated(self, left: "Sequence[Cell]") -> Costs:
        """Tries one run of each method out, and refuses what would not fit."""
        from isthmus.training.estimate import Estimate

        firsts = {cell.method: cell for cell in reversed(left)}
        needed: dict[str, Estimate] = {}
        resident = 0
        for cell, news in self._news("estimate", list(firsts.values())):
            if "failed" in news:
                raise IsthmusError(f"{cell.method}: {news['failed']}")
            resident = max(resident, news["resident_bytes"])
            if news["ended"] is not None:
                needed[cell.method] = Estimate(**news["ended"])
        others = max(min(self._crew.size, len(left)) - len(firsts), 0)  # not there yet
        self._refuse([needed[c.method] for c in left if c.method in needed], others * resident)
        return Costs(needed)

    def _refuse(self, each: "Sequence[Estimate]", resident: int) -> None:
        from isthmus.training.estimate import Estimate, refuse_what_cannot_fit

        together = min(self._crew.size, len(each))
        memory = sorted((cost.ram_bytes for cost in each), reverse=True)[:together]
        everything = Estimate(
            seconds=sum(cost.seconds for cost in each),
            ram_bytes=sum(memory) + resident,
            disk_bytes=sum(cost.disk_bytes for cost in each),
            wire_bytes=sum(cost.wire_bytes for cost in each),
        )
        try:
            refuse_what_cannot_fit(everything, self._out.absolute())
        except IsthmusError as error:
            hint = f", or lower --jobs {together}" if together > 1 else ""
            raise IsthmusError(f"{len(each)} runs, {together} at a time: {error}{hint}") from None

    def run(self, cells: "Sequence[Cell]", costs: Costs, board: "Board") -> dict[str, Failure]:
        """Runs what is left, the longest first; tells by name which of them failed."""
        failures: dict[str, Failure] = {}
        told: set[str] = set()
        longest_first = sorted(self.left(cells), key=costs.seconds, reverse=True)
        for cell, news in self._news("run", longest_first):
            for note in news.get("notes", []):
                if note not in told:
                    told.add(note)
                    _note(note)
            if "failed" in news:
                failures[cell.name] = Failure(news["failed"], news.get("diverged", False))
            _show(board, cell, news)
        return failures

    def _news(self, do: str, cells: "Sequence[Cell]") -> "Iterator[tuple[Cell, News]]":
        jobs = [
            (
                cell,
                {
                    "do": do,
                    "experiment": cell.experiment.toml(),
                    "place": str(self._out / cell.place),
                    "data_root": str(self._data_root),
                },
            )
            for cell in cells
        ]
        yield from self._crew.work(jobs, self._wished)
        if self._wished():
            raise KeyboardInterrupt


def _show(board: "Board", cell: "Cell", news: "News") -> None:
    """Shows what is new of a run."""
    from isthmus.cli.progress import Found
    from isthmus.storage.store import Best

    if "opened" in news:
        board.start(cell.name, news["opened"], Best(*news["best"]))
    elif "round" in news:
        # Whoever reads the progress of trials shall not choose by test data either.
        seen = news["found"] if cell.trial is None else None
        board.tell(cell.name, news["round"], Found(*seen) if seen else None)
    elif "failed" in news:
        board.end(cell.name, "failed", news["failed"])
    elif news["ended"]:
        board.end(cell.name)


def _placed(experiment: "Experiment", seed: int, data_root: Path) -> "Experiment":
    """Names own files so that they are found from any directory."""
    from isthmus.comparison.grid import changed
    from isthmus.data.own_files import found

    data = dict(experiment.data)
    if data.get("path"):
        data["path"] = str(found(data["path"], data_root))
    return changed(experiment, seed=seed, data=data)


def _foretell(grid: "Grid", left: "Sequence[Cell]", costs: Costs, jobs: int) -> None:
    from isthmus.cli.messages import lasting

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


def _chosen(
    grid: "Grid", trials: "Sequence[Cell]", out: Path, failures: Mapping[str, Failure]
) -> tuple[dict[str, int], dict[str, str]]:
    """Chooses of each method the trial of least validation loss, and writes all of them down.

    Gives besides why there is no choice for a method: a trial that diverged lost, but where one
    failed otherwise the others must not win by default.
    """
    import numpy as np

    from isthmus.comparison.grid import chosen
    from isthmus.records import reader

    figures: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    for cell in trials:
        failure = failures.get(cell.name)
        if failure is None:
            run = reader.read(out / cell.place)
            values = [run.values(metric, split="validation") for metric in ("loss", "top1")]
            figures[cell.name] = [float(np.nanmean(value)) for value in values]
        elif not failure.diverged:
            missing[cell.method] = f"trial {cell.trial} failed, {failure.why}"
    nan = float("nan")
    best = chosen(
        {
            method: [figures.get(c.name, [nan])[0] for c in trials if c.method == method]
            for method in grid.experiments
            if method not in missing
        }
    )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(TRIALS)
    for cell in trials:
        settings = " ".join(grid.tried(cell.method)[(cell.trial or 1) - 1])
        found = [f"{figure:.6g}" for figure in figures.get(cell.name, [])] or ["", ""]
        mark = "yes" if best.get(cell.method) == cell.trial else "no"
        why = failures[cell.name].why if cell.name in failures else ""
        row = [cell.method, cell.trial, grid.tuning_seed, settings, *found, mark, why]
        table.writerow([*row, cell.place.as_posix()])
    _write(out / "trials.csv", text.getvalue())
    for method, number in best.items():
        tried = grid.tried(method)
        _note(f"{method}: {' '.join(tried[number - 1])} is the best of {len(tried)} trials")
    lost = [method for method in grid.experiments if method not in {*best, *missing}]
    return best, missing | dict.fromkeys(lost, "all of its trials diverged")


def _conclude(grid: "Grid", cells: "Sequence[Cell]", out: Path, missing: Mapping[str, str]) -> None:
    from isthmus.records import reader
    from isthmus.report import page

    runs = [reader.read(out / cell.place) for cell in cells]
    refuse_unlike(runs)
    if runs:
        there = any(run.method == grid.reference for run in runs)
        reference = grid.reference if there else None
        _tables(runs, out, reference, missing)
        page.write(runs, out / "report.html", baseline=reference)
        print(FAIR)
        names = "table.md, table.tex, table.csv" + (", trials.csv" if grid.tune else "")
        print(f"tables: {names} in {out}")
        print(f"page: {(out / 'report.html').resolve().as_uri()}")
    for name, why in missing.items():
        print(f"isthmus: {name} is missing: {why}", file=sys.stderr)
    if missing:
        sys.exit(1)


def _tables(
    runs: "Sequence[Run]", out: Path, reference: str | None, missing: Mapping[str, str]
) -> None:
    """Writes the tables; those for people say what is missing in them."""
    from rich.console import Console

    from isthmus.report.tables import comparison

    Console().print(comparison.terminal(comparison.write(runs, out, reference)))
    for name, mark in (("table.md", "\nMissing: "), ("table.tex", "% Missing: ")):
        with (out / name).open("a", encoding="utf-8") as file:
            file.writelines(f"{mark}{what}: {why}\n" for what, why in missing.items())


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


def _write(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all."""
    from isthmus.storage.database import explain_unwritable

    with explain_unwritable(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _stopped(out: Path) -> NoReturn:
    how = f"; go on with: isthmus resume {out}" if holds(out) else " before it began"
    print(f"isthmus: stopped{how}", file=sys.stderr)
    sys.exit(130)
