"""What a server runs, and how long it waits for sites; to read it takes no torch."""

import tomllib
from typing import Annotated, NamedTuple

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isthmus.errors import IsthmusError
from isthmus.system.files import write_text
from isthmus_sites.folders import ServerFolder

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
