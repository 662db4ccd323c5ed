"""One page about a set of runs: a single file that needs no network and no server."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from isthmus.errors import IsthmusError
from isthmus.records.reader import Run
from isthmus.report import markup, seeds
from isthmus.report.figures import curves, landscape, similarity, simplex
from isthmus.report.figures import path as paths
from isthmus.report.figures import theme as figures
from isthmus.report.groups import Group, grouped
from isthmus.report.page import client_sections, run_sections
from isthmus.report.tables import comparison_section, reach, trials
from isthmus.report.tables import summary as tables

# No request may leave the page, whatever a record smuggles into it.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


PICTURE = """
<svg viewBox="0 0 640 300" role="img" aria-labelledby="picture-title">
<title id="picture-title">Two lands, joined by an isthmus: a path leads from the shared model to a
client's own model, and the personal model is a place on it.</title>
<rect class="sea" width="640" height="300"/>
<path class="wave" d="M250 52q12-10 24 0t24 0t24 0M330
262q12-10 24 0t24 0t24 0M296 30q9-8 18 0t18 0"/>
<path class="land" d="M0 42C52 14 150 20 186 66C214 104 222 122 262 132C306 142 342 140 384 126
C424 112 436 84 474 58C520 26 592 34 640 60V262C590 290 506 284 462 244C430 214 412 190 372 182
C334 175 300 178 262 186C222 196 214 226 176 254C130 288 52 284 0 254Z"/>
<path class="way" d="M112 156C220 152 300 168 350 156S470 146 530 154"/>
<circle class="stop" cx="112" cy="156" r="9"/>
<circle class="stop chosen" cx="350" cy="156" r="10"/>
<circle class="stop" cx="530" cy="154" r="9"/>
<text x="112" y="118">shared model</text><text class="small" x="112" y="198">λ = 0</text>
<text x="530" y="116">own model</text><text class="small" x="530" y="196">λ = 1</text>
<text x="320" y="224">personal model</text>
<text class="small" x="320" y="248">a place between</text>
</svg>
"""


def write(
    runs: Sequence[Run], out: str | Path, title: str | None = None, baseline: str | None = None
) -> Path:
    """Writes the page to a file, or as report.html into a directory, and returns where it is."""
    place = Path(out)
    if place.is_dir():
        place = place / "report.html"
    text = render(runs, title, baseline)
    place.parent.mkdir(parents=True, exist_ok=True)
    # A reader never finds half a page, and a failed write leaves the old one.
    draft = place.with_name(place.name + ".part")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(place)


def render(runs: Sequence[Run], title: str | None = None, baseline: str | None = None) -> str:
    """Returns the page as text; the others are held against `baseline`, or FedAvg."""
    if not runs:
        raise IsthmusError("no runs were given; give at least one run's directory")
    drawn: dict[str, go.Figure] = {}
    rows = tables.summary(runs)
    groups = grouped(runs)
    told = seeds.rows(groups, runs, rows)
    target = reach.baseline_of(runs, baseline)
    written = [
        ("summary", "The result", run_sections.summary(groups, told, runs, rows)),
        ("sure", "How sure is the difference", comparison_section.section(runs, drawn, baseline)),
        ("rounds", "Over rounds, seconds and bytes", curves.section(groups, told, drawn)),
        ("reliability", "How sure, how right", run_sections.reliability(groups, told, drawn)),
        (
            "gain",
            "Each client against training alone",
            client_sections.gain(groups, told, runs, drawn),
        ),
        ("path", "Along the path from shared to own model", paths.section(runs, rows, drawn)),
        ("branches", "Shared network, own network, sum", similarity.section(runs, rows, drawn)),
        ("simplex", "Where the clients are", simplex.section(runs, rows, drawn)),
        ("landscape", "The land around", landscape.section(runs, rows, drawn)),
        ("worst", "The clients it serves worst", client_sections.worst(groups, told)),
        ("holdings", "What the clients hold", client_sections.holdings(runs, drawn)),
        ("cost", "What it costs", run_sections.cost(groups, told, runs, drawn, target)),
        ("trials", "What was tried", trials.section(runs)),
        ("settings", "Settings", run_sections.settings(groups, runs)),
    ]
    written = [section for section in written if section[2]]
    heading = title or _title(runs)
    contents = "".join(f'<li><a href="#{name}">{said}</a></li>' for name, said, _ in written)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{said}</h2>{text}</section>'
        for name, said, text in written
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{markup.escaped(heading)}</title>\n<style>\n{_part('page.css')}{_part('explore.css')}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#summary">Skip to the result</a>\n'
        f"<header>{_opening(runs, groups, heading)}"
        f"<nav aria-label='Contents'><ol>{contents}</ol></nav>"
        "<noscript><p class='note'>The figures need JavaScript; the tables do not.</p></noscript>"
        f"</header>\n<main>{body}</main>\n{_footer(runs)}\n"
        f"<script>{get_plotlyjs()}</script>\n"
        f'<script type="application/json" id="figures">{_data(drawn)}</script>\n'
        f"<script>\n{_part('page.js')}{_part('explore.js')}</script>\n</body>\n</html>\n"
    )


def _title(runs: Sequence[Run]) -> str:
    methods = list(dict.fromkeys(run.method for run in runs))
    who = markup.listed(methods) if len(methods) <= 3 else f"{len(methods)} methods"
    where = list(dict.fromkeys(markup.text(run, "data.name") for run in runs))
    return f"{who} on {markup.listed(where)}"


def _opening(runs: Sequence[Run], groups: Sequence[Group], heading: str) -> str:
    run = runs[0]
    clients, classes = run.federation.labels.shape
    facts = [
        f"<strong>{markup.escaped(markup.text(run, 'data.name'))}</strong> data",
        f"<strong>{clients}</strong> clients",
        f"<strong>{int(np.sum(run.federation.labels)):,}</strong> examples",
        f"<strong>{classes}</strong> classes",
        f"split by <strong>{markup.escaped(markup.text(run, 'partition.name'))}</strong>",
        f"<strong>{len(runs)}</strong> {'run' if len(runs) == 1 else 'runs'}",
    ]
    if len(groups) < len(runs):
        many = len({run.seed for run in runs})
        facts.append(f"<strong>{many}</strong> {'seed' if many == 1 else 'seeds'}")
    if len({(r.split_digest, *r.federation.labels.shape) for r in runs}) > 1:
        facts.append("more than one federation; the first is described here")
    listed = "".join(f"<li>{fact}</li>" for fact in facts)
    text = (
        "<p><strong>Federated learning</strong> trains a model over many clients, say hospitals "
        "or phones, while their data stay where they are. But clients differ: one model shared "
        "by all suits none of them perfectly, and a model that a client trains alone has seen "
        "only its few examples.</p>"
        "<p><strong>Personalised</strong> federated learning looks for the best of both: each "
        "client ends with a model of its own that has learned from everybody.</p>"
    )
    picture = ""
    if any(r.selection is not None for r in runs):
        text += (
            "<p>Some methods here train two models so that the whole straight line between them "
            "is good. A client may then walk from the <strong>shared</strong> model (λ = 0) "
            "towards its <strong>own</strong> (λ = 1) and settle where it does best: that is "
            "its <strong>personal</strong> model.</p>"
        )
        picture = (
            f"<figure>{PICTURE}<figcaption>The strip of land between two larger ones: "
            "every place on it is a model that works.</figcaption></figure>"
        )
    return (
        f"<p class='eyebrow'>isthmus report</p><h1>{markup.escaped(heading)}</h1>"
        f"<ul class='facts'>{listed}</ul>"
        f"<div class='opening'><div>{text}</div>{picture}</div>"
    )


def _footer(runs: Sequence[Run]) -> str:
    versions = sorted({str(run.summary["isthmus"]) for run in runs if "isthmus" in run.summary})
    made = f" (isthmus {markup.escaped(markup.listed(versions))})" if versions else ""
    return (
        f"<footer>Written by isthmus from the records of the runs{made}. One file; it asks the "
        "network for nothing. Every number here comes from "
        "<code>clients.csv</code>, <code>reliability.csv</code>, <code>rounds.csv</code> and "
        "<code>federation.csv</code> "
        "in the runs' directories, and from <code>landscape.csv</code> and "
        "<code>simplex.csv</code> where they were measured.</footer>"
    )


def _data(drawn: dict[str, go.Figure]) -> str:
    data: dict[str, Any] = {
        "figures": {name: figure.to_plotly_json() for name, figure in drawn.items()},
        "darkTones": figures.dark_tones(),
    }
    for figure in data["figures"].values():
        figure["layout"].pop("template", None)
    # Inside a script only "<" could end it early; JSON may spell it as a number.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c")


def _part(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
