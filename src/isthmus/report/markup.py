"""Pieces of HTML that the page's sections are made of; text from files is escaped."""

import html
import json
from collections.abc import Sequence

import plotly.graph_objects as go

from isthmus.report import figures, tables
from isthmus.report.records import Run
from isthmus.report.tables import MISSING


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


def views(figure: go.Figure, names: Sequence[str], group: str) -> str:
    """Makes the buttons that switch the views of figures."""
    choices = "".join(
        f"<label><input type='radio' name='{group}' value='{view['name']}' "
        f"data-figures='{' '.join(names)}'{' checked' if i == 0 else ''}>"
        f"<span>{view['label']}</span></label>"
        for i, view in enumerate(figure.layout.meta["views"])
    )
    return f"<fieldset class='views'><legend class='unseen'>Show</legend>{choices}</fieldset>"


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
