"""Runs while they go on: a table that lives on a terminal, lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, Group

    from isthmus.config.experiment import Experiment
    from isthmus.storage.store import Best
    from isthmus.training.federate import Done

Show = Callable[["Done"], None]
State = Literal["waiting", "running", "done", "failed"]

BEFORE = {"running": 0, "failed": 1, "done": 2, "waiting": 3}  # whose row is shown before whose
WIDTHS = {"round": 7, "personal": 8, "shared": 6, "best": 11, "s/round": 7, "left": 7}
DAGGER = "† chosen on test data"
LEGEND = (
    "personal, shared: mean top-1 over clients' own test parts, last evaluation\n"
    "best: least mean validation loss of the personal models, and @ which round"
)


class Found(NamedTuple):
    """What an evaluation found, each a mean over clients."""

    personal: float  # top-1 on test parts
    shared: float | None
    validation: float | None  # loss of the personal models on validation parts
    oracle: bool = False  # the personal models were chosen on test data


class Row(NamedTuple):
    """How one run stands."""

    rounds: int  # in all
    seconds: float  # that they were estimated to take, on a scale common to all runs
    state: State = "waiting"
    first: int = 0  # rounds that were done before it was begun here
    round: int = 0
    began: float = 0.0
    told: float = 0.0  # when its last round ended
    found: Found | None = None
    best: float = math.inf  # the least validation loss so far
    best_round: int = 0

    @property
    def pace(self) -> float | None:
        """Seconds per round."""
        here = self.round - self.first
        return (self.told - self.began) / here if here else None

    @property
    def each(self) -> float:
        """The estimate for a round."""
        return self.seconds / self.rounds

    @property
    def left(self) -> float | None:
        """Seconds until the last round, counted from the end of the one that was told last."""
        return None if self.pace is None else self.pace * (self.rounds - self.round)


class Board:
    """Shows runs by their names and numbers of rounds; to be used in a `with` block.

        with Board({"local": 50, "fedavg": 50}) as board:
            with board.running("local", experiment) as show:
                federate(experiment, watch=show)

    Where runs go on in other processes, `start`, `tell` and `end` do the same step by step. The
    time left follows from what each run was estimated to take; without that, rounds count alike.
    Where there is no terminal, one run has a line per evaluation, several have one when each of
    them begins and ends.
    """

    def __init__(
        self,
        rounds: Mapping[str, int],
        console: "Console | None" = None,
        seconds: Mapping[str, float] | None = None,
    ):
        needed = seconds or rounds
        self._rows = {name: Row(count, needed[name]) for name, count in rounds.items()}
        self._console = console
        self._live: Any = None
        self._began = 0.0

    def __enter__(self) -> "Board":
        from rich.console import Console
        from rich.live import Live

        self._began = time.monotonic()
        console = self._console or Console(stderr=True)
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                get_renderable=lambda: self._picture(console.height),
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
        if kind is None or issubclass(kind, Exception):  # who stops it is told how to go on
            print(self._last(), file=sys.stderr, flush=True)

    @contextmanager
    def running(
        self, name: str, experiment: "Experiment", done: int = 0, best: "Best | None" = None
    ) -> Iterator[Show]:
        """Gives what is to be called after each round of a run; `best` is what it had before."""
        self.start(name, done, best)
        ended: State = "failed"
        try:
            yield lambda done: self.tell(name, done.cost.round, found(experiment, done), done.notes)
            ended = "done"
        finally:
            self.end(name, ended)

    def start(self, name: str, done: int = 0, best: "Best | None" = None) -> None:
        """Says that a run goes on, after so many rounds."""
        now = time.monotonic()
        row = self._rows[name]._replace(state="running", first=done, round=done)
        row = row._replace(began=now, told=now)
        if best is not None:
            row = row._replace(best=best.loss, best_round=best.round)
        self._rows[name] = row
        if self._live is None and len(self._rows) > 1:
            how = f"goes on after round {done}" if done else "begins"
            print(f"{name}: {how}", file=sys.stderr, flush=True)

    def skip(self, name: str) -> None:
        """Says that a run was done before."""
        row = self._rows[name]
        self._rows[name] = row._replace(state="done", first=row.rounds, round=row.rounds)

    def tell(
        self, name: str, round: int, found: Found | None = None, notes: Sequence[str] = ()
    ) -> None:
        """Says that a round of a run is done."""
        row = self._rows[name]._replace(round=round, told=time.monotonic())
        if found is not None:
            row = row._replace(found=found)
            if found.validation is not None and found.validation < row.best:
                row = row._replace(best=found.validation, best_round=round)
        self._rows[name] = row
        place = f"{name}: round {round}/{row.rounds}"
        for note in notes:
            print(f"{place}: note: {note}", file=sys.stderr, flush=True)
        if found is not None and self._live is None and len(self._rows) == 1:
            print(f"{place}: {_words(row)}", file=sys.stderr, flush=True)

    def end(self, name: str, state: State = "done", why: str = "") -> None:
        """Says that a run is done, or failed and why."""
        row = self._rows[name] = self._rows[name]._replace(state=state)
        how = figures(row.found) if state == "done" and row.found else why
        said = f"{name}: {state}: {how}" if how else f"{name}: {state}"
        if self._live is None and len(self._rows) > 1:
            print(f"{said}; {self._overall()}", file=sys.stderr, flush=True)
        elif why:
            print(said, file=sys.stderr, flush=True)

    def _overall(self) -> str:
        rows = list(self._rows.values())
        states = [row.state for row in rows]
        counts = [f"{states.count(state)} {state}" for state in BEFORE if state in states]
        here = sum(row.each * (row.round - row.first) for row in rows)
        left = self._left()
        elapsed = time.monotonic() - self._began
        said = f"{len(rows)} runs: {', '.join(counts)}; {clock(elapsed)}"
        return f"{said}, about {clock(elapsed / here * left)} left" if here and left else said

    def _left(self) -> float:
        rows = [row for row in self._rows.values() if row.state in ("running", "waiting")]
        return sum(row.each * (row.rounds - row.round) for row in rows)

    def _last(self) -> str:
        """Says in a line what is left of the table when it goes."""
        if len(self._rows) > 1:
            return self._overall()
        ((name, row),) = self._rows.items()
        said = f": {figures(row.found)}" if row.found else ""
        return f"{name}: round {row.round}/{row.rounds} after {clock(row.told - row.began)}{said}"

    def _shown(self, room: int) -> dict[str, Row]:
        """Chooses rows where there are more than fit; they stay in their order."""
        ranks = {name: (BEFORE[row.state], -row.told) for name, row in self._rows.items()}
        names = sorted(ranks, key=lambda name: ranks[name])[: max(1, room)]
        return {name: row for name, row in self._rows.items() if name in names}

    def _picture(self, height: int) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
        table.add_column("", no_wrap=True, overflow="ellipsis")
        for title, width in WIDTHS.items():
            table.add_column(title, justify="right", no_wrap=True, min_width=width)
        rows = list(self._rows.values())
        for name, row in self._shown(height - 8).items():
            style = {"running": "bold", "failed": "red", "waiting": "dim"}.get(row.state, "")
            table.add_row(name, *_cells(row, time.monotonic()), style=style)
        total = sum(row.seconds for row in rows)
        below = Table.grid(expand=True)
        below.add_row(ProgressBar(total=total, completed=total - self._left()))
        if len(rows) > 1:
            below.add_row(self._overall())
        oracle = any(row.found is not None and row.found.oracle for row in rows)
        return Group(table, below, Text(f"{LEGEND}\n{DAGGER}" if oracle else LEGEND, style="dim"))


def found(experiment: "Experiment", done: "Done") -> Found | None:
    """Takes out of an evaluation what is shown of it."""
    if done.evaluation is None:
        return None
    scores = {(score.model, score.split): score.figures for score in done.evaluation.scores}
    shared, judged = scores.get(("shared", "test")), scores.get(("personal", "validation"))
    return Found(
        float(scores["personal", "test"].top1.mean()),
        None if shared is None else float(shared.top1.mean()),
        None if judged is None else float(judged.loss.mean()),
        oracle=done.evaluation.chosen and experiment.rule.on_test,
    )


def clock(seconds: float) -> str:
    """Writes a length of time.

    >>> clock(3725)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _cells(row: Row, now: float) -> Iterator[str]:
    """Yields what the table says of a run, behind its name."""
    yield f"{row.round}/{row.rounds}"
    dagger = "†" if row.found and row.found.oracle else ""
    yield f"{row.found.personal:.1%}{dagger}" if row.found else "-"
    yield f"{row.found.shared:.1%}" if row.found and row.found.shared is not None else "-"
    yield f"{row.best:.4f} @{row.best_round}" if row.best_round else "-"
    yield "-" if row.pace is None else f"{row.pace:.2f}"
    left = row.left
    if row.state != "running" or left is None:
        yield row.state
    else:
        yield clock(max(0.0, left - (now - row.told)))


def figures(found: Found) -> str:
    """Says in a few words what an evaluation found; a number chosen on test data is marked."""
    dagger = "†" if found.oracle else ""
    means = f"personal{dagger} {found.personal:.1%}"
    means += "" if found.shared is None else f", shared {found.shared:.1%}"
    return f"{means} (test, top-1, mean over clients){f' {DAGGER}' if dagger else ''}"


def _words(row: Row) -> str:
    """Says in a line what an evaluation found, the best so far, and how long it will take."""
    assert row.found is not None
    said = [figures(row.found)]
    if row.best_round:
        said.append(f"least validation loss {row.best:.4g} after round {row.best_round}")
    if row.pace is not None and row.left is not None:
        said.append(f"{row.pace:.2f} s/round, {clock(row.left)} left")
    return "; ".join(said)
