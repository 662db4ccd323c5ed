"""The command reproduce: published numbers, run again."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import AsJson, DataRoot, Jobs
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus_papers.plan import PlannedRun
    from isthmus_papers.recipe import Preset, Recipe, TableCell
    from isthmus_papers.verdict import Records


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECIPE", help="Table or figure, e.g. superfed/table1, or paper."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", metavar="COLUMN", help="Show or run only this column (repeatable)."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Show or run only these methods, separated by commas."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Use only the first seeds of each number."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run everything that can be run.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Run for this long, e.g. 2h or 90m, quickest runs first."
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Run only what has no record that comes with isthmus.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Run, and write runs and records here. [reproduction]"),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="Settings: paper, as printed; or release, as the released code has them."
        ),
    ] = "paper",
    page: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write a page (.html) or a document (.md)."),
    ] = None,
    jobs: Jobs = None,
    data_root: DataRoot = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Show the numbers of four papers beside those reproduced here, and run them again.

    Without --out, --budget or --all nothing is run. Each run is an ordinary one, below DIR/runs,
    shared by all tables that read it; its record goes to DIR/results. Called again, the command
    continues where it stopped.

    Examples, one per line:

    `isthmus reproduce` lists all tables and figures; `isthmus reproduce superfed/table1` one.

    `isthmus reproduce superfed/table1 --columns "MNIST, 100" --methods fedavg --out repro`

    `isthmus reproduce --all --new --seeds 1 --budget 8h --data-root ~/data`

    `isthmus reproduce superfed/table1 --report page.html`

    `isthmus reproduce check --out checked` runs one on bundled data, beside its record
    """
    if preset not in ("paper", "release"):
        raise IsthmusError(f"--preset must be paper or release, not {preset!r}")
    chosen: Preset = "release" if preset == "release" else "paper"
    if page is not None and page.suffix not in (".html", ".md"):
        raise IsthmusError(f"--report must name an .html or .md file, not {page}")
    running = everything or budget is not None or out is not None

    from rich.console import Console

    from isthmus_papers import conduct, record, show
    from isthmus_papers.recipe import choose_cells, find_recipes
    from isthmus_papers.verdict import assess

    recipes = find_recipes(names or [])
    wanted = [word.strip() for word in (methods or "").split(",") if word.strip()]
    cells = choose_cells(recipes, columns or [], wanted)
    every = [cell for each in cells.values() for cell in each]
    seconds = None if budget is None else conduct.read_budget(budget)
    if seeds is not None and seeds < 1:
        raise IsthmusError(f"--seeds must be at least 1, not {seeds}")
    if running and not names and not everything:
        raise IsthmusError(
            "name the tables to run, or give --all; for example isthmus reproduce superfed/table1 "
            "--budget 2h"
        )
    place = out or Path("reproduction")
    if running:
        runs = _plan(every, chosen, seeds, new)
        _run(runs, place, data_root, jobs, seconds)
        _compare(runs, place)
    records = record.read_all([record.find_shipped(), place / record.RESULTS])
    if as_json:
        verdicts = [assess(cell, records, chosen) for cell in every if cell.mean is not None]
        print(json.dumps([show.to_json(verdict) for verdict in verdicts], indent=1))
        return
    if not names and not running:
        table, counts = show.draw_list(recipes, records, chosen)
        Console().print(table)
        print(show.describe_counts(counts))
        print("Hours: those of the records, where they are known; + where some runs are not.")
        print("To check an installation, without any data: isthmus reproduce check --out checked")
    if names or page is not None or running:
        _show(recipes, cells, records, chosen, page, quiet=not names)


def _plan(
    cells: "list[TableCell]", preset: "Preset", seeds: int | None, new: bool
) -> "list[PlannedRun]":
    from isthmus_papers import record
    from isthmus_papers.plan import plan

    runs = plan(cells, preset, seeds)
    if not runs:
        raise IsthmusError(
            f"none of these {len(cells)} cells can be run with preset={preset}; isthmus reproduce "
            "RECIPE says why"
        )
    known = record.read_all([record.find_shipped()]) if new else {}
    left = [run for run in runs if run.identity not in known]
    if not left:
        raise IsthmusError(
            f"the records of all {len(runs)} runs come with isthmus; leave --new out to run them "
            "again"
        )
    return left


def _run(
    runs: "list[PlannedRun]", out: Path, data_root: Path, jobs: int | None, seconds: float | None
) -> None:
    from isthmus.batch.named_runs import hold, read_jobs
    from isthmus.cli.progress import open_batch
    from isthmus_papers import record
    from isthmus_papers.conduct import LOCK, find_end, list_left, reproduce_runs

    at_a_time = min(read_jobs(jobs), len(runs))
    try:
        with hold(out, LOCK):
            known = record.read_all([record.find_shipped(), out / record.RESULTS])
            left = list_left(runs, out, known)
            length = messages.describe_length(find_end(left, at_a_time))
            unknown = sum(each.seconds is None for each in left)
            beside = f", and {unknown} of unknown length" if unknown else ""
            messages.print_line(
                f"{len(runs)} runs, {len(left)} left; estimate: {length}{beside}, with "
                f"{at_a_time} at a time"
            )
            rounds = {each.run.name: each.run.experiment.rounds for each in left}
            with open_batch(rounds, data_root, jobs) as (batch, board):
                failed = reproduce_runs(left, out, batch, board, seconds)
            waiting = [each for each in list_left(runs, out, known) if each.run.name not in failed]
    except KeyboardInterrupt:
        messages.exit_stopped("stopped; continue with the same command")
    reasons: dict[str, list[str]] = {}
    for name, failure in failed.items():
        reasons.setdefault(failure.why, []).append(name)
    is_all = bool(failed) and len(failed) == len(left)
    if is_all and len(reasons) == 1 and not any(each.began for each in failed.values()):
        raise IsthmusError(next(iter(reasons)))
    for why, (first, *others) in reasons.items():
        which = f"{first} and {len(others)} more are" if others else f"{first} is"
        messages.print_line(f"isthmus: {which} missing: {why}")
    if is_all:
        sys.exit(1)
    if waiting:
        messages.print_line(
            f"isthmus: the time is up; {len(waiting)} of {len(runs)} runs are left; continue with "
            "the same command"
        )


def _compare(runs: "list[PlannedRun]", out: Path) -> None:
    """Whether runs came out as the records that come with isthmus have them."""
    from isthmus_papers import record

    kept = record.read_all([record.find_shipped()])
    ours = record.read_all([out / record.RESULTS])
    differing = []
    for run in runs:
        theirs, mine = kept.get(run.identity), ours.get(run.identity)
        if theirs is None or mine is None or mine.failed:
            continue
        agreement = record.compare(mine, theirs)
        messages.print_line(f"{run.name}: {agreement.text}")
        if agreement.largest > record.ROUNDING:
            differing.append(run.name)
    if differing:
        messages.print_line(
            f"isthmus: {', '.join(differing)} differ from their records by more than rounding "
            "explains; compare the versions, and run the experiment alone with isthmus run"
        )
        sys.exit(1)


def _show(
    recipes: "list[Recipe]",
    cells: "dict[str, list[TableCell]]",
    records: "Records",
    preset: "Preset",
    page: Path | None,
    quiet: bool,
) -> None:
    from rich.console import Console

    from isthmus.system.files import write_text
    from isthmus_papers import show
    from isthmus_papers.drawing import embed_pictures
    from isthmus_papers.page import LEGEND, render_page

    sections = [
        show.build_section(recipe, cells[recipe.name], records, preset)
        for recipe in recipes
        if cells[recipe.name]
    ]
    if not quiet:
        for section in sections:
            recipe = section.recipe
            print(f"{recipe.name}, {recipe.title}. {recipe.paper.note} {recipe.note}")
            Console().print(*show.draw_section(section))
        print(LEGEND)
    if page is not None:
        suffix = page.suffix.removeprefix(".")
        drawn = recipes if suffix == "html" else []
        pictures = {each.name: embed_pictures(each, cells[each.name], records) for each in drawn}
        write_text(page, render_page(sections, records, suffix, preset, pictures))
        print(f"page: {page.resolve().as_uri()}")
