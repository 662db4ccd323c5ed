"""What a user sees during a run, and how they stop it."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from isthmus.experiment.settings import Experiment
    from isthmus.run.forecast import RunForecast
    from isthmus.run.loop import Run
    from isthmus.run.writer import Cost


MAX_LETTERS = 1000  # of an error message


def prepare_output() -> None:
    """Escape letters that the output cannot show, in place of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_line(text: str) -> None:
    """Print a line to standard error, apart from the result of a command."""
    with suppress(OSError):  # standard error is closed
        print(text, file=sys.stderr, flush=True)


def to_one_line(text: str) -> str:
    r"""Return a message as one printable line of at most MAX_LETTERS or so.

    >>> to_one_line("no\x1b[31m such\n  file")
    'no\\x1b[31m such file'
    """
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    half = MAX_LETTERS // 2
    return shown if len(shown) <= MAX_LETTERS else f"{shown[:half]} ... {shown[-half:]}"


def discard_output() -> None:
    """Discard pending output if standard output is closed."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_note(text: str) -> None:
    """Print a note: something to know, though nothing is wrong."""
    print_line(f"note: {text}")


def exit_stopped(how: str) -> NoReturn:
    """Exit after Ctrl-C with a line about how the program stopped."""
    print_line(f"isthmus: {how}")
    sys.exit(130)


@contextmanager
def show_arrivals() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress by name: a bar on a terminal, a line per quarter elsewhere.

    Yield a function of a name, how much is done, and how much there is.
    """
    from rich.console import Console
    from rich.progress import Progress, TaskID

    console = Console(stderr=True)
    quarters: dict[str, int] = {}
    if not console.is_terminal:

        def print_quarter(what: str, done: int, total: int) -> None:
            quarter = 4 * done // total
            if quarter > quarters.get(what, 0):
                quarters[what] = quarter
                print_line(f"{what}: {quarter * 25} % of {total:,}")

        yield print_quarter
        return
    tasks: dict[str, TaskID] = {}
    with Progress(console=console) as bar:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield show


def describe_length(seconds: float) -> str:
    """Return a length of time in words.

    >>> describe_length(75), describe_length(7500)
    ('1 min 15 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def print_forecast(experiment: "Experiment", needed: "RunForecast", done: int = 0) -> None:
    """Print what a run, or what is left of it, will need."""
    most = describe_length(needed.most_seconds)
    if needed.record:
        length = f"about {most}, as {needed.record} took"
    else:
        length = f"between {describe_length(needed.least_seconds)} and {most}"
    print_line(
        f"{experiment.method['name']}: {experiment.rounds - done} rounds{' more' if done else ''}; "
        f"estimate: {length}; at least {needed.memory_bytes / 1e6:,.1f} MB of memory, "
        f"{needed.disk_bytes / 1e6:,.1f} MB on disk"
    )


def print_traffic(experiment: "Experiment", cost: "Cost") -> None:
    """Print what went between clients and server in a round, and what will if it stays so."""
    each = (cost.down_bytes + cost.up_bytes) / 1e6
    left = experiment.rounds - cost.round + 1
    print_line(
        f"{experiment.method['name']}: {each:,.1f} MB between clients and server in round "
        f"{cost.round}; {each * left:,.0f} MB in all {left} if it stays so"
    )


def print_profile(spent: Mapping[str, float], costs: "Sequence[Cost]", seconds: float) -> None:
    """Print where the time of the rounds was spent."""
    from rich.console import Console
    from rich.table import Table

    rounds = max(1, len(costs))
    trained = sum(cost.train_seconds for cost in costs)
    evaluated = sum(cost.evaluate_seconds for cost in costs)
    whole = {
        "training": trained,
        "evaluation": evaluated,
        "store, records, display": max(0.0, seconds - trained - evaluated),
    }
    table = Table(title=f"where the time went, mean of {rounds} rounds", box=None, title_style="")
    table.add_column("")
    for title in ("ms a round", "%"):
        table.add_column(title, justify="right")
    for name, value in whole.items():
        table.add_row(name, f"{1e3 * value / rounds:,.1f}", f"{100 * value / seconds:.0f}")
    table.add_section()
    worked = sum(spent.values())
    table.add_row("training, summed over processes", f"{1e3 * worked / rounds:,.1f}", "100")
    for name, value in sorted(spent.items(), key=lambda item: -item[1]):
        table.add_row(f"  {name}", f"{1e3 * value / rounds:,.1f}", f"{100 * value / worked:.0f}")
    Console(stderr=True).print(table)


@contextmanager
def catch_interrupts() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C stop after the round, and a second one at once.

    Yield a function that returns whether to stop.
    """
    stop = False

    def handle(*_: Any) -> None:
        nonlocal stop
        if stop:
            raise KeyboardInterrupt
        stop = True
        print_line("\nisthmus: finishing this round; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: stop
    finally:
        signal.signal(signal.SIGINT, before)


def print_result(run: "Run", out: Path) -> None:
    """Print the result of a run: metrics, directory, digest."""
    from rich.console import Console

    from isthmus.report.tables import summary
    from isthmus.run.newcomers import describe

    if run.reason:
        ended = f"ended after round {run.progress.t} of {run.experiment.rounds}"
        print_line(f"{out}: {ended}: {run.reason}")
    Console().print(summary.terminal(summary.summarize([run.record(out)])))
    if run.newcomers:
        print(describe(run.newcomers))
    print(f"records: {out}")
    print(f"digest: {run.digest}")
