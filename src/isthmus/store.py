"""The run on disk: settings, and one table each of the clients, the rounds and the scores.

A run directory holds

    experiment.toml   all settings; `isthmus run experiment.toml` runs them again
    federation.csv    who has what: client, sizes of its parts, counts of its labels
    rounds.csv        what each round cost: clients, bytes, seconds
    clients.csv       what each model scored, for every client, after every evaluated round
    summary.json      how it ended: status, digest, versions

Every table begins with the experiment in lines that start with "#"; docs/records.md describes the
columns. Rows are written and flushed after each round, so that a run that ends early keeps what it
did.
"""

import csv
import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from isthmus.cohort import Evaluation
from isthmus.data.federation import Federation
from isthmus.errors import IsthmusError
from isthmus.metrics.score import Figures

FEDERATION = ("client", "train", "validation", "test", "labels")
CLIENTS = ("round", "client", "model", "at", "split", *Figures._fields)


class Cost(NamedTuple):
    """What one round cost: a row of rounds.csv."""

    round: int  # counted from 1
    lr: float
    asked: int
    answered: int
    down_bytes: int
    up_bytes: int
    train_seconds: float
    evaluate_seconds: float


class Store:
    """Writes one run into a directory that holds none yet."""

    def __init__(self, path: Path, experiment: str, federation: Federation):
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise IsthmusError(
                f"{path} is not empty; expected a new directory, so that nothing is lost; name "
                "another one with --out"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / "experiment.toml").write_text(experiment)
        except OSError as error:
            raise IsthmusError(
                f"{path} cannot be written ({error}); expected a directory to write into; name "
                "another one with --out"
            ) from None
        self._path = path
        self._head = "".join(f"# {line}".rstrip() + "\n" for line in experiment.splitlines())
        self._rounds = self._table("rounds.csv", Cost._fields)
        self._clients = self._table("clients.csv", CLIENTS)
        with self._table("federation.csv", FEDERATION) as table:
            _rows(table, _describe(federation))
        self._federation = federation.digest()
        self._summarise("running", {})

    def round(self, cost: Cost, evaluation: Evaluation | None) -> None:
        """Adds one finished round and, where there was one, its evaluation."""
        if evaluation is not None:
            _rows(self._clients, _scores(cost.round, evaluation))
        seconds = (f"{cost.train_seconds:.6f}", f"{cost.evaluate_seconds:.6f}")
        _rows(self._rounds, [(*cost[:-2], *seconds)])

    def close(self, status: str, rounds: int, digest: str, seconds: float) -> None:
        """Writes how the run ended."""
        ended = {"rounds": rounds, "digest": digest, "seconds": round(seconds, 3)}
        self._summarise(status, ended)
        self._rounds.close()
        self._clients.close()

    def _summarise(self, status: str, figures: dict[str, Any]) -> None:
        versions = {"isthmus": version("isthmus"), "torch": version("torch")}
        summary = {"status": status, **figures, "federation": self._federation, **versions}
        draft = self._path / "summary.json.part"
        draft.write_text(json.dumps(summary, indent=2) + "\n")
        draft.replace(self._path / "summary.json")

    def _table(self, name: str, columns: tuple[str, ...]) -> TextIO:
        file = (self._path / name).open("w", newline="")
        file.write(self._head)
        _rows(file, [columns])
        return file


def _rows(file: TextIO, rows: Iterable[Iterable[Any]]) -> None:
    csv.writer(file, lineterminator="\n").writerows(rows)
    file.flush()


def _describe(federation: Federation) -> Iterable[tuple[Any, ...]]:
    for i in range(len(federation)):
        labels = " ".join(str(count) for count in federation.label_counts(i))
        yield i, *federation.sizes(i), labels


def _scores(round: int, evaluation: Evaluation) -> Iterable[tuple[Any, ...]]:
    for model, split, at, figures in evaluation.scores:
        for i in range(len(at)):
            # One row per client, or, along a path, one per client and point.
            places = np.atleast_2d(at[i])
            columns = [np.atleast_1d(column[i]) for column in figures]
            for place, *values in zip(places, *columns, strict=True):
                yield round, i, model, _place(place), split, *_numbers(values)
    if evaluation.server is not None:
        yield round, "server", "shared", "", "test", *_numbers(evaluation.server)


def _place(at: Any) -> str:
    return " ".join(f"{number:.6g}" for number in at)


def _numbers(values: Iterable[Any]) -> list[str]:
    count, *rest = values
    return [str(int(count)), *(f"{value:.8g}" for value in rest)]
