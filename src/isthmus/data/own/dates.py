"""Dates as people write them, as numbers: days since 1 January 1970, and their place in a cycle."""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

ISO = "iso"
ISO_FORM = re.compile(r"\d{4}-\d\d-\d\d([T ].+)?")  # of what ISO 8601 allows, what people write
FORMATS = (  # as datetime.strptime reads them
    *("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
EXAMPLES = {ISO: "2024-01-31"} | {
    form: datetime(2024, 1, 31).strftime(form) for form in FORMATS if "%B" not in form
}
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
MONDAY = 4.0  # the first after the origin, which was a Thursday
DAYS = "days"


def parse_date(text: str, form: str = ISO) -> float:
    """Gives the days since 1970, UTC; a moment without a time zone counts as UTC.

    >>> parse_date("1970-01-02"), parse_date("1970-01-01T12:00"), parse_date("3.1.1970", "%d.%m.%Y")
    (1.0, 0.5, 2.0)
    """
    text = text.strip()
    if form == ISO and not ISO_FORM.fullmatch(text):
        raise ValueError(f"{text!r} is no date in ISO form")
    moment = datetime.fromisoformat(text) if form == ISO else datetime.strptime(text, form)
    apart = (moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
    ahead = moment.utcoffset()
    return (apart - (ahead.total_seconds() if ahead else 0.0)) / 86_400


def find_formats(words: Sequence[str]) -> list[str]:
    """Lists the formats in which all words are dates, but for those that say the same.

    >>> find_formats(["31/01/2024", "01/02/2024"]), find_formats(["03/04/2024"])
    (['%d/%m/%Y'], ['%d/%m/%Y', '%m/%d/%Y'])
    """
    found: dict[tuple[float, ...], str] = {}
    for form in (ISO, *FORMATS):
        try:
            days = tuple(map(partial(parse_date, form=form), words))
        except ValueError:
            continue
        if days:
            found.setdefault(days, form)
    return list(found.values())


def make_part(days: NDArray[np.float64], part: str) -> NDArray[Any]:
    """Makes an input of days: these, or sine or cosine of their place in a year, week or day.

    >>> make_part(np.array([4.0, 11.0]), "cos week").tolist()  # two Mondays
    [1.0, 1.0]
    """
    if part == DAYS:
        return days
    curve, cycle = part.split()
    start = MONDAY if cycle == "week" else 0.0
    angle = 2 * np.pi * (((days - start) / CYCLES[cycle]) % 1)
    return np.sin(angle) if curve == "sin" else np.cos(angle)


def list_parts(cycles: Sequence[str]) -> tuple[str, ...]:
    """Names the inputs that a date becomes.

    >>> list_parts(["week"])
    ('days', 'sin week', 'cos week')
    """
    return (DAYS, *(f"{curve} {cycle}" for cycle in cycles for curve in ("sin", "cos")))
