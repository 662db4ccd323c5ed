"""How a site stands, for its people."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

LATEST = 10  # rounds that are told one by one
BARS = "▁▂▃▄▅▆▇█"
SHOWN = ("personal validation", "personal test", "shared validation", "shared test")


def draw_standing(facts: dict[str, Any]) -> "Group":
    """Draws how a site stands."""
    from rich.console import Group

    return Group(*_draw_parts(facts))


def _draw_parts(facts: dict[str, Any]) -> "Iterator[RenderableType]":
    from rich.text import Text

    from isthmus.report.tables.formats import format_bytes

    for line in _describe_site(facts):
        yield Text(line)
    got, sent = (format_bytes(facts[key]) for key in ("got_bytes", "sent_bytes"))
    refused = sum(facts["refused"].values())
    if facts["calls"]:
        yield Text(
            f"calls: {facts['answered']:,} answered, {refused:,} refused; got {got}, sent {sent}"
        )
        yield Text(f"last call: {facts['last_call']}")
    else:
        yield Text("calls: none")
    if facts["rounds"]:
        table = _build_table("round", "calls", "got", "sent", "refused", "last at")
        for row in facts["rounds"][-LATEST:]:
            sizes = [format_bytes(row[key]) for key in ("got_bytes", "sent_bytes")]
            cells = [f"{row['calls']:,}", *sizes, f"{row['refused']:,}", row["last"][:19]]
            table.add_row(f"{row['round']:,}", *cells)
        yield table
    for row in facts["latest_refusals"]:
        what = f"{row['function']} of round {row['round']}" if row["function"] else "a message"
        why = f" ({row['why']})" if row["why"] else ""
        yield Text(f"refused {row['at'][:19]}: {what}: {row['reason']}{why}", style="yellow")
    yield from _draw_models(facts)


def _describe_site(facts: dict[str, Any]) -> Iterator[str]:
    """Says who this site is, whose, until when, and what it agreed to."""
    yield f"site: {facts['site']}; server: {facts['server'] or 'none yet'}"
    if facts["certificate_until"]:
        yield f"certificate: until {facts['certificate_until'][:10]}"
    if facts["left"]:
        yield f"left: {facts['left']}"
    event = facts["last_event"]
    if event is not None:
        why = f" ({event['why']})" if event.get("why") else ""
        yield f"connection: {event.get('event')} at {str(event.get('at'))[:19]}{why}"
    agreed = facts["agreement"]
    if agreed is None:
        yield "agreed: to nothing yet; `isthmus join agree EXPERIMENT.toml`"
        return
    kept = "they stay here" if agreed["newcomer"] else "only in sums with others'"
    kept = "the server may keep them" if agreed["figures"] else kept
    part = f"client {agreed['client']} of {agreed['clients']}"
    part = f"a newcomer to {agreed['clients']} sites" if agreed["newcomer"] else part
    yield f"agreed: {agreed['digest']}: {agreed['method']}, {agreed['rounds']:,} rounds, as {part}"
    yield (
        f"discloses more in: {', '.join(agreed['disclose']) or 'nothing'}; figures of this site: "
        f"{kept}"
    )


def _draw_models(facts: dict[str, Any]) -> "Iterator[RenderableType]":
    """Draws how this site's models did beside the shared one, and beside training alone."""
    from rich.text import Text

    evaluations, alone = facts["evaluations"], facts["alone"]
    if not evaluations and alone is None:
        if facts["agreement"] is not None:
            yield Text("models: not evaluated yet")
        return
    yield Text()
    yield Text("models on this site's own data: top-1 (mean cross-entropy)")
    table = _build_table("round", *(name.replace(" ", "\n") for name in SHOWN))
    best = [row for row in evaluations if row["round"] == facts["best_round"]]
    latest = evaluations[-LATEST:]
    for row in [*(row for row in best if row not in latest), *latest]:
        mark = " *" if row in best else ""
        cells = [format_figures(row.get(name)) for name in SHOWN]
        table.add_row(f"{row['round']:,}{mark}", *cells)
    if len(evaluations) > 1:
        lines = ([row[name]["top1"] for row in evaluations if name in row] for name in SHOWN)
        table.add_row("all", *(draw_line(values) for values in lines))
    if alone is not None:
        cells = [format_figures(alone["figures"].get(f"alone {part.split()[1]}")) for part in SHOWN]
        table.add_row("alone", *cells[:2], "", "")
    yield table
    if facts["best_round"]:
        yield Text("* least validation loss: `isthmus predict` takes this model", style="dim")
    if alone is not None:
        told = f"alone: trained here alone in {alone['rounds']:,} rounds, on {alone['at'][:10]}"
        yield Text(told, style="dim")
    elif facts["agreement"] is not None:
        yield Text("`isthmus join check EXPERIMENT.toml --alone` adds training alone", style="dim")


def describe_alone(found: dict[str, Any]) -> str:
    """Says how the model does that was trained here alone."""
    parts = [
        f"{name.split()[1]} {format_figures(each)} of {each['n']:,}"
        for name, each in found["figures"].items()
    ]
    return f"alone, in {found['rounds']:,} rounds: top-1 (loss) on this site's {', '.join(parts)}"


def format_figures(found: dict[str, Any] | None) -> str:
    """Prints how a model did on a part of the data."""
    return "" if found is None else f"{found['top1']:.1%} ({found['loss']:.3f})"


def draw_line(values: Sequence[float], width: int = 16) -> str:
    """Draws numbers as a line of bars from the least to the largest, evenly chosen if too many.

    >>> draw_line([0.1, 0.5, 0.9]), draw_line([0.5, 0.5]), draw_line([])
    ('▁▅█', '▁▁', '')
    """
    if len(values) > width:
        values = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    least, most = min(values, default=0.0), max(values, default=0.0)
    span = (most - least) or 1.0
    return "".join(BARS[round((len(BARS) - 1) * (value - least) / span)] for value in values)


def _build_table(first: str, *others: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column(first)
    for head in others:
        table.add_column(head, justify="right")
    return table
