"""Data that lie at sites and never leave them: who the sites are, and what they agree on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from isthmus.data.arrays import Arrays
from isthmus.data.own.schema import Schema
from isthmus.errors import IsthmusError

SiteName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


@dataclass(frozen=True)
class Sites:
    """Data at sites: each is a client, and its data stay there; see isthmus serve."""

    names: tuple[SiteName, ...] = ()  # client 0 is the first
    schema: Schema | None = None  # as isthmus data schema writes it

    clients: ClassVar[int] = 0
    model: ClassVar[str] = "mlp"
    partition: ClassVar[str] = "natural"

    def load(self, root: Path, seed: int) -> Arrays:
        """Refuses: nobody but a site can read its data."""
        raise IsthmusError(
            "data sites lie at the sites and stay there; expected data that can be read here; run "
            "it with isthmus serve run, go on with isthmus serve resume, or try isthmus rehearse"
        )
