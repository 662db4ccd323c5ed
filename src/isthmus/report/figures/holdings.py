"""Holdings: which classes the clients hold."""

import numpy as np
import plotly.graph_objects as go

from isthmus.report.figures.theme import (
    SHARES,
    SHOWN_AT_MOST,
    build_bar,
    build_layout,
    round_numbers,
)
from isthmus.report.section import Report, SectionContent
from isthmus.run.record import RecordTable, labels


def show(report: Report) -> SectionContent | None:
    """Shows which classes the clients of the first run hold."""
    federation = report.runs[0].federation
    clients, classes = federation.labels.shape
    if classes == 0 or not federation.labels.any():  # sites do not say what they hold
        return None
    few = int(np.median(np.sum(federation.labels > 0, axis=1)))
    first = f"The first {SHOWN_AT_MOST} of" if clients > SHOWN_AT_MOST else "All"
    values = {
        "about": f"Why one model does not fit all: half of the clients hold at most {few} of the "
        f"{classes} classes, and between {federation.train.min():,} and "
        f"{federation.train.max():,} examples to train on.",
        "height": int(min(120 + 22 * classes, 460)),
        "label": "Share of each class by client",
        "caption": f"{first} {clients} clients of {labels(report.runs)[0]}; all of a client's "
        "examples (train, validation and test parts). The stronger the colour, the larger the "
        "class's share of what the client holds.",
    }
    return SectionContent(values, {"figure-holdings": plot(federation)})


def plot(federation: RecordTable) -> go.Figure:
    """Draws which share of each client's examples belongs to which class."""
    counts = federation.labels[:SHOWN_AT_MOST]  # [N, C]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure = go.Figure(layout=build_layout())
    figure.add_heatmap(
        z=[round_numbers(100 * row, digits=3) for row in shares.T],
        x=federation.client[:SHOWN_AT_MOST].tolist(),
        y=list(range(counts.shape[1])),
        customdata=counts.T.tolist(),
        colorscale=SHARES,
        zmin=0,
        zmax=100,
        xgap=1,
        ygap=1,
        colorbar=build_bar("share, %", len=0.9),
        hovertemplate="<b>client %{x}</b>: %{customdata} examples of class %{y}<br>"
        "%{z:.3~g} % of what it holds<extra></extra>",
    )
    figure.update_xaxes(title_text="client", showgrid=False, zeroline=False)
    figure.update_yaxes(title_text="class", showgrid=False, zeroline=False, autorange="reversed")
    if counts.shape[1] <= 20:
        figure.update_yaxes(dtick=1)
    return figure
