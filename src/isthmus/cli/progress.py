"""Runs in progress: a live table on a terminal, lines elsewhere.

The table is not made of rich.progress columns: those have no heads, style no row as a whole, show
all rows or none, and measure speed over a sliding window instead of per round.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from isthmus.cli.messages import catch_interrupts, print_line, print_note

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, Group

    from isthmus.batch.headline import Headline
    from isthmus.batch.named_runs import Batch
    from isthmus.engines.ray import ClusterShare
    from isthmus.experiment.settings import Experiment
    from isthmus.run.loop import RoundResult
    from isthmus.run.store import Best

Show = Callable[["RoundResult"], None]
Status = Literal["waiting", "running", "done", "failed"]

BEFORE = {"running": 0, "failed": 1, "done": 2, "waiting": 3}  # whose row is shown before whose
SILENCE = 60.0  # seconds that one of several runs keeps, where there is no terminal
WIDTHS = {"round": 7, "personal": 8, "shared": 6, "best": 11, "s/round": 7, "left": 7}
DAGGER = "† chosen on test data"
LEGEND = (
    "personal, shared: mean top-1 over clients' own test parts, last evaluation\n"
    "best: least mean validation loss of the personal models, and @ which round"
)

SAMPLED = "means over a sample of clients (eval_sample), with intervals when a run ends"


class BoardRow(NamedTuple):
    """How one run stands."""

    rounds: int  # in all
    kind: str  # runs of one kind take about as long
    status: Status = "waiting"
    first: int = 0  # rounds that were done before it was begun here
    round: int = 0
    began: float = 0.0
    updated: float = 0.0  # when its last round ended
    told: float = 0.0  # when a line last said how it stands
    pace: float | None = None  # seconds per round, lately
    headline: "Headline | None" = None  # of the last evaluation
    best: float = math.inf  # the least validation loss so far
    best_round: int = 0

    @property
    def left(self) -> float | None:
        """Seconds until the last round, counted from the end of the latest one."""
        return None if self.pace is None else self.pace * (self.rounds - self.round)


class Board:
    """Show runs by their names and numbers of rounds; to be used in a `with` block.

        with Board({"local": 50, "fedavg": 50}) as board:
            with board.follow("local", experiment) as show:
                federate(experiment, watch=show)

    For runs in other processes, `start`, `update` and `end` do the same step by step. The
    time left follows from the rounds that ended: those of a run itself, else of runs of its kind,
    else of all.
    Where there is no terminal, one run has a line per evaluation; several have one when each of
    them begins and ends, and in between per evaluation, but no more than one a minute each.
    """

    def __init__(
        self,
        rounds: Mapping[str, int],
        console: "Console | None" = None,
        kinds: Mapping[str, str] | None = None,
        below: Callable[[], str] | None = None,
    ):
        kinds = kinds or {}
        self._rows = {name: BoardRow(n, kinds.get(name, "")) for name, n in rounds.items()}
        self._console = console
        self._below = below  # says what else there is to know, in a line
        self._ends: dict[str, list[tuple[int, float]]] = {}  # of rounds: which, and when
        self._live: Any = None
        self._began = 0.0

    def __enter__(self) -> "Board":
        from rich.console import Console
        from rich.live import Live

        self._began = time.monotonic()
        console = self._console or Console(stderr=True)
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                get_renderable=lambda: self.draw(console.height),
                console=console,
                transient=True,
                redirect_stdout=False,
                refresh_per_second=4,
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is None:
            return
        self._live.stop()
        self._live = None
        if kind is None or issubclass(kind, Exception):  # a stopped run has another last line
            print_line(self._conclude())

    @contextmanager
    def follow(
        self, name: str, experiment: "Experiment", done: int = 0, best: "Best | None" = None
    ) -> Iterator[Show]:
        """Yield a function to call after each round; `best` is the best evaluation so far."""
        self.start(name, done, *((math.inf, 0) if best is None else (best.loss, best.round)))
        from isthmus.batch.headline import Headline

        def show(done: "RoundResult") -> None:
            self.update(name, done.cost.round, Headline.of(experiment, done), done.notes)

        status: Status = "failed"
        try:
            yield show
            status = "done"
        finally:
            self.end(name, status)

    def start(
        self, name: str, done: int = 0, best_loss: float = math.inf, best_round: int = 0
    ) -> None:
        """Show that a run starts after so many rounds, with its best validation loss so far."""
        now = time.monotonic()
        row = self._rows[name]._replace(status="running", first=done, round=done)
        row = row._replace(began=now, updated=now, told=now)
        self._ends[name] = [(done, now)]
        self._rows[name] = row._replace(best=best_loss, best_round=best_round)
        if self._live is None and len(self._rows) > 1:
            how = f"continues after round {done}" if done else "begins"
            print_line(f"{name}: {how}")

    def skip(self, name: str) -> None:
        """Show a run that was finished earlier."""
        row = self._rows[name]
        self._rows[name] = row._replace(status="done", first=row.rounds, round=row.rounds)

    def update(
        self,
        name: str,
        round: int,
        headline: "Headline | None" = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Show that a round of a run is done."""
        ends, now = self._ends[name], time.monotonic()
        ends.append((round, now))
        row = self._rows[name]._replace(round=round, updated=now, pace=find_pace(ends))
        if headline is not None:
            row = row._replace(headline=headline)
            if headline.validation is not None and headline.validation < row.best:
                row = row._replace(best=headline.validation, best_round=round)
        place = f"{name}: round {round}/{row.rounds}"
        for note in notes:
            print_line(f"{place}: note: {note}")
        due = len(self._rows) == 1 or now - row.told >= SILENCE
        if headline is not None and self._live is None and due:
            print_line(f"{place}: {_describe_row(row, headline)}")
            row = row._replace(told=now)
        self._rows[name] = row

    def end(self, name: str, status: Status = "done", why: str = "") -> None:
        """Show that a run is done, or failed and why."""
        row = self._rows[name] = self._rows[name]._replace(status=status)
        how = describe_headline(row.headline) if status == "done" and row.headline else why
        line = f"{name}: {status}: {how}" if how else f"{name}: {status}"
        if self._live is None and len(self._rows) > 1:
            print_line(f"{line}; {self._count()}")
        elif why:
            print_line(line)

    def _count(self) -> str:
        """Return how many runs have which status, and the time elapsed and left."""
        rows = list(self._rows.values())
        statuses = [row.status for row in rows]
        counts = [f"{statuses.count(each)} {each}" for each in BEFORE if each in statuses]
        here = sum(self._pace(row) * (row.round - row.first) for row in rows)
        left = self._seconds_left()
        elapsed = time.monotonic() - self._began
        line = f"{len(rows)} runs: {', '.join(counts)}; {format_clock(elapsed)}"
        if here and left:
            line += f", about {format_clock(elapsed / here * left)} left"
        return line

    def _seconds_left(self) -> float:
        rows = [row for row in self._rows.values() if row.status in ("running", "waiting")]
        return sum(self._pace(row) * (row.rounds - row.round) for row in rows)

    def _pace(self, row: BoardRow) -> float:
        """Return the seconds of a round: the run's own, or those of runs like it."""
        others = [each for each in self._rows.values() if each.pace]
        alike = [each for each in others if each.kind == row.kind] or others
        paces = [row.pace] if row.pace else [each.pace or 0.0 for each in alike]
        return sum(paces) / len(paces) if paces else 1.0

    def _conclude(self) -> str:
        """Return the line that replaces the table in the end."""
        if len(self._rows) > 1:
            return self._count()
        ((name, row),) = self._rows.items()
        means = f": {describe_headline(row.headline)}" if row.headline else ""
        seconds = format_clock(row.updated - row.began)
        return f"{name}: round {row.round}/{row.rounds} after {seconds}{means}"

    def _choose_rows(self, room: int) -> dict[str, BoardRow]:
        """Return the rows to show if not all fit, in their order."""
        ranks = {name: (BEFORE[row.status], -row.updated) for name, row in self._rows.items()}
        names = sorted(ranks, key=lambda name: ranks[name])[: max(1, room)]
        return {name: row for name, row in self._rows.items() if name in names}

    def draw(self, height: int) -> "Group":
        """Draw the table for a terminal of so many lines."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
        table.add_column("", no_wrap=True, overflow="ellipsis")
        for title, width in WIDTHS.items():
            table.add_column(title, justify="right", no_wrap=True, min_width=width)
        rows = list(self._rows.values())
        for name, row in self._choose_rows(height - 8).items():
            style = {"running": "bold", "failed": "red", "waiting": "dim"}.get(row.status, "")
            table.add_row(name, *_write_cells(row, time.monotonic()), style=style)
        total = sum(self._pace(row) * row.rounds for row in rows)
        below = Table.grid(expand=True)
        below.add_row(ProgressBar(total=total, completed=total - self._seconds_left()))
        if len(rows) > 1:
            below.add_row(self._count())
        if self._below is not None and (words := self._below()):
            below.add_row(Text(words))
        shown = [row.headline for row in rows if row.headline is not None]
        legend = [LEGEND, *([SAMPLED] if any(each.sampled for each in shown) else [])]
        legend += [DAGGER] if any(each.on_test for each in shown) else []
        return Group(table, below, Text("\n".join(legend), style="dim"))


@contextmanager
def open_batch(
    rounds: Mapping[str, int],
    data_root: "Path",
    jobs: int | None,
    kinds: Mapping[str, str] | None = None,
    share: "ClusterShare | None" = None,
) -> Iterator[tuple["Batch", Board]]:
    """Open a pool of processes for named runs, and the board that shows them.

    Without `jobs` there are as many runs at a time as cores, and idle cores are shared out.
    """
    from isthmus.batch.named_runs import Batch, NamedRun, read_jobs
    from isthmus.batch.pool import JobPool
    from isthmus.system.machine import count_cores

    pool: JobPool[NamedRun]
    at_a_time = read_jobs(jobs) if share is None else share.runs
    below = None if share is None else share.describe
    with (
        catch_interrupts() as stop,
        JobPool(at_a_time) as pool,
        Board(rounds, kinds=kinds, below=below) as board,
    ):
        cores = count_cores() if jobs is None else 1
        yield Batch(pool, data_root, stop, print_note, cores, share), board


def find_pace(ends: Sequence[tuple[int, float]]) -> float:
    """Return the seconds per round over the later half of (round, time at its end).

    What is done once, such as compiling, soon stops to count.

    >>> find_pace([(0, 0), (1, 1), (2, 21), (3, 22), (4, 23), (5, 24)])
    1.0
    """
    (first, began), (last, ended) = ends[(len(ends) - 1) // 2], ends[-1]
    return (ended - began) / max(1, last - first)


def format_clock(seconds: float) -> str:
    """Return a length of time as on a clock.

    >>> format_clock(3725)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _write_cells(row: BoardRow, now: float) -> Iterator[str]:
    """Yield the cells of a run's row after its name."""
    yield f"{row.round}/{row.rounds}"
    headline = row.headline
    dagger = "†" if headline and headline.on_test else ""
    yield f"{headline.personal:.1%}{dagger}" if headline else "-"
    yield f"{headline.shared:.1%}" if headline and headline.shared is not None else "-"
    yield f"{row.best:.4f} @{row.best_round}" if row.best_round else "-"
    yield "-" if row.pace is None else f"{row.pace:.2f}"
    left = row.left
    if row.status != "running" or left is None:
        yield row.status
    else:
        yield format_clock(max(0.0, left - (now - row.updated)))


def describe_headline(headline: "Headline") -> str:
    """Return a headline in a few words; a number chosen on test data is marked."""
    dagger = "†" if headline.on_test else ""
    means = f"personal{dagger} {headline.personal:.1%}"
    means += "" if headline.shared is None else f", shared {headline.shared:.1%}"
    over = f"a sample of {headline.sampled:,} clients" if headline.sampled else "clients"
    return f"{means} (test, top-1, mean over {over}){f' {DAGGER}' if dagger else ''}"


def _describe_row(row: BoardRow, headline: "Headline") -> str:
    """Return an evaluation, the best so far and the time left as one line."""
    parts = [describe_headline(headline)]
    if row.best_round:
        parts.append(f"least validation loss {row.best:.4g} after round {row.best_round}")
    if row.pace is not None and row.left is not None:
        parts.append(f"{row.pace:.2f} s/round, {format_clock(row.left)} left")
    return "; ".join(parts)
