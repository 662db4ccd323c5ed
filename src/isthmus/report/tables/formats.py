"""How tables, figures and captions print numbers and names, and the marks that they carry."""

import json
from collections.abc import Callable, Sequence
from math import isnan
from typing import Any, Literal, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from isthmus.metrics.metric import METRICS
from isthmus.report.statistics import Interval
from isthmus.run.record import EvaluationSample, RecordedRun

MISSING = "–"
DAGGER = "†"
FOOTNOTE = (
    f"{DAGGER} The point on the path was chosen on the same test data it is measured on; "
    "the number is optimistic, and methods without a path have no such choice."
)
PER_BATCH = "‡"
BATCHED = (
    f"{PER_BATCH} A mean over mini-batches, as the SuPerFed code computes it; larger than the same "
    "figure of a whole test part, and not comparable with it."
)


class Column(NamedTuple):
    """One column of a table of methods: its titles, and how a row's number prints."""

    title: str
    short: tuple[str, str]  # of two lines: what, and its unit
    cell: Callable[[Any], str]  # of a row
    group: str = ""  # of columns, on the page
    narrow: tuple[str, ...] = ()  # in a terminal of 80 columns; none: it is left out there
    narrow_bounds: bool = True  # whether there is room for those of an interval there


def fill_columns(
    columns: Sequence[Column], rows: Sequence[Any]
) -> tuple[list[Column], list[list[str]]]:
    """Return the columns that have a number for some row, and the cells of each row in them."""
    lines = [[column.cell(row) for column in columns] for row in rows]
    filled = [i for i in range(len(columns)) if any(line[i] != MISSING for line in lines)]
    return [columns[i] for i in filled], [[line[i] for i in filled] for line in lines]


def build_terminal_table(
    heads: Sequence[str],
    caption: str = "",
    *,
    chosen_on_test: bool = False,
    vertical: Literal["top", "bottom"] = "top",
    **options: Any,
) -> Table:
    """Build an empty table for a terminal of 80 columns: methods, then these columns.

    `vertical` is where a method's name stands beside numbers of two lines.
    """
    note = f"\n{FOOTNOTE}" if chosen_on_test else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption=Text(caption + note, style="dim") if caption else None,
        caption_justify="left",
        **options,
    )
    table.add_column("method", overflow="fold", min_width=11, max_width=22, vertical=vertical)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def format_metric(name: str, value: float | None) -> str:
    """Print a metric, a percentage without its sign.

    >>> format_metric("loss", 0.5), format_metric("ece", 0.5), format_metric("ece", None)
    ('0.500', '50.00', '–')
    """
    return MISSING if value is None else METRICS[name].text(value)


def format_percent(value: float | None) -> str:
    """Print a fraction as a percentage, without its sign.

    >>> format_percent(0.98765)
    '98.77'
    """
    return MISSING if value is None else f"{100 * value:.2f}"


def format_spread(value: float | None, deviation: float | None) -> str:
    """Print a mean and a deviation, both fractions, as percentages."""
    if value is None or deviation is None:
        return MISSING
    return f"{format_percent(value)} ± {format_percent(deviation)}"


def format_bounds(interval: Interval | None, printed: Callable[[float], str]) -> str:
    """Print the bounds of an interval behind its mean; nothing where there are none.

    >>> format_bounds(Interval(0.5, 0.4, 0.6), format_percent), format_bounds(None, str)
    (' [40.00, 60.00]', '')
    """
    if interval is None or isnan(interval.low):
        return ""
    return f" [{printed(interval.low)}, {printed(interval.high)}]".replace("+", "")


def describe_sample(sample: EvaluationSample) -> str:
    """Describe how many clients were evaluated, and of how many.

    >>> describe_sample(EvaluationSample(50, 1000))
    'a sample of 50 of 1,000 clients'
    """
    return f"a sample of {sample.clients:,} of {sample.of:,} clients"


def format_decimal(value: float | None) -> str:
    """Print a number such as a Gini coefficient."""
    return MISSING if value is None else f"{value:.3f}"


def format_points(fraction: float) -> str:
    """Print a difference of fractions in percentage points, with its sign.

    >>> format_points(0.0123), format_points(-0.5), format_points(-1e-9)
    ('+1.23', '−50.00', '0.00')
    """
    text = f"{100 * fraction:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def format_p(p: float) -> str:
    """Print a p-value.

    >>> format_p(0.0412), format_p(0.00002)
    ('0.041', '<0.001')
    """
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def format_bytes(value: float) -> str:
    """Print a number of bytes in powers of a thousand.

    >>> format_bytes(3_180_000)
    '3.18 MB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}"


def format_seconds(value: float) -> str:
    """Print a duration in seconds."""
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def format_setting(run: RecordedRun, key: str) -> str:
    """Print a setting of a run."""
    value = run.settings.get(key, MISSING)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def join_names(names: Sequence[str]) -> str:
    """Join names.

    >>> join_names(["a", "b", "c"])
    'a, b and c'
    """
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
