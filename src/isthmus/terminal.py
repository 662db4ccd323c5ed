"""What a person sees while a run goes on, and how they stop it."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isthmus.board import Board, Show

if TYPE_CHECKING:
    from isthmus.estimate import Estimate
    from isthmus.experiment import Experiment
    from isthmus.stopping import Best


@contextmanager
def progress(experiment: "Experiment", done: int = 0, best: "Best | None" = None) -> Iterator[Show]:
    """Shows one run, from a round on; `best` is its least validation loss so far, and its round."""
    name = experiment.method["name"]
    with (
        Board({name: experiment.rounds}) as board,
        board.running(name, experiment, done, best) as show,
    ):
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
