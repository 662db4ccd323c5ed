"""What a server and its sites agree on besides messages: how calls end, waits, events.

Nothing here loads torch.
"""

import datetime as dt
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment
from isthmus.system.files import append_text, write_text
from isthmus_sites.folders import ServerFolder

JOINED = "newcomer"  # the event that a newcomer was asked to join
Seconds = Annotated[float, Field(gt=0, le=30 * 86400)]

# Why a site refuses a call, by the code that it sends and logs.
REFUSALS = {
    "message": "the message was damaged, too large or of another version",
    "version": "it has another version of isthmus",
    "agreement": "it did not agree to this experiment",
    "client": "it is another client",
    "function": "the method does not call such a function",
    "form": "tensors of other shapes, or numbers that are not finite",
    "disclosure": "it did not agree to disclose this",
    "floor": "it has too few examples, of all or of a class",
    "scales": "it was told other scales before",
    "state": "it does not hold the state that the server counts on",
    "round": "it has answered a later round",
    "failed": "its computation failed",
}
# How a call ends, by the code that is recorded; what stands before a colon is counted.
OUTCOMES = {
    "answered": "answered",
    "private": "its figures are only for sums with those of other sites",
    "late": "late",
    "absent": "absent",
    "failed": "its process failed",
    "failed:message": "its answer was damaged, too large or of another version",
    "failed:call": "it answered another call",
    "failed:form": "its answer had tensors of other shapes, or numbers that are not finite",
    "refused:unknown": "it refused for a reason that this version does not know",
    **{f"refused:{code}": f"it refused: {text}" for code, text in REFUSALS.items()},
}
KINDS = ("answered", "late", "absent", "refused", "failed", "private")
# What runs recorded before there were codes.
CODES = {text: code for code, text in OUTCOMES.items()}
CODES |= {f"its figures are for sums of {n} sites or more": "private" for n in range(2, 100)}


def count_as(outcome: str) -> str:
    """Return the kind of an outcome.

    >>> count_as("late"), count_as("refused:round"), count_as("odd")
    ('late', 'refused', 'failed')
    >>> count_as("it refused: it has answered a later round")
    'refused'
    """
    kind = CODES.get(outcome, outcome).partition(":")[0]
    return kind if kind in KINDS else "failed"


def describe_outcome(outcome: str) -> str:
    """Return an outcome in words."""
    return OUTCOMES.get(outcome, outcome)


class SiteAnswer(NamedTuple):
    """What became of a message to a site."""

    site: str
    message: bytes | None  # None: it did not answer
    why: str = ""  # then: one of `OUTCOMES`


class Transport(Protocol):
    """Sends messages to sites and brings their answers."""

    @property
    def sites(self) -> Collection[str]:
        """The connected sites, whether or not they are clients of the run."""
        ...

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Send each site its message; yield answers as they come, for at most so many seconds.

        Yields None at least every tenth of a second, so that the caller can look at a clock. Every
        site gets a result, also one that is absent or did not answer in time. A caller that stops
        early closes the iterator; answers that come later are dropped.
        """
        ...


class ServePlan(BaseModel):
    """An experiment, and how long its sites are waited for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str  # its TOML, complete
    quorum: Annotated[float, Field(gt=0, le=1)] = 1.0  # fraction waited for up to the deadline
    deadline: Seconds = 7200.0  # of a call
    grace: Seconds = 30.0  # for the others, once a quorum has answered
    least: Annotated[int, Field(ge=2)] = 3  # sites whose private figures may be added up
    newcomers: bool = True  # other admitted sites may join, to receive a model

    @cached_property
    def study(self) -> Experiment:
        """The experiment."""
        return Experiment.parse(self.experiment)

    @property
    def names(self) -> tuple[str, ...]:
        """The sites, in the order of their numbers in the run."""
        return tuple(self.study.data["names"])

    def save(self, folder: ServerFolder) -> None:
        """Write the plan into the server's folder."""
        write_text(folder.plan, tomli_w.dumps(self.model_dump()))

    @classmethod
    def load(cls, folder: ServerFolder) -> "ServePlan":
        """Read the plan of a server's folder."""
        try:
            plan = cls(**tomllib.loads(folder.plan.read_text("utf-8")))
            if not plan.names:
                raise ValueError("it names no sites")
            return plan
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            raise IsthmusError(
                f"{folder.plan} cannot be used ({str(error).splitlines()[0]}); write it "
                "with `isthmus serve run`"
            ) from None


def write_event(path: Path, event: str, **facts: Any) -> None:
    """Append an event to a file."""
    at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    append_text(path, json.dumps({"at": at, "event": event, **facts}) + "\n")


def read_events(path: Path, start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the events that follow a position in a file, and the position after them."""
    if not path.exists():
        return [], start
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    rows = []
    for line in whole.splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # the disk was full
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, start + len(whole)
