"""One page about a set of runs: a single file that needs no network and no server."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from isthmus.errors import IsthmusError
from isthmus.report.contents import SECTIONS
from isthmus.report.figures.figure import Figure, encode
from isthmus.report.figures.theme import SYMBOLS, TONES, map_to_dark
from isthmus.report.section import Report, Section, SectionContent, collect
from isthmus.report.tables import formats
from isthmus.report.tables.summary import describe_selection
from isthmus.report.templates import render as fill
from isthmus.run.record import RecordedRun
from isthmus.system.files import explain_unwritable, write_text

# No request may leave the page, whatever a record smuggles into it.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def write(
    runs: Sequence[RecordedRun],
    out: str | Path,
    title: str | None = None,
    baseline: str | None = None,
) -> Path:
    """Write the page to a file, or as report.html into a directory, and return where it is."""
    place = Path(out)
    with explain_unwritable(place):
        place = place / "report.html" if place.is_dir() else place
    text = render(runs, title, baseline)
    write_text(place, text)
    return place


def render(
    runs: Sequence[RecordedRun], title: str | None = None, baseline: str | None = None
) -> str:
    """Return the page as text; methods are compared with `baseline`, or FedAvg."""
    if not runs:
        raise IsthmusError("no runs were given; name at least one run's directory")
    report = collect(runs, baseline)
    shown = [
        (section, content) for section in SECTIONS if (content := section.show(report)) is not None
    ]
    figures = {name: figure for _, content in shown for name, figure in content.figures.items()}
    versions = {run.summary.isthmus for run in runs if run.summary.isthmus}
    return fill(
        "page.html",
        report=report,
        heading=title or _make_title(runs),
        federations=len({(run.split_digest, *run.federation.labels.shape) for run in runs}),
        sections=[section for section, _ in shown],
        texts=[render_section(section, content, report) for section, content in shown],
        versions=formats.join_names(sorted(versions)),
        policy=Markup(POLICY),
        css=_read_files("page.css", "explore.css"),
        js=_read_files("figures.js", "page.js", "explore.js"),
        plotly=Markup(get_plotlyjs()),
        data=_encode(figures),
    )


def render_section(section: Section, content: SectionContent, report: Report) -> Markup:
    """Return a section as text: in its own template, or in that of a single figure."""
    text = fill(
        f"sections/{section.name}.html",
        "sections/figure.html",
        report=report,
        figures=content.figures,
        dark_tones=map_to_dark(),
        symbols=SYMBOLS,
        describe_selection=describe_selection,
        **content.values,
    )
    return Markup(text)


def _make_title(runs: Sequence[RecordedRun]) -> str:
    methods = list(dict.fromkeys(run.method for run in runs))
    who = formats.join_names(methods) if len(methods) <= 3 else f"{len(methods)} methods"
    where = list(dict.fromkeys(formats.format_setting(run, "data.name") for run in runs))
    return f"{who} on {formats.join_names(where)}"


def _encode(figures: Mapping[str, Figure]) -> Markup:
    data: dict[str, Any] = {
        "figures": {name: encode(figure) for name, figure in figures.items()},
        "darkTones": map_to_dark(),
        "tones": TONES,
    }
    # Inside a script only "<" could end it early; JSON may spell it as a number.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))


def _read_files(*names: str) -> Markup:
    texts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in names]
    return Markup("".join(texts))
