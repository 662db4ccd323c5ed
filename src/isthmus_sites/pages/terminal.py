"""How a deployed run stands, for a terminal."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from isthmus.report.tables.formats import FOOTNOTE
from isthmus_sites.pages.wording import (
    describe_missing,
    describe_newcomers,
    describe_progress,
    format_moment,
    format_share,
    list_counts,
    list_figures,
    name_columns,
)

COUNTS = ("calls", "answered", "late", "absent", "refused", "failed")


def draw(facts: dict[str, Any]) -> Group:
    """Draws how a run stands."""
    return Group(*_draw_parts(facts))


def _draw_parts(facts: dict[str, Any]) -> Iterator[RenderableType]:
    for line in describe_progress(facts):
        yield Text(line)
    yield ProgressBar(total=max(1, facts["rounds"]), completed=facts["rounds_done"])
    yield Text()
    table = _build_table("site", "until", "last\nround", *COUNTS)
    for site in facts["sites"]:
        style = "" if site["state"] == "admitted" else "red"
        table.add_row(*(Text(cell) for cell in list_counts(site)), style=style)
    yield table
    for line in describe_missing(facts):
        yield Text(line, style="yellow")
    for line in describe_newcomers(facts):
        yield Text(line)
    yield Text()
    evaluation = facts["evaluation"]
    if evaluation is None:
        after = facts["next_evaluation"]
        yield Text("no evaluation yet" + (f"; the first is after round {after}" if after else ""))
    else:
        yield Text(
            f"top-1 after round {evaluation['round']}, on each site's own parts", style="dim"
        )
        models = evaluation["models"]
        table = _build_table("site", *name_columns(facts, "\n"))
        for cells in list_figures(facts):
            table.add_row(*(Text(cell) for cell in cells))
        table.add_section()
        table.add_row(
            "mean over sites", *(_count_sites(each, len(facts["sites"])) for each in models)
        )
        pooled = [format_share(each["pooled_top1"]) for each in models]
        table.add_row("all examples", *pooled)
        yield table
        if facts["chosen_on_test_data"]:
            yield Text(FOOTNOTE, style="dim")
    yield Text()
    for event in facts["events"][-3:]:
        yield Text(f"{format_moment(event['at'])} {event['text']}", style="dim")


def _count_sites(row: dict[str, Any], total: int) -> str:
    few = "" if len(row["sites"]) == total else f" of {len(row['sites'])}"
    return format_share(row["mean_top1"]) + few


def _build_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column(first, overflow="fold")
    for head in others:
        table.add_column(head, justify="right", no_wrap=True)
    return table
