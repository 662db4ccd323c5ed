"""What a user should know of a method before choosing it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class About(NamedTuple):
    """The facts that `isthmus list methods` prints of a method."""

    family: str  # what the personal model is made of
    down: str  # what crosses the wire at each participation; w is a whole model
    up: str
    home: str = "nothing"  # what a client keeps between rounds and never sends
    newcomer: str = "at once"  # when a client that took part in no round has a model
    calls: Mapping[str, str] = MappingProxyType({"local": ""})  # functions of clients, and below
    everybody: str = ""  # when all clients have to answer, if ever
    federated: bool = True  # whether data stay with their clients; if not, it is a bound

    @property
    def discloses(self) -> str:
        """What the server learns of a client's data besides `up`, from any of its functions."""
        return ", and ".join(filter(None, self.calls.values()))
