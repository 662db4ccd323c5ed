"""The rules by which a point of a path is chosen, each a value.

A new rule is one entry here: settings, clients, tables and reports read what they need from it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple


def _loss(sums: Any) -> Any:
    return sums.loss


def _errors(sums: Any) -> Any:
    return -sums.top1


class Rule(NamedTuple):
    """Which point of a path is taken: the first one of least cost on a part of the data."""

    sentence: str  # what reports say of it
    split: str | None = None  # the part of the data that is looked at; None: the midpoint is taken
    cost: Callable[[Any], Any] = _loss  # of a tally, or of figures: what is least at the point
    for_all: bool = False  # one point for all clients, of least mean cost

    @property
    def on_test(self) -> bool:
        """Whether it looks at test data: what is measured there afterwards is optimistic."""
        return self.split == "test"


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "validation": Rule("each client's point chosen on its own validation part", "validation"),
        "common": Rule(
            "one point for all clients, chosen on their validation parts",
            "validation",
            for_all=True,
        ),
        "fixed": Rule("the midpoint for all clients"),
        "oracle": Rule("each client's point chosen on its own TEST part", "test", _errors),
        "oracle-common": Rule(
            "one point for all clients, chosen on their TEST parts", "test", _errors, for_all=True
        ),
    }
)

if TYPE_CHECKING:
    Selection = str
else:
    Selection = Literal[*RULES]
