"""Branches: two networks whose logits are added, alone and together."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from isthmus.report.figures import lines, similarity
from isthmus.report.figures.theme import ACCURACY, LOSS, build_layout
from isthmus.report.section import Report, SectionContent
from isthmus.run.record import PathCurve, RecordedRun

VIEWS = (ACCURACY, LOSS)


def collect_branches(run: RecordedRun, metric: str) -> PathCurve | None:
    """Returns a metric of the shared network, of its sum with the own one, and of the own one.

    They lie at 0, 1/2 and 1. Clients whose own network is not trained yet are left out.
    """
    values = np.stack([run.values(metric, "path", at=at) for at in similarity.BRANCHES], axis=1)
    owner = ~np.isnan(values).any(axis=1)
    if not owner.any():
        return None
    client = run.federation.client[owner]
    return PathCurve(client, np.array([0, 0.5, 1]), values[owner], np.full(len(client), np.nan))


def show(report: Report) -> SectionContent | None:
    """Shows what two networks contribute to their sum, and by which similarity one is shared."""
    panels: list[dict[str, Any]] = []
    figures = {}
    for i, run in enumerate(report.runs):
        along = collect_branches(run, "top1")
        if along is None:
            continue
        name = f"figure-branches-{i}"
        figures[name] = plot(run, report.tones[i])
        panels.append(
            {
                "name": name,
                "tone": report.tones[i],
                "label": report.rows[i].label,
                "means": [f"{mean:.2f}" for mean in 100 * np.mean(along.values, axis=0)],
                "clients": len(along.client),
                "total": len(run.federation.client),
            }
        )
    if not panels:
        return None
    lines.align(list(figures.values()))
    alike = similarity.show(report)
    values = {
        "panels": panels,
        "names": list(figures),
        "lines": [[each["label"], str(each["clients"]), *each["means"]] for each in panels],
        "alike": alike.values["cards"],
    }
    return SectionContent(values, {**figures, **alike.figures})


def plot(run: RecordedRun, colour: str) -> go.Figure:
    """Draws the accuracy and loss of two networks whose logits are added, and of their sum."""
    result = go.Figure(layout=build_layout(VIEWS))
    for view in VIEWS:
        along = collect_branches(run, view.metric)
        assert along is not None  # there is something to draw
        shown = {"meta": {"view": view.metric}, "visible": view is VIEWS[0]}
        clients = lines.draw_clients(along, view, colour)
        if "hovertemplate" in clients:  # there is no λ here
            clients["hovertemplate"] = (
                "client %{customdata}: %{y:.4~g}" + view.unit + "<extra></extra>"
            )
        result.add_scatter(**clients, **shown)
        result.add_scatter(**lines.draw_mean(along, view, colour), **shown)
    result.update_xaxes(
        tickvals=[0, 0.5, 1],
        ticktext=["shared<br>alone", "sum", "own<br>alone"],
        range=[-0.06, 1.06],
    )
    return result
