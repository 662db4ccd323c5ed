"""Records as figures: top-1 over rounds and along the path, which is what they keep of it.

A record has means over clients. As a run it has that mean for every client, so that figures of
means come out as those of the run itself; figures of single clients cannot be drawn.
"""

import base64
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.errors import IsthmusError, nearest
from isthmus.experiment.settings import Experiment
from isthmus.metrics.metric import METRICS
from isthmus.run.record import RecordedRun, RunSummary, from_rows
from isthmus_papers.plan import list_experiments
from isthmus_papers.recipe import Recipe, TableCell
from isthmus_papers.record import RunRecord, read
from isthmus_papers.verdict import Records

# What can be drawn, by the names of isthmus figure, and what it shows.
DRAWN = {
    "rounds": "top-1 of personal models on the clients' own test parts, mean over clients",
    "path": "top-1 from the shared model (λ = 0) to the clients' own (λ = 1), mean over clients; "
    "below, where their personal models lie",
}
METRIC = "top1"
WIDTH = 5.0  # inches


class Picture(NamedTuple):
    """A figure of a column: what was run of it, drawn."""

    recipe: str
    column: str
    figure: str
    records: dict[str, RunRecord]  # by identity
    labels: dict[str, str]  # what the rows of these records are called

    @property
    def title(self) -> str:
        """What it shows."""
        return f"{self.column}: {DRAWN[self.figure]}"

    @property
    def name(self) -> str:
        """Name its file, by what is drawn too: an old one has another name."""
        drawn = [[self.labels[n], r.digest, r.curve, r.path] for n, r in self.records.items()]
        text = json.dumps(drawn, default=dict)
        words = f"{self.recipe} {self.column} {self.figure}".lower()
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return "-".join([*re.findall(r"[a-z0-9.]+", words), digest])

    def save(self, place: Path) -> None:
        """Draw it; needs matplotlib."""
        from isthmus.report.figures.printing import save

        runs = [
            record_run(each, Path(name))._replace(label=self.labels[name])
            for name, each in self.records.items()
        ]
        save(runs, self.figure, place, width=WIDTH)


def list_pictures(recipe: Recipe, cells: Sequence[TableCell], records: Records) -> list[Picture]:
    """List the figures of the columns of a recipe of which enough was run."""
    columns: dict[str, dict[str, RunRecord]] = {}
    labels: dict[str, str] = {}
    for cell in cells:
        for name in list_experiments(cell, "paper"):
            known = records.get(name)
            if known is not None and known.curve:
                columns.setdefault(cell.column, {})[name] = known
                labels.setdefault(name, cell.label or cell.method)
    return [
        Picture(recipe.name, column, figure, found, {name: labels[name] for name in found})
        for column, found in columns.items()
        for figure in recipe.figures
        if (any(each.path for each in found.values()) if figure == "path" else len(found) > 1)
    ]


def embed_pictures(
    recipe: Recipe, cells: Sequence[TableCell], records: Records
) -> list[tuple[str, str]]:
    """Draw the figures of a recipe for a page that stands alone: source and title.

    There are none where matplotlib, an extra, is missing.
    """
    if find_spec("matplotlib") is None:
        return []
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "figure.svg"
        for picture in list_pictures(recipe, cells, records):
            picture.save(place)
            text = base64.b64encode(place.read_bytes()).decode()
            found.append((f"data:image/svg+xml;base64,{text}", picture.title))
    return found


def read_run(path: Path, figure: str, metric: str) -> RecordedRun:
    """Return a record as a run of means, for a figure that can be drawn from one."""
    if figure not in DRAWN:
        raise IsthmusError(
            f"{figure!r} cannot be drawn from records; {nearest(figure, list(DRAWN))}, or give runs"
        )
    if metric != METRIC:
        raise IsthmusError(f"records keep no curves of {metric}; choose {METRIC}, or give runs")
    record = read(path)
    if not record.curve:
        raise IsthmusError(
            f"{path} is an older record without a curve; reproduce it again, or give its run"
        )
    return record_run(record, path)


def record_run(record: RunRecord, path: Path = Path()) -> RecordedRun:
    """Return a record that has a curve as a run whose clients have its means."""
    clients = record.curve["clients"]
    # Lines to hold a path against are means over the clients of the path: known if that is all.
    is_whole = sum(record.path.get("clients", [clients])) == clients
    nothing = [None] * (len(METRICS) - 1)
    rows: dict[str, list[tuple[Any, ...]]] = {
        "federation": [(i, 0, 0, 1, (), None, None, None) for i in range(clients)],
        "clients": [
            (t, i, model, () if lam is None else (lam,), "test", 1, top1, *nothing)
            for t, i, model, lam, top1 in _list_rows(record, clients)
        ],
    }
    settings = Experiment(**record.experiment).flat()  # older records lack some
    summary = RunSummary("finished", federation=record.federation if is_whole else "")
    run = from_rows(path, settings, rows, summary)
    return run._replace(evaluated=np.array(record.curve["round"], np.int64))


def _list_rows(
    record: RunRecord, clients: int
) -> Iterator[tuple[int, int, str, float | None, float]]:
    """Yield round, client, model, lambda and top-1, as clients.csv has them."""
    curve, path = record.curve, record.path
    last = int(curve["round"][-1])
    chosen = np.repeat(path["places"], path["clients"]) if path else np.empty(0)
    for model in ("personal", "shared"):
        for t, mean in zip(curve["round"], curve.get(model, ()), strict=False):
            for i in range(clients if t == last else 1):
                is_placed = model == "personal" and t == last and i < len(chosen)
                yield int(t), i, model, float(chosen[i]) if is_placed else None, mean
    kind = "line" if path.get("is_given") else "path"
    for lam, mean in zip(path.get("lam", ()), path.get("mean", ()), strict=True):
        for i in range(len(chosen)):
            yield last, i, kind, lam, mean
