"""Pieces of HTML that the page's sections are made of; text from files is escaped."""

import html
import json
from collections.abc import Sequence

import plotly.graph_objects as go

from isthmus.records.reader import Run
from isthmus.report.figures import theme as figures
from isthmus.report.groups import Group
from isthmus.report.tables import summary as tables
from isthmus.report.tables.summary import MISSING

# The markers of figures, 10 wide and high around (17, 6).
MARKS = {
    "circle": "M12.5 6a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "square": "M13 2h8v8h-8z",
    "diamond": "M17 .5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
    "triangle-up": "M17 1l5 9h-10z",
    "x": "M13.5 1l3.5 3.5l3.5-3.5l1.5 1.5l-3.5 3.5l3.5 3.5l-1.5 1.5l-3.5-3.5l-3.5 3.5l-1.5-1.5"
    "l3.5-3.5l-3.5-3.5z",
    "star": "M17 .5l1.5 3.7l4 .3l-3 2.6l.9 3.9l-3.4-2.1l-3.4 2.1l.9-3.9l-3-2.6l4-.3z",
    "triangle-down": "M17 11l5-9h-10z",
    "pentagon": "M17 1l5 3.6l-1.9 5.9h-6.2l-1.9-5.9z",
    "cross": "M15.5 1h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "triangle-left": "M12 6l9-5v10z",
    "triangle-right": "M22 6l-9-5v10z",
    "hexagram": "M17 .5l1.6 2.8h3.2l-1.6 2.7l1.6 2.7h-3.2l-1.6 2.8l-1.6-2.8h-3.2l1.6-2.7l-1.6-2.7"
    "h3.2z",
    "hexagon": "M17 1l4.3 2.5v5l-4.3 2.5l-4.3-2.5v-5z",
}


def table(
    head: Sequence[str],
    lines: Sequence[Sequence[str]],
    caption: str,
    words: int | None = None,
    kind: str = "",
    said: bool = True,
) -> str:
    """Makes a table with a head, a caption and row heads."""

    def titled(i: int) -> str:
        return " class='words'" if i == words else ""

    columns = "".join(
        f'<th scope="col"{titled(i)}>{escaped(name)}</th>' for i, name in enumerate(head)
    )
    body = "".join(
        f'<tr><th scope="row">{escaped(line[0])}</th>'
        + "".join(
            f"<td{titled(i)}>{escaped(cell)}</td>" for i, cell in enumerate(line[1:], start=1)
        )
        + "</tr>"
        for line in lines
    )
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escaped(caption)}'>"
        f"<table class='{kind}'>"
        f"<caption class='{'caption' if said else 'unseen'}'>{escaped(caption)}</caption>"
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def folded(said: str, table: str) -> str:
    """Hides a table until it is asked for."""
    return f"<details><summary>{said}</summary><div class='card'>{table}</div></details>"


def views(
    figure: go.Figure,
    names: Sequence[str],
    group: str,
    switch: str = "views",
    said: str = "Show",
) -> str:
    """Makes the buttons that switch the views of figures; none where there is nothing to switch."""
    options = figure.layout.meta[switch]
    if len(options) < 2:
        return ""
    choices = "".join(
        f"<label><input type='radio' name='{group}' value='{option['name']}' "
        f"data-switch='{switch}' data-figures='{' '.join(names)}'{' checked' if i == 0 else ''}>"
        f"<span>{option['label']}</span></label>"
        for i, option in enumerate(options)
    )
    return f"<fieldset class='views'><legend class='unseen'>{said}</legend>{choices}</fieldset>"


def seeds(choices: Sequence[int], names: Sequence[str], group: str) -> str:
    """Makes the choice of a seed, for figures and for parts of their section; none for one seed."""
    if len(choices) < 2:
        return ""
    options = "".join(f"<option value='{seed}'>seed {seed}</option>" for seed in choices)
    return (
        f"<div class='controls'><label class='choice'>Runs of <select name='{group}' "
        f"data-switch='seeds' data-figures='{' '.join(names)}'>{options}</select></label></div>"
    )


def of_seed(seed: int, first: bool, tag: str, text: str) -> str:
    """Makes a part of a section that is seen while its seed is chosen."""
    return f"<{tag} data-seed='{seed}'{'' if first else ' hidden'}>{text}</{tag}>"


def legend(names: Sequence[str], groups: Sequence[Group], rows: Sequence[tables.Row]) -> str:
    """Makes the buttons that leave groups of runs out of figures."""
    styles = figures.styles([group.runs[0] for group in groups])
    buttons = "".join(
        f"<button type='button' aria-pressed='true' data-figures='{' '.join(names)}' "
        f"data-run='{i}'>{sign(style)}{escaped(row.label)}{dagger(row)}</button>"
        for i, (row, style) in enumerate(zip(rows, styles, strict=True))
    )
    return f"<div class='legend' role='group' aria-label='Methods shown'>{buttons}</div>"


def sign(style: figures.Style) -> str:
    """Draws a piece of a group's line with its marker."""
    tones = f"--light:{style.colour};--dark:{figures.dark_tones()[style.colour]}"
    dash = " ".join(f"{length:g}" for length in style.dash)
    return (
        f"<svg class='sign' style='{tones}' viewBox='0 0 34 12' aria-hidden='true'>"
        f"<path class='stroke' d='M1 6H33' stroke-dasharray='{dash}'></path>"
        f"<path class='mark' d='{MARKS[style.symbol]}'></path></svg>"
    )


def plot(name: str, height: int, said: str, attributes: str = "") -> str:
    """Makes the place of a figure."""
    return (
        f"<div class='plot' id='{name}' role='img' aria-label='{said}' "
        f"style='height:{height}px'{attributes}></div>"
    )


def footnote(rows: Sequence[tables.Row], tag: str = "span") -> str:
    """Explains the dagger, where one is used."""
    if not any(row.chosen_on_test for row in rows):
        return ""
    opening = "<br>" if tag == "span" else ""
    return f"{opening}<{tag} class='caption'>{tables.FOOTNOTE}</{tag}>"


def dagger(row: tables.Row) -> str:
    """Marks a number that was chosen on test data."""
    return tables.DAGGER if row.chosen_on_test else ""


def swatch(tone: str, kind: str = "swatch") -> str:
    """Makes a spot of a run's colour."""
    tones = f"--light:{tone};--dark:{figures.dark_tones()[tone]}"
    return f"<span class='{kind}' style='{tones}' aria-hidden='true'></span>"


def signed(points: float) -> str:
    """Prints a difference with its sign."""
    text = f"{points:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def text(run: Run, key: str) -> str:
    """Prints a setting."""
    value = run.settings.get(key, MISSING)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def listed(names: Sequence[str]) -> str:
    """Joins names: a, b and c."""
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def escaped(text: str) -> str:
    """Makes text from a file inert."""
    return html.escape(text)
