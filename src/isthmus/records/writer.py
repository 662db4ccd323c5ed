"""The tables of a run, as text files that anything can read.

    federation.csv    who has what: client, sizes of its parts, counts of its labels; its kind and
                      its name, where there are any
    rounds.csv        what each round cost: clients, bytes, seconds
    clients.csv       what each model scored, for every client, after every evaluated round
    reliability.csv   how sure and how right models were, over all clients, in bins of confidence
    newcomers.csv     the same for clients that were held out, after the last round
    notes.csv         what the partition relaxed (round 0), and what the method said in a round

and what isthmus.runs.landscape measures of a run when asked to: landscape.csv and simplex.csv.

Every table begins with the experiment in lines that start with "#"; docs/records.md describes the
columns. The store keeps the same rows with the state they belong to, and writes the tables anew
when a run is resumed.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.data.federation import Federation
from isthmus.evaluation import Evaluation, Score
from isthmus.metrics.calibration import BINS
from isthmus.metrics.score import Figures
from isthmus.task import Calibration

FEDERATION = ("client", "train", "validation", "test", "labels")
CLIENTS = ("round", "client", "model", "at", "split", *Figures._fields)
NEWCOMERS = ("shots", *CLIENTS[1:])
NOTES = ("round", "note")
RELIABILITY = ("round", "model", "split", "bin", "lower", "upper", "n", "top1", "confidence")


class Cost(NamedTuple):
    """What one round cost: a row of rounds.csv."""

    round: int  # counted from 1
    lr: float
    asked: int
    answered: int
    down_bytes: int
    up_bytes: int
    head_variance: float | None
    train_seconds: float
    evaluate_seconds: float


class Rows(NamedTuple):
    """What one round adds to the tables."""

    rounds: str
    clients: str
    notes: str
    reliability: str


class TableWriter:
    """Writes the tables of one run into its directory."""

    def __init__(
        self,
        path: Path,
        experiment: str,
        federation: Federation,
        calibration: Calibration,
        kinds: Sequence[str] = (),
    ):
        self._path = path
        self._per_batch = calibration == "per-batch"
        self._experiment = experiment
        columns = (*FEDERATION, *(["kind"] if kinds else []))
        columns += ("name",) if federation.names else ()
        self._begin("federation.csv", columns, _text(_describe(federation, kinds)))
        self._begin("rounds.csv", Cost._fields)
        self._begin("clients.csv", CLIENTS)
        self._begin("reliability.csv", RELIABILITY)
        self._begin("notes.csv", NOTES, _text((0, note) for note in federation.notes))

    def add(self, rows: Rows) -> None:
        """Adds one round's rows."""
        for name in ("notes", "reliability", "clients", "rounds"):
            text = getattr(rows, name)
            # Opened for each round: a full disk shows here, and closing has nothing left to write.
            with (self._path / f"{name}.csv").open("a", newline="") as table:
                table.write(text)

    def newcomers(self, found: Iterable[tuple[int | None, tuple[Score, ...]]]) -> None:
        """Writes how clients did that took part in no round."""
        places = (
            _text(_places("all" if shots is None else shots, scores)) for shots, scores in found
        )
        self._begin("newcomers.csv", NEWCOMERS, "".join(places))

    def _begin(self, name: str, columns: tuple[str, ...], text: str = "") -> None:
        if self._per_batch:  # numbers that are not to be taken for those of whole splits
            marked = {"ece": "ece_per_batch", "mce": "mce_per_batch"}
            columns = tuple(marked.get(column, column) for column in columns)
        (self._path / name).write_text(headed(self._experiment, columns) + text, newline="")


def rows(cost: Cost, evaluation: Evaluation | None, notes: Iterable[str] = ()) -> Rows:
    """Writes one finished round and, where there was one, its evaluation."""
    variance = "" if cost.head_variance is None else f"{cost.head_variance:.8g}"
    seconds = (f"{cost.train_seconds:.6f}", f"{cost.evaluate_seconds:.6f}")
    return Rows(
        rounds=_text([(*cost[:-3], variance, *seconds)]),
        clients="" if evaluation is None else _text(_scores(cost.round, evaluation)),
        notes=_text((cost.round, note) for note in notes),
        reliability="" if evaluation is None else _text(_bins(cost.round, evaluation.scores)),
    )


def headed(experiment: str, columns: Sequence[str], lines: Iterable[Iterable[Any]] = ()) -> str:
    """Writes a table with the experiment in lines that start with "#", then its columns' names."""
    head = "".join(f"# {line}".rstrip() + "\n" for line in experiment.splitlines())
    return head + _text([columns, *lines])


def _text(lines: Iterable[Iterable[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


def _describe(federation: Federation, kinds: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    for i in range(len(federation)):
        labels = " ".join(str(count) for count in federation.label_counts(i))
        name = federation.name(i)
        names = [] if name is None else [name]
        yield i, *federation.sizes(i), labels, *kinds[i : i + 1], *names


def _scores(round: int, evaluation: Evaluation) -> Iterable[tuple[Any, ...]]:
    yield from _places(round, evaluation.scores)
    if evaluation.server is not None:
        yield round, "server", "shared", "", "test", *_numbers(evaluation.server)


def _places(first: Any, scores: Iterable[Score]) -> Iterable[tuple[Any, ...]]:
    for model, split, at, figures, _ in scores:
        for i in range(len(at)):
            # One row per client, or, along a path, one per client and point.
            places = np.atleast_2d(at[i])
            columns = [np.atleast_1d(column[i]) for column in figures]
            for place, *values in zip(places, *columns, strict=True):
                yield first, i, model, _place(place), split, *_numbers(values)


def _bins(round: int, scores: Iterable[Score]) -> Iterable[tuple[Any, ...]]:
    for score in scores:
        if score.pooled is not None:
            for b, (n, *sums) in enumerate(zip(*score.pooled.bins, strict=True)):
                edges = (f"{b / BINS:.8g}", f"{(b + 1) / BINS:.8g}")
                means = [f"{value / n:.8g}" if n else "" for value in sums]
                yield round, score.model, score.split, b + 1, *edges, n, *means


def _place(at: Any) -> str:
    return " ".join(f"{number:.6g}" for number in at)


def _numbers(values: Iterable[Any]) -> list[str]:
    count, *rest = values
    return [str(int(count)), *(f"{value:.8g}" for value in rest)]
