"""Holdings: which classes the clients hold."""

import numpy as np

from isthmus.report.figures.figure import Axis, Figure, HeatMap, Shade
from isthmus.report.figures.theme import SHOWN_AT_MOST
from isthmus.report.section import Report, SectionContent
from isthmus.run.record import RecordTable, labels


def show(report: Report) -> SectionContent | None:
    """Show which classes the clients of the first run hold."""
    federation = report.runs[0].federation
    clients, classes = federation.labels.shape
    if classes == 0 or not federation.labels.any():  # sites do not say what they hold
        return None
    few = int(np.median(np.sum(federation.labels > 0, axis=1)))
    first = f"The first {SHOWN_AT_MOST} of" if clients > SHOWN_AT_MOST else "All"
    values = {
        "about": f"Half of the clients hold at most {few} of the "
        f"{classes} classes, and between {federation.train.min():,} and "
        f"{federation.train.max():,} examples to train on.",
        "height": int(min(120 + 22 * classes, 460)),
        "label": "Share of each class by client",
        "caption": f"{first} {clients} clients of {labels(report.runs)[0]}; all of a client's "
        "examples (train, validation and test parts). The stronger the colour, the larger the "
        "class's share of what the client holds.",
    }
    return SectionContent(values, {"figure-holdings": build(federation)})


def build(federation: RecordTable) -> Figure:
    """Return which share of each client's examples belongs to which class."""
    counts = federation.labels[:SHOWN_AT_MOST]  # [N, C]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    classes = [str(c) for c in range(counts.shape[1])]
    cells = HeatMap(
        x=federation.client[:SHOWN_AT_MOST],
        y=classes,
        z=100 * shares.T,
        data=counts.T,
        shade=Shade("share, %", 0, 100),
        hover="<b>client %{x}</b>: %{customdata} examples of class %{y}<br>"
        "%{z:.3~g} % of what it holds",
    )
    x, y = Axis("client", grid=False), Axis("class", names=classes, grid=False, reversed=True)
    return Figure([cells], x, y)
