"""The ranges that settings may take, as types: checked once, where an experiment is loaded."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

Share = Annotated[float, Field(ge=0, le=1)]
Radius = Annotated[float, Field(gt=0, le=2)]  # in L1, within a simplex
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
BelowHalf = Annotated[float, Field(gt=0, lt=0.5)]
LARGEST = 2**63 - 1  # integers of TOML
PositiveInt = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST)]
# Rounds, epochs, steps: more of them than anybody waits for are a slip of the keyboard.
Repeats = Annotated[int, Field(ge=1, le=1_000_000)]
RepeatsOrNone = Annotated[int, Field(ge=0, le=1_000_000)]
Vertices = Annotated[int, Field(ge=1, le=1000)]  # each is drawn and kept as a model's last layer
Head = Literal["last", "classifier"]
Calibration = Literal["split", "per-batch"]
Balance = Literal["none", "classes"]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    Field(min_length=1),
]


def count_share(share: float, n: int) -> int:
    """Count the whole things in a share of n; a product that falls short by a bit is not cut.

    >>> count_share(0.29, 100), 0.29 * 100
    (29, 28.999999999999996)
    """
    return int(round(share * n, 9))
