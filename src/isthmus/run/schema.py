"""Every column of a run's tables, stated once; docs/records.md explains them.

A new column is one entry here and, where its value is made, one value; the columns of metrics come
from isthmus.metrics.metric.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from isthmus.metrics.metric import METRICS

LARGEST = 1e200  # number of a record, so that nothing computed from it overflows


@dataclass(frozen=True)
class RecordColumn:
    """A column of a table."""

    name: str
    type: type  # int, float or str; tuple: numbers, separated by spaces
    format: str = ""  # of a number in the file; as many digits as it takes if there is none
    choices: tuple[str, ...] = ()  # the texts that it can hold; none: any
    limits: tuple[float, float] | None = None  # the least and the largest number it can hold
    may_be_empty: bool = False
    may_be_missing: bool = False  # of some runs, and of those that older versions made
    scalar: str = ""  # its name in trackers, where they get it

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest number that it can hold."""
        return self.limits or ((0, 2**53) if self.type is int else (-LARGEST, LARGEST))


OLDEST = ("top1", "top5", "loss", "ece", "mce")  # metrics that every run ever made has
SCORES = {
    name: RecordColumn(
        name,
        float,
        ".8g",
        limits=(0.0, min(metric.bounds[1], LARGEST)),
        may_be_missing=name not in OLDEST,
    )
    for name, metric in METRICS.items()
}
SHARE = (0.0, 1.0)
ROUND, EXAMPLES = RecordColumn("round", int), RecordColumn("n", int)
CLIENT = RecordColumn("client", str)
TIME = RecordColumn("time", str, may_be_missing=True)
SPLIT = RecordColumn("split", str, choices=("validation", "test"))
ANY_SPLIT = RecordColumn("split", str, choices=("train", "validation", "test"))
MEASURED = (ANY_SPLIT, EXAMPLES, SCORES["top1"], SCORES["loss"])  # after the run
AT = RecordColumn("at", tuple, ".6g", may_be_empty=True)

FEDERATION = (
    RecordColumn("client", int),
    RecordColumn("train", int),
    RecordColumn("validation", int),
    RecordColumn("test", int),
    RecordColumn("labels", tuple),
    RecordColumn("kind", str, may_be_missing=True),
    RecordColumn("evaluated", str, choices=("yes", "no"), may_be_missing=True),
    RecordColumn("name", str, may_be_missing=True),
)
ROUNDS = (
    ROUND,
    RecordColumn("lr", float, scalar="round/lr"),
    RecordColumn("asked", int),
    RecordColumn("answered", int, scalar="cost/clients that answered"),
    RecordColumn("down_bytes", int, scalar="cost/down bytes of the round"),
    RecordColumn("up_bytes", int, scalar="cost/up bytes of the round"),
    RecordColumn(
        "head_variance",
        float,
        ".8g",
        may_be_empty=True,
        may_be_missing=True,
        scalar="round/head variance",
    ),
    RecordColumn("train_seconds", float, ".6f", scalar="cost/train seconds of the round"),
    RecordColumn("evaluate_seconds", float, ".6f", scalar="cost/evaluate seconds of the round"),
)
CLIENTS = (
    ROUND,
    CLIENT,
    RecordColumn("model", str, choices=("personal", "shared", "path", "line", "simplex")),
    AT,
    SPLIT,
    EXAMPLES,
    *SCORES.values(),
)
RELIABILITY = (
    ROUND,
    RecordColumn("model", str, choices=("personal", "shared")),
    SPLIT,
    RecordColumn("bin", int, limits=(1, 15)),
    RecordColumn("lower", float, ".8g", limits=SHARE),
    RecordColumn("upper", float, ".8g", limits=SHARE),
    EXAMPLES,
    RecordColumn("top1", float, ".8g", limits=SHARE, may_be_empty=True),
    RecordColumn("confidence", float, ".8g", limits=SHARE, may_be_empty=True),
)
NOTES = (ROUND, RecordColumn("note", str))
CALLS = (
    ROUND,
    RecordColumn("call", int),
    RecordColumn("function", str),
    RecordColumn("client", int),
    RecordColumn("outcome", str),
)
NEWCOMERS = (
    TIME,
    RecordColumn("data", str, may_be_missing=True),
    RecordColumn("digest", str, may_be_missing=True),
    RecordColumn("round", int, may_be_missing=True),
    RecordColumn("shots", str),
    CLIENT,
    RecordColumn("model", str, choices=("newcomer", "shared")),
    *CLIENTS[3:],
)
JOINS = (RecordColumn("time", str), ROUND, RecordColumn("site", str), RecordColumn("outcome", str))
LANDSCAPE = (
    ROUND,
    RecordColumn("model", str, choices=("shared", "own", "personal", ""), may_be_empty=True),
    RecordColumn("of", str, may_be_empty=True),
    RecordColumn("x", float, ".8g"),
    RecordColumn("y", float, ".8g"),
    CLIENT,
    *MEASURED,
)
SIMPLEX = (
    ROUND,
    CLIENT,
    RecordColumn("at", tuple, ".6g"),
    *MEASURED,
)
CROSS = (
    ROUND,
    RecordColumn("which", str, choices=("last", "best")),
    RecordColumn("model", str, choices=("personal",)),
    RecordColumn("of", int),
    RecordColumn("client", int),
    *MEASURED,
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
    """Return the columns' names as they are in a file, whose calibration may be per batch."""
    return [
        METRICS[column.name].column(per_batch) if column.name in METRICS else column.name
        for column in columns
    ]
