"""What a person sees while a run goes on, and how they stop it."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.estimate import Estimate
    from isthmus.experiment import Experiment
    from isthmus.rounds import Done

Show = Callable[["Done"], None]


@contextmanager
def progress(experiment: "Experiment", done: int = 0) -> Iterator[Show]:
    """Shows a bar on a terminal, and a line per evaluation elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    method, console = experiment.method["name"], Console(stderr=True)

    def lines(done: "Done", found: bool) -> Iterator[str]:
        place = f"{method}: round {done.cost.round}/{experiment.rounds}"
        yield from (f"{place}: note: {note}" for note in done.notes)
        if found and done.evaluation is not None:
            yield f"{place}: {figures(experiment, done)}"

    if not console.is_terminal:

        def tell(done: "Done") -> None:
            for line in lines(done, found=True):
                print(line, file=sys.stderr, flush=True)

        yield tell
        return
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(method, total=experiment.rounds, completed=done, figures="")

        def show(done: "Done") -> None:
            for line in lines(done, found=False):
                bar.console.print(line, highlight=False, markup=False)
            bar.advance(task)
            if done.evaluation is not None:
                bar.update(task, figures=figures(experiment, done))

        yield show


@contextmanager
def arriving() -> Iterator[Callable[[str, int, int], None]]:
    """Shows how much of each thing has arrived: a bar on a terminal, a line per quarter elsewhere.

    Gives a function of what arrives, how much of it has, and how much there is.
    """
    from rich.console import Console
    from rich.progress import Progress, TaskID

    console = Console(stderr=True)
    quarters: dict[str, int] = {}
    if not console.is_terminal:

        def tell(what: str, done: int, total: int) -> None:
            quarter = 4 * done // total
            if quarter > quarters.get(what, 0):
                quarters[what] = quarter
                print(f"{what}: {quarter * 25} % of {total:,}", file=sys.stderr, flush=True)

        yield tell
        return
    tasks: dict[str, TaskID] = {}
    with Progress(console=console) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield show


def foretell(experiment: "Experiment", needed: "Estimate", done: int = 0) -> None:
    """Says what a run, or what is left of it, will need."""
    left = experiment.rounds - done
    share = left / experiment.rounds
    minutes, seconds = divmod(round(needed.seconds * share), 60)
    hours, minutes = divmod(minutes, 60)
    lasts = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
    print(
        f"{experiment.method['name']}: {left} rounds{' more' if done else ''}; estimate: {lasts}, "
        f"{needed.ram_bytes / 1e6:,.0f} MB of memory, {needed.disk_bytes / 1e6:,.0f} MB on disk, "
        f"{needed.wire_bytes * share / 1e6:,.0f} MB between clients and server",
        file=sys.stderr,
        flush=True,
    )


def figures(experiment: "Experiment", done: "Done") -> str:
    """Says in a few words what an evaluation found; a number chosen on test data is marked."""
    assert done.evaluation is not None
    scores = [score for score in done.evaluation.scores if score.split == "test"]
    oracle = experiment.selection.startswith("oracle") and done.evaluation.chosen
    means = [
        f"{score.model}{'†' if oracle and score.model == 'personal' else ''} "
        f"{score.figures.top1.mean():.1%}"
        for score in scores
        if score.model in ("personal", "shared")
    ]
    return ", ".join(means) + " (test, top-1)" + (" †chosen on test data" if oracle else "")


@contextmanager
def patience() -> Iterator[Callable[[], bool]]:
    """Makes the first Ctrl-C a wish to stop after the round; a second one stops at once.

    Gives a function that tells whether the wish was uttered.
    """
    wished = False

    def ask(*_: Any) -> None:
        nonlocal wished
        if wished:
            raise KeyboardInterrupt
        wished = True
        print("\nisthmus: finishing this round; Ctrl-C again stops at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: wished
    finally:
        signal.signal(signal.SIGINT, before)
