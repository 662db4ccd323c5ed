"""Data at sites: who the sites are, and what the data of all of them have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NotRequired

import numpy as np
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from isthmus.data.arrays import MEDIAN, SUMS, Arrays, Column
from isthmus.errors import IsthmusError

KINDS = "^(float(16|32|64)|u?int(8|16|32|64))$"  # of numbers, as arrays hold them

Axis = Annotated[int, Field(ge=1, le=2**31)]


@with_config(ConfigDict(extra="forbid"))
class InputTable(TypedDict):
    """One input of a table: a number and how it is scaled, or a word that a cell may say."""

    name: str
    category: NotRequired[str]
    mean: NotRequired[float]
    std: NotRequired[Annotated[float, Field(gt=0)]]
    part: NotRequired[str]
    format: NotRequired[str]
    missing: NotRequired[Literal["refuse", "mean", "median"]]
    fill: NotRequired[float]
    scaled: NotRequired[bool]
    missing_values: NotRequired[list[str]]


@with_config(ConfigDict(extra="forbid"))
class Schema(TypedDict):
    """What an input is, and what its classes are."""

    shape: list[Axis]
    classes: Annotated[int, Field(ge=2, le=2**31)]
    labels: NotRequired[list[str]]
    numbers: NotRequired[Annotated[str, Field(pattern=KINDS)]]  # of the inputs; float32
    scale: NotRequired[Annotated[float, Field(gt=0)]]
    mean: NotRequired[list[float]]
    std: NotRequired[list[Annotated[float, Field(gt=0)]]]
    tokens: NotRequired[bool]
    columns: NotRequired[list[InputTable]]
    scaled_by: NotRequired[Literal["sums", "client"]]  # by what clients train on; else as stated


def describe(arrays: Arrays) -> Schema:
    """Describe what all examples of a data set have in common.

    >>> x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 1])
    >>> describe(Arrays(x, y, x[:0], y[:0], classes=3))
    {'shape': [3], 'classes': 3, 'numbers': 'float32'}
    """
    table: dict[str, Any] = {
        "shape": list(arrays.x.shape[1:]),
        "classes": arrays.classes,
        "labels": list(arrays.labels),
        "numbers": str(arrays.x.dtype),
        "scale": arrays.scale if arrays.scale != 1.0 else None,
        "mean": list(arrays.mean),
        "std": list(arrays.std),
        "tokens": arrays.tokens or None,
        "columns": [_describe_column(column) for column in arrays.columns],
        "scaled_by": arrays.scaled_by or None,
    }
    return {key: value for key, value in table.items() if value not in (None, [])}  # type: ignore[return-value]


def _describe_column(column: Column) -> InputTable:
    usual = Column(column.name, None)._asdict()
    always = {"name", "category"} | (set() if column.category is not None else {"mean", "std"})
    given = {key: value for key, value in column._asdict().items() if value not in (None, ())}
    if column.missing_values:
        given["missing_values"] = list(column.missing_values)
    return {k: v for k, v in given.items() if k in always or v != usual[k]}  # type: ignore[return-value]


def check_deployable_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that sites cannot follow without showing each other their rows."""
    columns = schema.get("columns", ())
    wanting = next((each["name"] for each in columns if each.get("missing") == MEDIAN), None)
    if wanting is not None and schema.get("scaled_by") == SUMS:
        raise IsthmusError(
            f"column {wanting!r} is filled by its median, which sums over sites do not show; set "
            "missing to mean or indicator, or standardise=client for each site's own"
        )


def make_blank(schema: Mapping[str, Any]) -> Arrays:
    """Return the data set that a schema describes, without an example.

    >>> make_blank({"shape": [3], "classes": 2}).x.shape
    (0, 3)
    """
    x = np.zeros((0, *schema["shape"]), schema.get("numbers", "float32"))
    y = np.zeros(0, np.int64)
    columns = (Column(**{"category": None, **each}) for each in schema.get("columns", ()))
    return Arrays(
        *(x, y, x, y),
        classes=schema["classes"],
        scale=schema.get("scale", 1.0),
        mean=tuple(schema.get("mean", ())),
        std=tuple(schema.get("std", ())),
        tokens=schema.get("tokens", False),
        labels=tuple(schema.get("labels", ())),
        columns=tuple(columns),
        scaled_by=schema.get("scaled_by", ""),
    )


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
        """Refuse: only a site can read its data."""
        raise IsthmusError(
            "data sites lie at the sites and stay there; run it with isthmus serve run, continue "
            "with isthmus serve resume, or try isthmus rehearse"
        )
