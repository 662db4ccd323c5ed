"""A run's directory, read back as immutable columns.

Sizes: N clients, C classes, L points on a path.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from isthmus.errors import IsthmusError, quote
from isthmus.experiment.settings import flatten
from isthmus.metrics import spread
from isthmus.metrics.metric import BINS, METRICS
from isthmus.run.columns import Floats, Integers, freeze, number, parse, read_arrays
from isthmus.run.schema import TABLES, RecordColumn
from isthmus.selection import RULES
from isthmus.system.files import write_text

Texts: TypeAlias = NDArray[np.str_]

SUMMARY = "summary.json"
READ = ("federation", "rounds", "clients", "reliability", "newcomers")  # tables
SERVER = -1  # the client number of rows about the server's own test set
NUMBERS = {"seed": int, "rounds": int, "method.rho": int | float}  # settings that are computed with


class UnevaluatedError(IsthmusError):
    """No round of a run was evaluated yet."""


class RunSummary(NamedTuple):
    """How a run stands: what its summary.json holds, where a field is not as it is here."""

    status: str = "unfinished"  # or finished, stopped, running
    reason: str = ""  # why it ended before its last round
    rounds: int = 0  # done
    digest: str = ""  # of the state
    seconds: float = 0.0  # of all rounds
    federation: str = ""  # digest of the data
    isthmus: str = ""  # version
    torch: str = ""
    keeps_best: bool = False
    sample: Mapping[str, int] = MappingProxyType({})
    federated: bool = True  # data stay with their clients; if not, the run is a bound for others

    @property
    def finished(self) -> bool:
        """Whether no round is left."""
        return self.status == "finished"


def read_summary(run: Path) -> RunSummary:
    """Return how a run stands; what is missing or damaged is left out: the tables have the rest."""
    try:
        given = json.loads((run / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return RunSummary()
    kinds = {name: type(value) for name, value in RunSummary()._asdict().items()}
    kinds |= {"sample": dict}
    return RunSummary(**{k: given[k] for k in kinds if isinstance(given.get(k), kinds[k])})


def write_summary(run: Path, summary: RunSummary) -> None:
    """Write how a run stands."""
    default = RunSummary()._asdict()
    given = {key: value for key, value in summary._asdict().items() if value != default[key]}
    write_text(run / SUMMARY, json.dumps(given, indent=2) + "\n")


class RecordTable(SimpleNamespace):
    """A table as immutable columns, each an attribute by its name in isthmus.run.schema.

    `clients` has `lam` in addition: the place on the path as a number, nan where it is not one
    number. `labels` of `federation` are [N, C].
    """


class EvaluationSample(NamedTuple):
    """How many clients were drawn to be evaluated, and of how many."""

    clients: int
    of: int


class Curve(NamedTuple):
    """A mean over clients at each evaluated round."""

    round: Integers
    mean: Floats


class ClientPaths(NamedTuple):
    """What was measured along the paths of the M clients that have an end of their own."""

    client: Integers  # [M]
    lam: Floats  # [L]
    chosen: Floats  # [M]: where the client's personal model lies
    values: Mapping[str, Floats]  # of each metric, [M, L]
    personal: Mapping[str, Floats]  # of each metric, [M]

    def mean(self, metric: str) -> Floats:
        """Return the mean of a metric over the clients, at each place."""
        mean: Floats = self.values[metric].mean(axis=0)
        return mean


class RecordedRun(NamedTuple):
    """One run: its settings and everything it recorded."""

    path: Path
    settings: Mapping[str, Any]  # flat, tables joined by a dot: "method.name"
    federation: RecordTable
    rounds: RecordTable
    clients: RecordTable
    reliability: RecordTable
    newcomers: RecordTable  # clients that took part in no round; no rows where nobody joined
    evaluated: Integers  # rounds that were evaluated on every client
    summary: RunSummary
    label: str = ""  # what it is called where that is not its method and what it differs in

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.settings["method.name"])

    @property
    def title(self) -> str:
        """The method's name in tables and figures."""
        name = self.label or self.method
        return name if self.federated else f"{name} (not federated)"

    @property
    def seed(self) -> int | None:
        """Return the seed, if the settings have one."""
        seed = self.settings.get("seed")
        return None if seed is None else int(seed)

    @property
    def status(self) -> str:
        """Whether the run finished, was stopped, or is running still (or was killed)."""
        return self.summary.status

    @property
    def federated(self) -> bool:
        """Whether data stayed with their clients; if not, the run is a bound for others."""
        return self.summary.federated

    @property
    def split_digest(self) -> str | None:
        """The digest of the federation, if it is known."""
        return self.summary.federation or None

    @property
    def sample(self) -> EvaluationSample | None:
        """How many clients are evaluated; None: all."""
        drawn = self.federation.evaluated == "yes"
        return EvaluationSample(int(drawn.sum()), drawn.size) if drawn.size else None

    @property
    def last(self) -> int:
        """Return the last round that was evaluated on every client."""
        return int(self.evaluated[-1])

    @property
    def selection(self) -> str | None:
        """Return the rule that chose the personal models, where there was a choice."""
        chosen = (self.clients.model == "personal") & ~np.isnan(self.clients.lam)
        given = np.isin(self.clients.model, ("simplex", "line"))  # each client its place
        if given.any() or not chosen.any():
            return None
        return str(self.settings.get("selection", "validation"))

    @property
    def chosen_on_test(self) -> bool:
        """Whether the personal models were chosen on test data."""
        rule = RULES.get(self.selection or "")
        return rule is not None and rule.on_test

    @property
    def per_batch(self) -> bool:
        """Whether ECE and MCE are means over mini-batches, as in the SuPerFed code."""
        return self.settings.get("calibration") == "per-batch"

    def values(
        self, metric: str, model: str = "personal", split: str = "test", at: str | None = None
    ) -> Floats:
        """Return a metric per client at the last evaluated round, nan where there is none.

        `at` names a place on the path, as it was written.
        """
        rows = self._rows(model, split) & (self.clients.round == self.last)
        rows &= True if at is None else self.clients.at == at
        values = np.full(len(self.federation.client), np.nan)
        values[self._places(rows)] = getattr(self.clients, metric)[rows]
        return values

    def over_clients(self, metric: str, model: str = "personal") -> Floats:
        """Return the values of the clients that have one, on their own test parts."""
        values = self.values(metric, model)
        return values[~np.isnan(values)]

    def on_server(self, metric: str) -> float | None:
        """Return the shared model's metric on the server's own test set."""
        at_server = (self.clients.client == SERVER) & (self.clients.round == self.last)
        rows = at_server & (self.clients.model == "shared") & (self.clients.split == "test")
        values = getattr(self.clients, metric)[rows]
        return None if values.size == 0 or np.isnan(values[-1]) else float(values[-1])

    def bins(self, model: str = "personal") -> tuple[Floats, Floats, Floats] | None:
        """Return, of all clients' test examples together, (n, top-1, confidence) of each bin."""
        table = self.reliability
        rows = (table.round == self.last) & (table.model == model) & (table.split == "test")
        if rows.sum() != BINS:  # of an older version, or cut short
            return None
        return table.n[rows].astype(np.float64), table.top1[rows], table.confidence[rows]

    def pool(self, metric: str, model: str = "personal") -> float | None:
        """Return a metric over all clients' test examples together, each counted once."""
        of_bins = METRICS[metric].of_bins
        if of_bins is not None:
            bins = self.bins(model)
            if bins is None:
                return None
            n, *means = bins
            sums = [np.nan_to_num(n * mean) for mean in means]
            return float(of_bins(n, *sums))
        values, n = self.values(metric, model), self.values("n", model)
        known = ~np.isnan(values)
        return float(np.average(values[known], weights=n[known])) if known.any() else None

    def to_reach(self, target: float, model: str = "personal") -> spread.Spent | None:
        """Return what was spent when the mean top-1 over clients' test parts reached a target."""
        curve, rounds = self.curve("top1", model), self.rounds
        last = spread.rounds_to(target, curve.round, curve.mean)
        if last is None:
            return None
        sent = rounds.down_bytes + rounds.up_bytes
        return spread.add_up(last, rounds.round, rounds.train_seconds, sent)

    def curve(self, metric: str, model: str = "personal", split: str = "test") -> Curve:
        """Return the mean over clients, on a part of their own data, at each evaluated round."""
        column = getattr(self.clients, metric)
        rows = self._rows(model, split) & ~np.isnan(column)
        rows &= np.isin(self.clients.round, self.evaluated)
        rounds, where = np.unique(self.clients.round[rows], return_inverse=True)
        means = np.bincount(where, weights=column[rows]) / np.maximum(np.bincount(where), 1)
        return Curve(rounds, means)

    def best_rounds(self) -> Integers:
        """Return after which round each client's personal model did best on validation data."""
        rows = self._rows("personal", "validation") & ~np.isnan(self.clients.loss)
        order = np.lexsort((self.clients.round[rows], self.clients.loss[rows]))
        clients = self.clients.client[rows][order]
        _, first = np.unique(clients, return_index=True)
        rounds: Integers = self.clients.round[rows][order][first]
        return rounds

    def along(self) -> ClientPaths | None:
        """Return the metrics on the clients' test parts along their paths, if there are paths."""
        rows = self._rows("path", "test") | self._rows("line", "test")
        rows &= (self.clients.round == self.last) & ~np.isnan(self.clients.lam)
        if not rows.any():
            return None
        lam, point = np.unique(self.clients.lam[rows].round(6), return_inverse=True)
        places, clients = self._places(rows), self.federation.client
        # A client without an own end has the shared model at every point: all its rows say 0.
        owner = np.unique(places[self.clients.lam[rows] > 0])
        values = {}
        for metric in METRICS:
            table = np.full((len(clients), len(lam)), np.nan)
            table[places, point] = getattr(self.clients, metric)[rows]
            values[metric] = table[owner]
        personal = {metric: self.values(metric)[owner] for metric in METRICS}
        return ClientPaths(clients[owner], lam, self.values("lam")[owner], values, personal)

    def total(self, column: str) -> float:
        """Return the sum of a column of `rounds` up to the last evaluated round."""
        return float(getattr(self.rounds, column)[self.rounds.round <= self.last].sum())

    def _rows(self, model: str, split: str) -> NDArray[np.bool_]:
        rows: NDArray[np.bool_] = (self.clients.client != SERVER) & (self.clients.n > 0)
        rows &= (self.clients.model == model) & (self.clients.split == split)
        return rows

    def _places(self, rows: NDArray[np.bool_]) -> Integers:
        places: Integers = np.searchsorted(self.federation.client, self.clients.client[rows])
        return places


def read(path: str | Path) -> RecordedRun:
    """Read a run's directory; a run that is running, or was killed, is read as far as it got.

    An incomplete last line of a file, and a last evaluation that misses clients, are left out.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise IsthmusError(f"{directory} is not a directory; name the directory of a run")
    for name in ("experiment.toml", "federation.csv", "rounds.csv", "clients.csv"):
        if not (directory / name).is_file():
            raise IsthmusError(
                f"{directory} has no {name}; name the directory of a run; one that just began has "
                "it after its first evaluation"
            )
    settings = _settings(directory / "experiment.toml")
    per_batch = settings.get("calibration") == "per-batch"
    tables = {
        name: read_arrays(directory / f"{name}.csv", TABLES[name], per_batch) for name in READ
    }
    run = _assemble(directory, settings, tables, read_summary(directory))
    if run.evaluated.size == 0:
        raise UnevaluatedError(
            f"{directory} has no evaluated round yet; "
            "wait for the first evaluation, or lower eval_every"
        )
    return run


def from_rows(
    path: Path,
    settings: Mapping[str, Any],
    rows: Mapping[str, Iterable[Sequence[Any]]],
    summary: RunSummary,
) -> RecordedRun:
    """Return a run whose rows are in hand, by the names of their tables; others have no rows."""
    tables = {name: _to_arrays(TABLES[name], rows.get(name, ())) for name in READ}
    return _assemble(path, settings, tables, summary)


def _to_arrays(
    columns: Sequence[RecordColumn], rows: Iterable[Sequence[Any]]
) -> dict[str, NDArray[Any]]:
    """Turn rows into columns as `read_arrays` does."""
    turned = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = {}
    for column, values in zip(columns, turned, strict=True):
        if column.type is tuple:
            values = tuple(" ".join(format(v, column.format) for v in each) for each in values)
        elif column.type is str and None in values:  # the file lacks the column
            values = ()
        kind = column.type if column.type in (int, float) else str
        arrays[column.name] = freeze(np.array(values, np.dtype(kind)))
    return arrays


def _assemble(
    path: Path,
    settings: Mapping[str, Any],
    tables: Mapping[str, dict[str, NDArray[Any]]],
    summary: RunSummary,
) -> RecordedRun:
    federation = _federation(path / "federation.csv", tables["federation"])
    clients = _clients(path / "clients.csv", tables["clients"])
    unknown = np.setdiff1d(clients.client, np.append(federation.client, SERVER))
    if unknown.size:
        raise IsthmusError(
            f"{path / 'clients.csv'} names client {unknown[0]}, and federation.csv does not; "
            "restore the files of this run, or run it again"
        )
    return RecordedRun(
        path=path,
        settings=settings,
        federation=federation,
        rounds=RecordTable(**tables["rounds"]),
        clients=clients,
        reliability=RecordTable(**tables["reliability"]),
        newcomers=_newcomers(tables["newcomers"]),
        evaluated=_find_evaluated(federation, clients),
        summary=summary,
    )


def labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Return distinct names of runs: by method, then seed, then directory."""
    methods = [run.method for run in runs]
    seeded = [
        f"{run.title} · seed {run.seed}" if methods.count(run.method) > 1 else run.title
        for run in runs
    ]
    placed = [
        f"{label} · {run.path.name}" if seeded.count(label) > 1 else label
        for label, run in zip(seeded, runs, strict=True)
    ]
    return [
        f"{label} · run {number}" if placed.count(label) > 1 else label
        for number, label in enumerate(placed, start=1)
    ]


def find_counterpart(
    run: RecordedRun, runs: Sequence[RecordedRun], method: str
) -> RecordedRun | None:
    """Find a method's run on the same federation, with the same seed if there are several."""
    digest = run.summary.federation
    same = [r for r in runs if digest and r.method == method and r.summary.federation == digest]
    return next((r for r in same if r.seed == run.seed), same[0] if same else None)


def mean_or_none(values: Floats) -> float | None:
    """Return the mean over clients, or None where no client has a value."""
    return spread.mean(values) if values.size else None


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also bytes, numbers too long, lists too deep
        raise IsthmusError(f"{path} is not TOML ({error}); restore it, or run it again") from None
    flat = flatten(tables)
    if "method.name" not in flat:
        raise IsthmusError(f"{path} has no table [method] with a name; restore it, or run it again")
    for key, kind in NUMBERS.items():
        if not isinstance(flat.get(key, 0), kind):
            raise IsthmusError(
                f"{path} has {key} = {quote(flat[key])}, which is no number; restore it, or run it "
                "again"
            )
    return MappingProxyType(flat)


def _federation(path: Path, arrays: dict[str, NDArray[Any]]) -> RecordTable:
    texts = arrays["labels"].tolist()
    lengths = {len(text.split()) for text in texts} or {0}
    if len(lengths) > 1:
        raise IsthmusError(
            f"{path} has label counts of different lengths; restore it, or run it again"
        )
    counts = parse(path, "labels", texts, lambda text: [int(n) for n in text.split()], np.int64)
    arrays["labels"] = counts.reshape(len(texts), *lengths)
    order = np.argsort(arrays["client"], kind="stable")
    # A column that the file lacks is empty: [0] in place of [N].
    there = {name: array[order] if len(array) else array for name, array in arrays.items()}
    return RecordTable(**{name: freeze(array) for name, array in there.items()})


def _clients(path: Path, arrays: dict[str, NDArray[Any]]) -> RecordTable:
    clients, whose = np.unique(arrays["client"], return_inverse=True)
    places, where = np.unique(arrays["at"], return_inverse=True)
    arrays["client"] = freeze(parse(path, "client", clients.tolist(), _client, np.int64)[whose])
    arrays["lam"] = freeze(parse(path, "at", places.tolist(), _lam, np.float64)[where])
    return RecordTable(**arrays)


def _newcomers(arrays: dict[str, NDArray[Any]]) -> RecordTable:
    for name in ("time", "data", "digest", "round"):
        if len(arrays[name]) < len(arrays["shots"]):  # an older version did not say
            arrays[name] = freeze(np.zeros(len(arrays["shots"]), arrays[name].dtype))
    return RecordTable(**arrays)


def _find_evaluated(federation: RecordTable, clients: RecordTable) -> Integers:
    measured = (clients.model == "personal") & (clients.split == "test") & (clients.n > 0)
    measured &= clients.client != SERVER
    pairs = np.unique(np.stack([clients.round[measured], clients.client[measured]]), axis=1)
    rounds, counts = np.unique(pairs[0], return_counts=True)
    tested = federation.test > 0
    if federation.evaluated.size:
        tested &= federation.evaluated == "yes"
    return freeze(rounds[counts >= np.sum(tested)])


def _client(text: str) -> int:
    return SERVER if text == "server" else int(text)


def _lam(text: str) -> float:
    return np.nan if " " in text else number(text)
