"""What a server and its sites agree on beside messages: who carries them, waits, events.

Nothing here loads torch.
"""

import datetime as dt
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isthmus.errors import IsthmusError
from isthmus.system.files import append_text, write_text
from isthmus_sites.folders import ServerFolder

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


class SiteAnswer(NamedTuple):
    """What became of a message to a site."""

    site: str
    message: bytes | None  # None: it did not answer
    why: str = ""  # it did not: absent, late, failed, ...


class Transport(Protocol):
    """Sends messages to sites and brings their answers."""

    @property
    def sites(self) -> Collection[str]:
        """Those that are there, whether or not they are clients of the run."""
        ...

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Sends each site its message; yields answers as they come, for at most so long.

        Yields None at least every tenth of a second, so that who asks can look at a clock. Every
        site is answered for: also one that is absent, or that did not answer in time. Who stops
        asking before closes the iterator; answers that come later are dropped.
        """
        ...


class Answerer(Protocol):
    """A site, as a transport sees it."""

    def answer(self, message: bytes) -> bytes:
        """Answers a message; a message that is refused is answered too, and nothing is raised."""
        ...


Seconds = Annotated[float, Field(gt=0, le=30 * 86400)]


class WaitLimits(NamedTuple):
    """How long a server waits for sites."""

    quorum: float = 1.0  # the share of those asked that are waited for, up to the deadline
    deadline: float = 7200.0  # seconds that a call may take
    grace: float = 30.0  # seconds for the others, once a quorum has answered
    least: int = 3  # sites over which figures are summed that are not to be told apart


class ServePlan(BaseModel):
    """An experiment, and how long its sites are waited for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str  # its TOML, complete
    quorum: Annotated[float, Field(gt=0, le=1)] = 1.0
    deadline: Seconds = 7200.0
    grace: Seconds = 30.0
    least: Annotated[int, Field(ge=2)] = 3  # sites whose figures may be told in a sum
    newcomers: bool = True  # other sites that were admitted may join, to receive a model

    @property
    def names(self) -> tuple[str, ...]:
        """The sites, in the order of their numbers in the run."""
        return tuple(tomllib.loads(self.experiment)["data"]["names"])

    @property
    def limits(self) -> WaitLimits:
        """How long it waits."""
        return WaitLimits(self.quorum, self.deadline, self.grace, self.least)

    def save(self, folder: ServerFolder) -> None:
        """Writes it into the server's folder."""
        write_text(folder.plan, tomli_w.dumps(self.model_dump()))

    @classmethod
    def load(cls, folder: ServerFolder) -> "ServePlan":
        """Reads what `save` wrote."""
        try:
            plan = cls(**tomllib.loads(folder.plan.read_text("utf-8")))
            if not plan.names:
                raise ValueError("it names no sites")
            return plan
        except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
            raise IsthmusError(
                f"{folder.plan} cannot be used ({str(error).splitlines()[0]}); expected what "
                "isthmus serve run writes; call it again"
            ) from None


JOINED = "newcomer"  # what the server's job tells of newcomers


def write_event(path: Path, event: str, **facts: Any) -> None:
    """Adds an event to a file."""
    at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    append_text(path, json.dumps({"at": at, "event": event, **facts}) + "\n")


def read_events(path: Path, start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Reads whole lines from a place in a file on; gives the place to go on from."""
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
