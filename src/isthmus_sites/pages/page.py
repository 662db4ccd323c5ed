"""How a deployed run stands, as a page: one file, no script, nothing asked of any network."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from isthmus.report.tables.formats import FOOTNOTE, MISSING, format_bytes
from isthmus.report.templates import render as fill
from isthmus_sites.pages.wording import (
    describe_call,
    describe_missing,
    describe_newcomers,
    describe_next_step,
    format_moment,
    format_share,
    format_time,
    list_counts,
    list_figures,
    name_columns,
)

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
REFRESH = 5  # seconds
WIDTH, HEIGHT, EDGE = 640, 200, 40  # of the drawing


def render(facts: dict[str, Any]) -> str:
    """Returns the page as text; it loads itself again while the run goes on."""
    css = (files("isthmus.report.page") / "page.css").read_text("utf-8")
    evaluation = facts["evaluation"]
    models = evaluation["models"] if evaluation else []
    return fill(
        "deployment.html",
        folder=Path(__file__).with_name("templates"),
        facts=facts,
        refresh=0 if facts["status"] == "finished" else REFRESH,
        policy=Markup(POLICY.partition("; frame-ancestors")[0]),  # that one only a header may say
        css=Markup(css),
        counts=[list_counts(site) for site in facts["sites"]],
        figures=list(list_figures(facts)) if evaluation else [],
        missing=[*describe_missing(facts), *describe_newcomers(facts)],
        call=describe_call(facts["call"]) if facts["call"] else "",
        next_step=describe_next_step(facts).removeprefix("; "),
        tested=[each for each in models if each["split"] == "test"],
        heads=["site", *(name_columns(facts) if models else [])],
        footnote=FOOTNOTE if facts["chosen_on_test_data"] else "",
        events=[(format_moment(event["at"]), event["text"]) for event in facts["events"]],
        notes=[(note["round"], note["note"]) for note in facts["notes"]],
        lines={model: _trace(points, facts["rounds"]) for model, points in facts["curves"].items()},
        size=(WIDTH, HEIGHT, EDGE),
        format_bytes=format_bytes,
        format_moment=format_moment,
        format_share=format_share,
        format_time=format_time,
        MISSING=MISSING,
    )


def _trace(points: Sequence[tuple[int, float]], rounds: int) -> list[tuple[float, float]]:
    """Places points of a curve in the drawing: rounds to the right, top-1 upwards."""
    wide, high = WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE
    return [
        (round(EDGE + wide * at / max(1, rounds), 1), round(HEIGHT - EDGE - high * top1, 1))
        for at, top1 in points
    ]
