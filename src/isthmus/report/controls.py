"""Controls with which a reader explores what was measured: a slider, lists to choose from.

A control names its figures. The first of them holds, in `layout.meta["tables"]`, what changes: for
each table one entry per choice. `trace.meta["from"]` says which table an attribute of a trace comes
from, and the table "said" what the choice is in words. Nothing is computed in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from isthmus.report.figures.theme import View
from isthmus.report.markup import escaped


def explored(figure: go.Figure, tables: Mapping[str, Sequence[Any]]) -> None:
    """Gives a figure the tables that a control takes its data from."""
    figure.layout.meta = {**(figure.layout.meta or {}), "tables": dict(tables)}


def slider(name: str, figures: Iterable[str], label: str, said: Sequence[str], start: int) -> str:
    """Makes a slider over places that were measured, one step each."""
    return (
        f"<div class='slider'><label for='{name}'>{label}</label>"
        f"<input type='range' id='{name}' min='0' max='{len(said) - 1}' step='1' value='{start}' "
        f"autocomplete='off' aria-valuetext='{escaped(said[start])}' {_moving(name, figures)}>"
        f"{_output(name, said[start])}</div>"
    )


def choice(name: str, figures: Iterable[str], label: str, options: Sequence[str], said: str) -> str:
    """Makes a list of what figures may be about; what is chosen is said in words beside it."""
    listed = "".join(
        f"<option value='{i}'>{escaped(each)}</option>" for i, each in enumerate(options)
    )
    return (
        f"<label class='choice'>{label} <select id='{name}' autocomplete='off' "
        f"{_moving(name, figures)}>{listed}</select></label>{_output(name, said)}"
    )


def panels(name: str, label: str, parts: Sequence[tuple[str, str]]) -> str:
    """Shows one of several parts, named (title, text); a list chooses which, if there are more."""
    options, text = "", ""
    for i, (title, part) in enumerate(parts):
        options += f"<option value='{name}-{i}'>{escaped(title)}</option>"
        text += f"<div id='{name}-{i}'{' hidden' if i else ''}>{part}</div>"
    if len(parts) < 2:
        return text
    return (
        f"<div class='controls'><label class='choice'>{label} <select id='{name}' "
        f"autocomplete='off' data-shows>{options}</select></label></div>{text}"
    )


def bar_below(view: View) -> dict[str, Any]:
    """Gives a scale of colours that lies below its figure, where a phone has room."""
    return {
        "title": {"text": view.axis, "side": "bottom", "font": {"size": 12}},
        "orientation": "h",
        "y": -0.02,
        "yanchor": "top",
        "thickness": 10,
        "outlinewidth": 0,
        "len": 0.9,
    }


def _moving(name: str, figures: Iterable[str]) -> str:
    return f"data-moves='{' '.join(figures)}' data-says='{name}-said'"


def _output(name: str, said: str) -> str:
    # The control itself says it aloud.
    return f"<output id='{name}-said' for='{name}' aria-live='off'>{escaped(said)}</output>"
