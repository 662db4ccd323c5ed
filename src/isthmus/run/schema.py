"""Every column of a run's tables, stated once: name, type, unit, how it is written, what it means.

What writes the tables, what reads them and docs/records.md follow these values. A new column is one
entry here and, where its value is made, one value; the columns of metrics come from
isthmus.metrics.metric.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from isthmus.metrics.metric import METRICS

LARGEST = 1e200  # number of a record, so that nothing computed from it overflows


@dataclass(frozen=True)
class RecordColumn:
    """A column of a table."""

    name: str
    type: type  # int, float or str; tuple: numbers, separated by spaces
    meaning: str
    unit: str = ""  # or the values it takes
    values: str = ""  # what docs/records.md says in place of the type
    format: str = ""  # of a number in the file; as many digits as it takes if there is none
    may_be_empty: bool = False
    may_be_missing: bool = False  # of some runs, and of those that older versions made
    scalar: str = ""  # its name in trackers, where they get it

    @property
    def type_and_unit(self) -> str:
        """What docs/records.md says of its values."""
        types = {int: "integer", float: "number", str: "text", tuple: "numbers"}
        parts = [self.values or types[self.type], self.unit]
        parts += ["or empty"] if self.may_be_empty else []
        return ", ".join(part for part in parts if part)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number that it can hold."""
        least, to, most = self.unit.partition(" to ")
        if to:
            return float(least), float(most)
        return (0, 2**53) if self.type is int else (-LARGEST, LARGEST)

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that it can hold; none where it can hold any."""
        if re.sub(r"`\w+`|,| or | ", "", self.values):
            return ()
        return (*re.findall(r"`(\w+)`", self.values), *([""] if self.may_be_empty else []))


ROUND = RecordColumn("round", int, "the round after which it was measured, counted from 1")
CLIENT = RecordColumn("client", str, "whose data it was measured on", values="integer or `server`")
SPLIT = RecordColumn("split", str, "which part of the data", values="`validation` or `test`")
EXAMPLES = RecordColumn("n", int, "examples in that part")
DONE = RecordColumn("round", int, "rounds that were done when it was measured")
ANY_SPLIT = RecordColumn(
    "split",
    str,
    "which part of them; the server has a test set only",
    values="`train`, `validation` or `test`",
)
OLDEST = ("top1", "top5", "loss", "ece", "mce")  # metrics that every run ever made has
SCORES = {
    metric.name: RecordColumn(
        metric.name,
        float,
        metric.meaning,
        metric.range,
        format=".8g",
        may_be_missing=metric.name not in OLDEST,
    )
    for metric in METRICS.values()
}

FEDERATION = (
    RecordColumn("client", int, "the client's number, from 0"),
    RecordColumn("train", int, "examples it trains on"),
    RecordColumn("validation", int, "examples it chooses on"),
    RecordColumn("test", int, "examples it is tested on"),
    RecordColumn(
        "labels",
        tuple,
        "its examples of class 0, 1, ..., over all three parts",
        values="integers, separated by spaces",
    ),
    RecordColumn(
        "kind",
        str,
        "only where clients are of several kinds, as in FedSimSup-TCL: its second network",
        may_be_missing=True,
    ),
    RecordColumn(
        "evaluated",
        str,
        "only where `eval_sample` leaves clients out: whether this one is in the sample",
        values="`yes` or `no`",
        may_be_missing=True,
    ),
    RecordColumn(
        "name",
        str,
        "the client's name; the column is there only where clients have names",
        may_be_missing=True,
    ),
)
ROUNDS = (
    RecordColumn("round", int, "counted from 1"),
    RecordColumn("lr", float, "the learning rate of that round", scalar="round/lr"),
    RecordColumn("asked", int, "clients that were asked to compute"),
    RecordColumn(
        "answered",
        int,
        "clients whose reply arrived; with the bundled engines, all of them",
        scalar="cost/clients that answered",
    ),
    RecordColumn(
        "down_bytes",
        int,
        "sum over clients of what the server sent",
        "bytes",
        scalar="cost/down bytes of the round",
    ),
    RecordColumn(
        "up_bytes",
        int,
        "sum over clients of what they sent back",
        "bytes",
        scalar="cost/up bytes of the round",
    ),
    RecordColumn(
        "head_variance",
        float,
        "total variance of the last layers that came back, see "
        "[metrics.md](metrics.md#variance-of-the-last-layer)",
        format=".8g",
        may_be_empty=True,
        may_be_missing=True,
        scalar="round/head variance",
    ),
    RecordColumn(
        "train_seconds",
        float,
        "wall-clock time of the round without evaluation",
        "seconds",
        format=".6f",
        scalar="cost/train seconds of the round",
    ),
    RecordColumn(
        "evaluate_seconds",
        float,
        "wall-clock time of the evaluation after it; 0 if there was none",
        "seconds",
        format=".6f",
        scalar="cost/evaluate seconds of the round",
    ),
)
CLIENTS = (
    ROUND,
    CLIENT,
    RecordColumn(
        "model", str, "which model", values="`personal`, `shared`, `path`, `line` or `simplex`"
    ),
    RecordColumn(
        "at",
        tuple,
        "where on its path, or in its simplex, the model lies",
        values="numbers, separated by spaces",
        format=".6g",
        may_be_empty=True,
    ),
    SPLIT,
    EXAMPLES,
    *SCORES.values(),
)
RELIABILITY = (
    ROUND,
    RecordColumn("model", str, "which model", values="`personal` or `shared`"),
    RecordColumn(
        "split",
        str,
        "which part of the data, of all clients together",
        values="`validation` or `test`",
    ),
    RecordColumn("bin", int, "which bin of confidence", "1 to 15"),
    RecordColumn("lower", float, "its lower edge, at which it is open", "0 to 1", format=".8g"),
    RecordColumn("upper", float, "its upper edge, at which it is closed", "0 to 1", format=".8g"),
    RecordColumn("n", int, "examples whose confidence falls into it"),
    RecordColumn(
        "top1",
        float,
        "share of them that is classified rightly",
        "0 to 1",
        format=".8g",
        may_be_empty=True,
    ),
    RecordColumn(
        "confidence", float, "their mean confidence", "0 to 1", format=".8g", may_be_empty=True
    ),
)
NOTES = (
    RecordColumn("round", int, "0 for the division of the data, else the round it is about"),
    RecordColumn("note", str, "what the partition relaxed, or what the method said"),
)
CALLS = (
    replace(ROUND, meaning="the round of the call, counted from 1"),
    RecordColumn("call", int, "which call of its round, counted from 1"),
    RecordColumn("function", str, "what was asked for: a function of the method, or an evaluation"),
    RecordColumn("client", int, "who was asked"),
    RecordColumn("outcome", str, "`answered`, or why there is no answer"),
)
NEWCOMERS = (
    RecordColumn("time", str, "when they joined", values="date and time", may_be_missing=True),
    RecordColumn(
        "data",
        str,
        "the file or directory that has their data; `held_out`: the run's own; or a site's name",
        may_be_missing=True,
    ),
    RecordColumn("digest", str, "digest of their data, as divided", may_be_missing=True),
    replace(DONE, meaning="rounds that were done when they joined", may_be_missing=True),
    RecordColumn(
        "shots",
        str,
        "how many examples each newcomer trained on at most",
        values="integer or `all`",
    ),
    CLIENT,
    RecordColumn("model", str, "which model", values="`newcomer` or `shared`"),
    *CLIENTS[3:],
)
JOINS = (
    RecordColumn("time", str, "when it was asked", values="date and time"),
    replace(DONE, meaning="rounds that were done then"),
    RecordColumn("site", str, "which site that is no client of the run"),
    RecordColumn("outcome", str, "`answered`: it has a model of its own; or why not"),
)
LANDSCAPE = (
    DONE,
    RecordColumn(
        "model",
        str,
        "a marked model; empty: a point of the grid",
        values="`shared`, `own`, `personal`",
        may_be_empty=True,
    ),
    RecordColumn(
        "of",
        str,
        "whose: a client's number; for `shared` the other run's directory, or empty for this run's",
        values="integer, a name",
        may_be_empty=True,
    ),
    RecordColumn(
        "x", float, "place in the plane, in units of distance between parameters", format=".8g"
    ),
    RecordColumn("y", float, "the same, in the other direction", format=".8g"),
    CLIENT,
    ANY_SPLIT,
    EXAMPLES,
    SCORES["top1"],
    SCORES["loss"],
)
SIMPLEX = (
    DONE,
    CLIENT,
    RecordColumn(
        "at",
        tuple,
        "the V coordinates of a point",
        values="numbers, separated by spaces",
        format=".6g",
    ),
    ANY_SPLIT,
    EXAMPLES,
    SCORES["top1"],
    SCORES["loss"],
)
CROSS = (
    replace(DONE, meaning="the round after which the model is"),
    RecordColumn(
        "which",
        str,
        "of a client's models: the last, or the one that was best on its validation data",
        values="`last` or `best`",
    ),
    RecordColumn("model", str, "which model", values="`personal`"),
    RecordColumn("of", int, "whose model it is: a client's number"),
    replace(CLIENT, type=int, values=""),
    replace(ANY_SPLIT, meaning="which part of them"),
    EXAMPLES,
    SCORES["top1"],
    SCORES["loss"],
)
TABLES: Mapping[str, tuple[RecordColumn, ...]] = MappingProxyType(
    {
        "federation": FEDERATION,
        "rounds": ROUNDS,
        "clients": CLIENTS,
        "reliability": RELIABILITY,
        "notes": NOTES,
        "calls": CALLS,
        "newcomers": NEWCOMERS,
        "joins": JOINS,
        "landscape": LANDSCAPE,
        "simplex": SIMPLEX,
        "cross": CROSS,
    }
)


def names(columns: Sequence[RecordColumn], per_batch: bool = False) -> list[str]:
    """Names the columns as they stand in a file, whose calibration may be per batch."""
    return [
        METRICS[column.name].column(per_batch) if column.name in METRICS else column.name
        for column in columns
    ]


def markdown(columns: Sequence[RecordColumn]) -> Iterator[str]:
    """Writes the table of columns that docs/records.md shows."""
    yield "| column | type, unit | meaning |"
    yield "|---|---|---|"
    for column in columns:
        yield f"| `{column.name}` | {column.type_and_unit} | {column.meaning} |"
