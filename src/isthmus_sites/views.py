"""How a deployed run stands, in words, on a terminal and as a page."""

import datetime as dt
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import RenderableType, group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from isthmus.report.tables.formats import DAGGER, FOOTNOTE, MISSING, format_bytes
from isthmus.report.templates import render as fill

ROUNDS_SHOWN = 10  # rounds that a site's status lists one by one
BARS = "▁▂▃▄▅▆▇█"
SHOWN = ("personal validation", "personal test", "shared validation", "shared test")
COUNTS = ("calls", "answered", "late", "absent", "refused", "failed")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
REFRESH_S = 5


def format_share(value: float | None) -> str:
    """Format a fraction of right answers.

    >>> format_share(0.98765), format_share(None)
    ('98.8 %', '–')
    """
    return MISSING if value is None else f"{100 * value:.1f} %"


def format_moment(text: str) -> str:
    """Format when something happened, to the second.

    >>> format_moment("2026-05-01T07:30:00.123+00:00")
    '2026-05-01 07:30:00 UTC'
    """
    return f"{text[:10]} {text[11:19]} UTC"


def format_time(seconds: float | None) -> str:
    """Format a duration.

    >>> format_time(75), format_time(200_000), format_time(None)
    ('0:01:15', '2 days, 7:33:20', '–')
    """
    return MISSING if seconds is None else str(dt.timedelta(seconds=round(seconds)))


def describe_progress(facts: dict[str, Any]) -> Iterator[str]:
    """Describe how far a run is, how fast it is, and what it sent."""
    yield f"{facts['folder']}: {facts['method']}, {facts['status']}{describe_next_step(facts)}"
    line = f"rounds: {facts['rounds_done']:,} of {facts['rounds']:,}"
    if facts["rounds_done"]:
        line += f", {facts['seconds_per_round']:.1f} s each"
        line += f", {format_time(facts['seconds_left'])} left" if facts["seconds_left"] else ""
        line += f"; last one {format_moment(facts['last_round_ended'])}"
    yield line
    yield f"sent: {format_bytes(facts['down_bytes'])} down, {format_bytes(facts['up_bytes'])} up"
    if facts["call"]:
        yield f"call: {describe_call(facts['call'])}"
    waits = facts["waits"]
    yield (
        f"waits: {format_time(waits['deadline'])} for {waits['quorum']:.0%} of those asked, "
        f"then {format_time(waits['grace'])} for the others"
    )


def describe_call(call: dict[str, Any]) -> str:
    """Describe the current call: since when, who has answered and who is waited for.

    >>> call = {"round": 3, "function": "local", "since": "2026-05-01T07:30:00.123+00:00"}
    >>> asked = {"asked": ["a", "b", "c"], "answered": ["a"], "missing": {"b": "absent"}}
    >>> describe_call({**call, **asked, "waiting": ["c"]})
    'round 3, local, since 07:30:00 UTC: 1 of 3 answered (a); b: absent; waiting for c'
    """
    begun = f"round {call['round']:,}, {call['function']}, since {call['since'][11:19]} UTC"
    answered, waiting = ", ".join(call["answered"]), ", ".join(call["waiting"])
    parts = [f"{len(call['answered']):,} of {len(call['asked']):,} answered"]
    parts[0] += f" ({answered})" if answered and waiting else ""
    parts += [f"{site}: {why}" for site, why in call["missing"].items()]
    parts += [f"waiting for {waiting}"] if waiting else []
    return f"{begun}: {'; '.join(parts)}"


def describe_next_step(facts: dict[str, Any]) -> str:
    """Describe why a run does not continue, and what would make it."""
    if facts["reason"]:
        return f": {facts['reason']}"
    stands = facts["status"] in ("stopped", "nobody serves it")
    return "; continue it with `isthmus serve resume`" if stands else ""


def list_counts(site: dict[str, Any]) -> list[str]:
    """Return a site's row of a table: its certificate, its last round, how its calls ended."""
    until, last = (site["certificate_until"] or MISSING)[:10], site["last_answered_round"]
    state = until if site["state"] == "admitted" else site["state"]
    ends = {**site, "calls": site["asked"], "answered": site["answered"] + site["private"]}
    round = MISSING if last is None else f"{last:,}"
    return [site["name"], state, round, *(f"{ends[name]:,}" for name in COUNTS)]


def list_figures(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield a row for each site: top-1 of its models; of which round, if not the last."""
    evaluation = facts["evaluation"]
    for site in facts["sites"]:
        cells = []
        for each in evaluation["models"]:
            found = site["figures"].get(f"{each['model']} {each['split']}", {"top1": None})
            earlier = found.get("round", evaluation["round"]) != evaluation["round"]
            cells.append(format_share(found["top1"]) + (f" @{found['round']}" if earlier else ""))
        yield [site["name"], *cells]


def describe_missing(facts: dict[str, Any]) -> Iterator[str]:
    """Describe why which site did not answer, and how often."""
    for site in facts["sites"]:
        told = [f"{why} ({count:,})" for why, count in site["why"].items()]
        if site["lost"]:
            told.append(f"lost within a round, which was played again ({site['lost']:,})")
        if site["left"]:
            told.append(f"left at {format_moment(site['left'])}")
        if told:
            yield f"{site['name']}: {'; '.join(told)}"


def describe_newcomers(facts: dict[str, Any]) -> Iterator[str]:
    """Describe which other sites joined, when last, and why one did not."""
    for site in facts["newcomers"]:
        last = site["last_joined_round"]
        joined = "has not joined" if last is None else f"joined after round {last:,}"
        times = f"{site['joined']:,} of {site['asked']:,} times"
        parts = [f"newcomer {site['name']}: {joined} ({times})"]
        if site["top1"] is not None:
            parts.append(f"top-1 on its own test part {format_share(site['top1'])}")
        parts += [f"{why} ({count:,})" for why, count in site["why"].items()]
        yield "; ".join(parts)


def describe_line(facts: dict[str, Any]) -> str:
    """Describe in one line how a run stands."""
    parts = [f"{facts['status']}: round {facts['rounds_done']:,} of {facts['rounds']:,}"]
    if facts["seconds_left"]:
        parts.append(f"{format_time(facts['seconds_left'])} left")
    for each in (facts["evaluation"] or {"models": []})["models"]:
        if each["split"] == "test":
            parts.append(
                f"{name_column(facts, each)} top-1 {format_share(each['mean_top1'])} (mean over "
                f"{len(each['sites'])} sites, after round {facts['evaluation']['round']})"
            )
    return "; ".join(parts)


def name_column(facts: dict[str, Any], each: dict[str, Any], between: str = ", ") -> str:
    """Return the name of a model and a split; a model that was chosen on test data is marked."""
    marked = each["model"] == "personal" and facts["chosen_on_test_data"]
    return f"{each['model']}{DAGGER if marked else ''}{between}{each['split']}"


@group()
def draw(facts: dict[str, Any]) -> Iterator[RenderableType]:
    """Draw how a run stands, for a terminal."""
    yield from map(Text, describe_progress(facts))
    yield ProgressBar(total=max(1, facts["rounds"]), completed=facts["rounds_done"])
    yield Text()
    styles = ["" if site["state"] == "admitted" else "red" for site in facts["sites"]]
    heads = ("site", "until", "last\nround", *COUNTS)
    yield _build_table(heads, map(list_counts, facts["sites"]), styles)
    yield from (Text(line, style="yellow") for line in describe_missing(facts))
    yield from map(Text, describe_newcomers(facts))
    yield Text()
    evaluation = facts["evaluation"]
    if evaluation is None:
        after = facts["next_evaluation"]
        yield Text("no evaluation yet" + (f"; the first is after round {after}" if after else ""))
    else:
        models = evaluation["models"]
        title = f"top-1 after round {evaluation['round']}, on each site's own parts"
        yield Text(title, style="dim")
        columns = ("site", *(name_column(facts, each, "\n") for each in models))
        table = _build_table(columns, list_figures(facts))
        table.add_section()
        table.add_row("mean over sites", *(format_share(each["mean_top1"]) for each in models))
        table.add_row("of so many sites", *(str(len(each["sites"])) for each in models))
        table.add_row("all examples", *(format_share(each["pooled_top1"]) for each in models))
        yield table
        if facts["chosen_on_test_data"]:
            yield Text(FOOTNOTE, style="dim")
    yield Text()
    for event in facts["events"][-3:]:
        yield Text(f"{format_moment(event['at'])} {event['text']}", style="dim")


def _build_table(heads: Sequence[str], rows: Any, styles: Sequence[str] | None = None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    table.add_column(heads[0], overflow="fold")
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for i, cells in enumerate(rows):
        table.add_row(*map(Text, cells), style=styles[i] if styles else "")
    return table


def render(facts: dict[str, Any]) -> str:
    """Return the page: one file without scripts that loads itself again during the run."""
    evaluation = facts["evaluation"]
    models = evaluation["models"] if evaluation else []
    words = (describe_call, format_bytes, format_moment, format_share, format_time)
    return fill(
        "deployment.html",
        folder=Path(__file__).with_name("templates"),
        facts=facts,
        refresh=0 if facts["status"] == "finished" else REFRESH_S,
        policy=Markup(POLICY.partition("; frame-ancestors")[0]),  # only a header may state that
        css=Markup((files("isthmus.report.page") / "page.css").read_text("utf-8")),
        counts=[list_counts(site) for site in facts["sites"]],
        figures=list(list_figures(facts)) if evaluation else [],
        lines=[*describe_missing(facts), *describe_newcomers(facts)],
        next_step=describe_next_step(facts).strip(":; "),
        heads=["site", *(name_column(facts, each) for each in models)],
        footnote=FOOTNOTE if facts["chosen_on_test_data"] else "",
        events=[(format_moment(event["at"]), event["text"]) for event in facts["events"]],
        notes=[(note["round"], note["note"]) for note in facts["notes"]],
        MISSING=MISSING,
        **{word.__name__: word for word in words},
    )


@group()
def draw_site(facts: dict[str, Any]) -> Iterator[RenderableType]:
    """Draw how a site stands, for a terminal."""
    yield from map(Text, _describe_site(facts))
    if facts["rounds"]:
        rows = (
            [
                f"{row['round']:,}",
                f"{row['calls']:,}",
                format_bytes(row["got_bytes"]),
                format_bytes(row["sent_bytes"]),
                f"{row['refused']:,}",
                row["last"][:19],
            ]
            for row in facts["rounds"][-ROUNDS_SHOWN:]
        )
        yield _build_table(("round", "calls", "got", "sent", "refused", "last at"), rows)
    for row in facts["latest_refusals"]:
        what = f"{row['function']} of round {row['round']}" if row["function"] else "a message"
        why = f" ({row['why']})" if row["why"] else ""
        yield Text(f"refused {row['at'][:19]}: {what}: {row['reason']}{why}", style="yellow")
    yield from _draw_models(facts)


def _describe_site(facts: dict[str, Any]) -> Iterator[str]:
    """Describe a site: its server, until when, what it agreed to, its calls."""
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
    else:
        yield from describe_terms(agreed)
    if facts["calls"]:
        got, sent = (format_bytes(facts[key]) for key in ("got_bytes", "sent_bytes"))
        refused = sum(facts["refused"].values())
        yield f"calls: {facts['answered']:,} answered, {refused:,} refused; got {got}, sent {sent}"
        yield f"last call: {facts['last_call']}"
    else:
        yield "calls: none"


def describe_terms(agreed: dict[str, Any]) -> Iterator[str]:
    """Describe what a site agreed to."""
    part = f"client {agreed['client']} of {agreed['clients']}"
    part = f"a newcomer to {agreed['clients']} sites" if agreed["newcomer"] else part
    kept = "they stay here" if agreed["newcomer"] else "only in sums with others'"
    kept = "the server may keep them" if agreed["figures"] else kept
    yield f"agreed: {agreed['digest']}: {agreed['method']}, {agreed['rounds']:,} rounds, as {part}"
    yield f"data: {agreed['data']}"
    yield f"discloses more in: {', '.join(agreed['disclose']) or 'nothing'}"
    yield (
        f"floors: {agreed['minimum_examples']} examples to train on, "
        f"{agreed['minimum_label_count']} of each class whose count is disclosed"
    )
    yield f"figures of this site: {kept}"


def _draw_models(facts: dict[str, Any]) -> Iterator[RenderableType]:
    """Draw how this site's models did beside the shared one, and beside training alone."""
    evaluations, alone, best = facts["evaluations"], facts["alone"], facts["best_round"]
    if not evaluations and alone is None:
        if facts["agreement"] is not None:
            yield Text("models: not evaluated yet")
        return
    yield Text("\nmodels on this site's own data: top-1 (mean cross-entropy)")
    shown = {row["round"]: row for row in evaluations if row["round"] == best}
    shown |= {row["round"]: row for row in evaluations[-ROUNDS_SHOWN:]}
    rows = [
        [f"{round:,}{' *' * (round == best)}", *(format_figures(row.get(name)) for name in SHOWN)]
        for round, row in sorted(shown.items())
    ]
    if len(evaluations) > 1:
        lines = ([row[name]["top1"] for row in evaluations if name in row] for name in SHOWN)
        rows.append(["all", *map(draw_line, lines)])
    if alone is not None:
        cells = [alone["figures"].get(f"alone {split}") for split in ("validation", "test")]
        rows.append(["alone", *map(format_figures, cells), "", ""])
    yield _build_table(("round", *(name.replace(" ", "\n") for name in SHOWN)), rows)
    if best:
        yield Text("* least validation loss: `isthmus predict` takes this model", style="dim")
    note = "`isthmus join check EXPERIMENT.toml --alone` adds training alone"
    if alone is not None:
        note = f"alone: trained here alone in {alone['rounds']:,} rounds, on {alone['at'][:10]}"
    yield Text(note, style="dim")


def describe_alone(found: dict[str, Any]) -> str:
    """Describe how the model does that was trained here alone."""
    parts = [
        f"{name.split()[1]} {format_figures(each)} of {each['n']:,}"
        for name, each in found["figures"].items()
    ]
    return f"alone, in {found['rounds']:,} rounds: top-1 (loss) on this site's {', '.join(parts)}"


def format_figures(found: dict[str, Any] | None) -> str:
    """Format how a model did on a split of the data."""
    return "" if found is None else f"{found['top1']:.1%} ({found['loss']:.3f})"


def draw_line(values: Sequence[float], width: int = 16) -> str:
    """Draw numbers as a line of bars from the least to the largest, evenly chosen if too many.

    >>> draw_line([0.1, 0.5, 0.9]), draw_line([0.5, 0.5]), draw_line([])
    ('▁▅█', '▁▁', '')
    """
    if len(values) > width:
        values = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)]
    least, most = min(values, default=0.0), max(values, default=0.0)
    span = (most - least) or 1.0
    return "".join(BARS[round((len(BARS) - 1) * (value - least) / span)] for value in values)
