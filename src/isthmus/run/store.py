"""The run on disk: one directory, one transaction per round.

    state.lmdb        states of server and clients, round number, sizes of the tables, experiment
    experiment.toml   all settings; `isthmus run experiment.toml` runs them again
    *.csv             the tables, see isthmus.run.writer
    summary.json      how the run stands: status, digests, versions

A round is done when the transaction that has all its changes is committed. Its rows are in the
tables by then; rows of a round that was not committed are cut off when a run is resumed.
"""

import json
import math
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from isthmus import tree
from isthmus.client import Point
from isthmus.context import CallOutcome, RunContext
from isthmus.errors import IsthmusError
from isthmus.evaluation import Evaluation, Score, splits_of
from isthmus.experiment.settings import flatten
from isthmus.method import State
from isthmus.run.columns import read_seconds
from isthmus.run.database import Database, Sync, is_blank
from isthmus.run.record import RunSummary, write_summary
from isthmus.run.schema import TABLES
from isthmus.run.writer import (
    Cost,
    TableRows,
    TableSizes,
    TableWriter,
    newcomer_rows,
    round_rows,
)
from isthmus.shelf import EMPTY, after
from isthmus.system.files import explain_unwritable, remove_drafts, write_text

# What is found of newcomers: examples that they trained on at most, and scores.
Found: TypeAlias = Sequence[tuple[int | None, tuple[Score, ...]]]

HELD_OUT = "held_out"  # in newcomers.csv in place of a file of data
TABLE_SIZES = b"tables"
STATE = "state.lmdb"
LOCK = "state.lock"
OWN, SHELF = b"own/", b"shelf/"  # and a client's number; and a name
KEPT, MODEL = b"kept/", b"model/"  # and a client's number; and the digest of a model
KEPT_UNASKED = 1 << 30  # bytes of best models that are kept unless the user says otherwise
TOGETHER = 64 * 2**20  # bytes of models that wait for their round; more are written before it


class Best(NamedTuple):
    """The least mean validation loss of the personal models so far, and how long it has stood."""

    loss: float = math.inf
    round: int = 0
    since: int = 0  # evaluations after it


class Progress(NamedTuple):
    """A run between two rounds: all that the next round depends on."""

    t: int  # rounds done
    server: State
    own: Mapping[int, State]  # of the clients that took part
    shelf: Mapping[str, Tensor] = EMPTY  # what the server keeps beside its state
    best: Best = Best()


class RoundUpdate(NamedTuple):
    """What one round leaves behind."""

    server: State
    changed: Mapping[int, State]  # own states, of the clients that took part in it
    cost: Cost
    evaluation: Evaluation | None
    shelf: Mapping[str, Tensor | None] = MappingProxyType({})  # what it put there or took away
    notes: tuple[str, ...] = ()
    best: Best = Best()
    outcomes: tuple[CallOutcome, ...] = ()  # of its calls, where clients need not answer
    withheld: frozenset[int] = frozenset()  # clients whose figures are not kept one by one


class Memory:
    """Keep a run's state in memory only."""

    best_models = None
    notes: Sequence[str] = ()

    def __init__(self, setting: RunContext):
        self.progress = Progress(0, setting.method.init(setting.task), {})

    def start(self) -> None:
        """Do nothing: nothing is written."""

    def commit(self, step: RoundUpdate) -> None:
        """Apply what a round changed."""
        self.progress = apply_update(self.progress, step)

    def add_newcomers(self, found: Found, digest: str, source: str = HELD_OUT) -> None:
        """Do nothing: nothing is kept."""

    def close(self, status: str, reason: str = "") -> str:
        """Return the digest of the state."""
        return digest_of(self.progress)


class Store:
    """Keep a run's state in its directory, in a database that may exist already.

    Nothing is written before `start`, which creates the database of a new run. `sync="system"`
    leaves flushing to the OS.
    """

    def __init__(
        self,
        path: Path,
        setting: RunContext,
        experiment: str,
        database: Database | None = None,
        *,
        sync: Sync = "round",
        keep_best: bool | None = False,
    ):
        if keep_best is None:
            nbytes = 2 * setting.task.clients * setting.task.w0.nbytes  # of two rounds
            keep_best = nbytes <= KEPT_UNASKED and "validation" in splits_of(setting)
        self._path = path
        self._setting = setting
        self._experiment = experiment
        self._sync = sync
        self._about: dict[str, Any] = {
            "federation": setting.federation.digest(),
            "start": tree.digest([setting.task.w0]),
            **_versions(),
            **({"keeps_best": True} if keep_best else {}),
        }
        self.notes: list[str] = list(setting.federation.notes) if database is None else []
        self._shapes: dict[int, State] = {}  # of own states, by kind of client
        self.best_models: BestModels | None = None
        self.is_new = database is None
        if database is not None:
            self._attach(database)

    def _attach(self, database: Database) -> None:
        self._database = database
        sync = self._sync == "round"
        self._tables = TableWriter(
            self._path, self._experiment, self._setting, self._commit_sizes, sync=sync
        )
        written = database.read(b"run")
        if written is not None:
            before = json.loads(written)
            self.notes += _compare_origins(before, self._about)
            self._about |= before  # the versions that began it stay
        if self._about.get("keeps_best"):
            self.best_models = BestModels(database)

    def start(self) -> "Store":
        """Begin to write: a new run, or one that exists from where it was."""
        if self.is_new:
            self._create()
        try:
            changes = {b"run": json.dumps(self._about | {"experiment": self._experiment}).encode()}
            if b"progress" not in self._database:
                server = self._setting.method.init(self._setting.task)
                changes |= {b"server": tree.pack(server), b"progress": b"0"}
            self._database.write(changes)
            remove_drafts(self._path)
            write_text(self._path / "experiment.toml", self._experiment)
            self._open_tables()
            self._write_summary(RunSummary("running"))
            return self
        except BaseException:
            self.release()
            raise

    def _create(self) -> None:
        if self._about.get("keeps_best") and "validation" not in splits_of(self._setting):
            raise IsthmusError(
                "best models cannot be kept, since clients have no validation data; set "
                "validation=0.1, or leave --keep-best out"
            )
        with explain_unwritable(self._path):
            _refuse_existing(self._path, self._experiment)
            self._path.mkdir(parents=True, exist_ok=True)
        self._attach(Database(self._path / STATE, new=True, sync=self._sync))
        self.is_new = False

    def _open_tables(self) -> None:
        """Open the tables; of a run of version 3, move its rows from the database into them."""
        database = self._database
        older = [*database.keys(b"round/"), *database.keys(b"newcomers/")]
        self._tables.open({} if older else json.loads(database.read(TABLE_SIZES) or b"{}"))
        for key in older:
            if key.startswith(b"round/"):
                self._tables.append(unpack_rows(database.read(key) or b""))
        if older:
            sizes = json.dumps(self._tables.sizes).encode()
            database.write({**dict.fromkeys(older), TABLE_SIZES: sizes})

    @property
    def progress(self) -> Progress:
        """The state as it was last committed; own states are read when they are looked at."""
        if self.is_new:
            return Progress(0, self._setting.method.init(self._setting.task), {})
        server = tree.unpack(
            _present(self._database.read(b"server"), self._path),
            like=self._setting.method.init(self._setting.task),
        )
        done = read_rounds_done(self._database, self._path)
        own = StoredStates(self._database, OWN, int, self._own_like)
        shelf = StoredStates(self._database, SHELF, str, lambda name: torch.empty(0))
        best = Best(*json.loads(self._database.read(b"best") or b"[]"))
        return Progress(done, server, own, shelf, best)

    def _own_like(self, i: int) -> State:
        """Return something of the shape of client i's own state: that of one of its kind."""
        kind = self._setting.method.networks().kind(i)
        if kind not in self._shapes:
            self._shapes[kind] = self._setting.own_like(i)
        return self._shapes[kind]

    def commit(self, step: RoundUpdate) -> None:
        """Write the rows of a round, and then what it changed in one transaction."""
        self._tables.append(round_rows(step))
        changes: dict[bytes, bytes | None] = {
            name_key(OWN, i): tree.pack(state) for i, state in step.changed.items()
        }
        for name, tensor in step.shelf.items():
            changes[name_key(SHELF, name)] = None if tensor is None else tree.pack(tensor)
        changes[TABLE_SIZES] = json.dumps(self._tables.sizes).encode()
        changes[b"server"] = tree.pack(step.server)
        changes[b"best"] = json.dumps(step.best).encode()
        changes[b"progress"] = str(step.cost.round).encode()
        changes |= {} if self.best_models is None else self.best_models.flush()
        self._database.write(changes)

    def _commit_sizes(self, sizes: TableSizes) -> None:
        self._database.write({TABLE_SIZES: json.dumps(sizes).encode()})

    def forget_figures(self, i: int) -> int:
        """Delete a client's figures of all rounds; return the number of rows."""
        return self._tables.rewrite("clients", lambda row: row[1] == str(i))

    def forget_newcomer(self, site: str) -> int:
        """Delete the figures of a site that joined as a newcomer; return the number of rows."""
        return self._tables.rewrite("newcomers", lambda row: row[1] == site)

    def add_newcomers(
        self, found: Found, digest: str, source: str = HELD_OUT, outcome: str = ""
    ) -> None:
        """Add how newcomers did, and what became of asking a site; those held out count once."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        done = read_rounds_done(self._database, self._path)
        rows = newcomer_rows((now, _to_printable(source), digest, done), found)
        self._tables.rewrite("newcomers", lambda row: row[1] == source == HELD_OUT, rows)
        if outcome:
            self._tables.rewrite("joins", more=[(now, done, source, outcome)])

    def close(self, status: str, reason: str = "") -> str:
        """Write how the run stands, close the store, and return the digest of the state."""
        try:
            progress, seconds = self.progress, round(sum(read_seconds(self._path)), 3)
            digest = digest_of(progress)
            self._write_summary(RunSummary(status, reason, progress.t, digest, seconds))
            return digest
        finally:
            self.release()

    def release(self) -> None:
        """Close the store without writing how the run stands."""
        self._database.close()

    def _write_summary(self, summary: RunSummary) -> None:
        """Write how the run stands, with what stays the same in it."""
        sample, clients = self._setting.evaluated, self._setting.task.clients
        summary = summary._replace(
            federation=self._about["federation"],
            isthmus=version("isthmus"),
            torch=version("torch"),
            keeps_best=self.best_models is not None,
            sample={} if sample is None else {"clients": len(sample), "of": clients},
            federated=self._setting.method.about().federated,
        )
        write_summary(self._path, summary)


def unpack_rows(data: bytes) -> TableRows:
    """Read the rows of a round that version 3 of the format kept in the database.

    A line of JSON has the columns by table and name; those of it that are null follow, packed in
    eight bytes for each number.
    """
    whole = zlib.decompress(data)
    start = whole.index(b"\n") + 1
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for table, stored in json.loads(whole[:start]).items():
        count = next(len(values) for values in stored.values() if values is not None)
        for name, values in stored.items():
            if values is None:
                stored[name] = np.frombuffer(whole, "<f8", count, start).tolist()
                start += 8 * count
        rows[table] = list(zip(*(stored[column.name] for column in TABLES[table]), strict=True))
    return rows


class BestModelEntry(NamedTuple):
    """Which model of a client is its best: after which round, its validation loss, its digest."""

    round: int
    loss: float
    model: str


class BestModels:
    """The personal model of each client that was best on its validation data.

    A model is stored under its digest, so that clients with the same model share it. Which model is
    a client's best is written with the round that brought it. Models that are no client's best are
    deleted at the next commit, also those that a killed process left behind.
    """

    def __init__(self, database: Database):
        self._database = database
        self._known: dict[int, BestModelEntry] = {}
        for key in database.keys(KEPT):
            entry = BestModelEntry(*json.loads(database.read(key) or b"[]"))
            self._known[int(key.removeprefix(KEPT))] = entry
        self._new: dict[int, BestModelEntry] = {}
        self._waiting: dict[bytes, bytes | None] = {}

    @property
    def known(self) -> Mapping[int, BestModelEntry]:
        """What each client's best is, of those that were evaluated."""
        return self._known

    def consider(self, round: int, i: int, loss: float, point: Point) -> None:
        """Keep the model of a client if its validation loss is the lowest so far."""
        if i in self._known and not loss < self._known[i].loss:
            return
        digest = tree.digest([point])
        key = MODEL + digest.encode()
        self._new[i] = BestModelEntry(round, loss, digest)
        if key not in self._waiting and key not in self._database:
            self._waiting[key] = tree.pack(point)
        if sum(len(packed or b"") for packed in self._waiting.values()) > TOGETHER:
            self._database.write(self._waiting)
            self._waiting = {}

    def flush(self) -> dict[bytes, bytes | None]:
        """Return what the round's transaction has to write; it counts as written then."""
        self._known |= self._new
        changes: dict[bytes, bytes | None] = dict(self._waiting)
        for i, entry in self._new.items():
            changes[KEPT + b"%012d" % i] = json.dumps(entry).encode()
        wanted = {MODEL + entry.model.encode() for entry in self._known.values()}
        changes |= {key: None for key in self._database.keys(MODEL) if key not in wanted}
        self._new, self._waiting = {}, {}
        return changes

    def read(self, i: int) -> Point:
        """Read the best model of a client."""
        if i not in self._known:
            raise IsthmusError(
                f"client {i} has no best model yet, since it was not evaluated; resume the run, or "
                "take --which last"
            )
        packed = self._database.read(MODEL + self._known[i].model.encode())
        blank = torch.empty(0)
        return tree.unpack(packed or b"", like=Point(blank, blank))


class StoredStates(Mapping[Any, Any]):
    """States in a store by the name of a tensor or the number of a client, read on access."""

    def __init__(
        self, database: Database, prefix: bytes, parse: type, like: Callable[[Any], State]
    ):
        self._database = database
        self._prefix = prefix
        self._parse = parse  # the text of a key
        self._like = like  # something of the shape of a state

    def __getitem__(self, name: Any) -> Any:
        packed = self._database.read(name_key(self._prefix, name))
        if packed is None:
            raise KeyError(name)
        return tree.unpack(packed, like=self._like(name))

    def __contains__(self, name: object) -> bool:
        return name_key(self._prefix, name) in self._database

    def __iter__(self) -> Iterator[Any]:
        keys = self._database.keys(self._prefix)
        return (self._parse(key.removeprefix(self._prefix).decode()) for key in keys)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def name_key(prefix: bytes, name: object) -> bytes:
    """Return the key of a state; keys of numbers are in their order."""
    return prefix + (f"{name:012}" if isinstance(name, int) else str(name)).encode()


def read_experiment(database: Database, path: Path) -> str:
    """Read the experiment of a run."""
    text: str = json.loads(_present(database.read(b"run"), path))["experiment"]
    return text


def read_rounds_done(database: Database, path: Path) -> int:
    """Read the number of rounds that are done."""
    return int(_present(database.read(b"progress"), path))


def apply_update(progress: Progress, step: RoundUpdate) -> Progress:
    """Return the state after a round, in memory."""
    own = {**progress.own, **step.changed}
    shelf = after(progress.shelf, step.shelf)
    return Progress(progress.t + 1, step.server, own, shelf, step.best)


def digest_of(progress: Progress) -> str:
    """Return the digest of a run's state: equal digests, equal bits."""
    return tree.digest(_states(progress))


def _states(progress: Progress) -> Iterator[State]:
    yield progress.server
    for i in sorted(progress.own):
        yield torch.tensor(i), progress.own[i]
    for name in sorted(progress.shelf):
        yield torch.tensor(list(name.encode())), progress.shelf[name]


def _to_printable(text: str) -> str:
    """Return a name on one line, whatever it holds."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@cache
def version(name: str) -> str:
    """Return a package's version; cached, as reading it takes as long as a short round."""
    return metadata.version(name)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("isthmus", "torch")}


def _present(value: bytes | None, path: Path) -> bytes:
    if value is None:
        raise IsthmusError(
            f"{path / STATE} is incomplete: the run never began; delete it and run again"
        )
    return value


def _compare_origins(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield which versions changed since a run began; other data or weights are an error."""
    if was["federation"] != now["federation"]:
        raise IsthmusError(
            f"the data have digest {now['federation']}, and the run was made with "
            f"{was['federation']}; name the folder of its data with --data-root"
        )
    # Another torch may draw other numbers.
    if was["torch"] == now["torch"] and was["start"] != now["start"]:
        raise IsthmusError(
            f"the model starts from {now['start']}, and the run's started from {was['start']}; "
            "pass the same model, and the same file of weights"
        )
    for name in _versions():
        if was[name] != now[name]:
            yield (
                f"begun with {name} {was[name]}, resumed with {now[name]}: "
                "the result may differ in its bits"
            )


def _is_unused(path: Path) -> bool:
    """Whether a directory holds nothing, or a run that was killed before it began."""
    names = {file.name for file in path.iterdir()}
    return names <= {STATE, LOCK} and (STATE not in names or is_blank(path / STATE))


def _refuse_existing(path: Path, experiment: str) -> None:
    if not path.exists() or (path.is_dir() and _is_unused(path)):
        return
    if not (path / STATE).is_file():
        raise IsthmusError(f"{path} is not empty; name another directory with --out")
    try:
        before = (path / "experiment.toml").read_text("utf-8", "replace")
    except OSError:
        before = experiment  # it was killed before it wrote them
    there, here = _settings(before), _settings(experiment)
    if there == here:
        raise IsthmusError(f"{path} holds this run already; continue with: isthmus resume {path}")
    changed = [
        f"{key} = {there.get(key)} there, {key} = {here.get(key)} here"
        for key in {**there, **here}
        if there.get(key) != here.get(key)
    ]
    raise IsthmusError(
        f"{path} holds another run ({'; '.join(changed[:3])}); name another directory with --out"
    )


def _settings(text: str) -> dict[str, Any]:
    """Read an experiment; what is no TOML has no settings."""
    try:
        return flatten(tomllib.loads(text))
    except (ValueError, RecursionError):
        return {}
