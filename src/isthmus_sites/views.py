"""How a deployed run stands, in words, on a terminal and as a page."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from isthmus.report.tables.formats import DAGGER, FOOTNOTE, MISSING, format_bytes
from isthmus.report.templates import render as fill


def format_share(value: float | None) -> str:
    """Prints a share of right answers.

    >>> format_share(0.98765), format_share(None)
    ('98.8 %', '–')
    """
    return MISSING if value is None else f"{value:.1%}".replace("%", " %")


def format_moment(text: str) -> str:
    """Prints when something happened, to the second.

    >>> format_moment("2026-05-01T07:30:00.123+00:00")
    '2026-05-01 07:30:00 UTC'
    """
    return f"{text[:10]} {text[11:19]} UTC"


def format_time(seconds: float | None) -> str:
    """Prints how long something takes.

    >>> format_time(75), format_time(7500), format_time(200_000), format_time(None)
    ('1 min 15 s', '2 h 5 min', '2 d 7 h', '–')
    >>> format_time(7200), format_time(30)
    ('2 h', '30 s')
    """
    if seconds is None:
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count) or "0 s"


def describe_progress(facts: dict[str, Any]) -> Iterator[str]:
    """Says how far a run is, how fast it goes, and what it sent."""
    yield f"{facts['folder']}: {facts['method']}, {facts['status']}{describe_next_step(facts)}"
    line = f"rounds: {facts['rounds_done']:,} of {facts['rounds']:,}"
    if facts["seconds_per_round"] is not None:
        line += f", {facts['seconds_per_round']:.1f} s each"
        if facts["seconds_left"]:
            line += f", {format_time(facts['seconds_left'])} left"
        line += f"; last one {format_moment(facts['last_round_ended'])}"
    yield line
    yield f"sent: {format_bytes(facts['down_bytes'])} down, {format_bytes(facts['up_bytes'])} up"
    if facts["call"]:
        yield f"under way: {describe_call(facts['call'])}"
    waits = facts["waits"]
    yield (
        f"waits: {format_time(waits['deadline'])} for {waits['quorum']:.0%} of those asked, "
        f"then {format_time(waits['grace'])} for the others"
    )


def describe_call(call: dict[str, Any]) -> str:
    """Says which call is under way, since when, who has answered and who is waited for.

    >>> call = {"round": 3, "function": "local", "since": "2026-05-01T07:30:00.123+00:00"}
    >>> asked = {"asked": ["a", "b", "c"], "answered": ["a"], "missing": {"b": "absent"}}
    >>> describe_call({**call, **asked, "waiting": ["c"]})
    'round 3, local, since 07:30:00 UTC: 1 of 3 answered (a); b: absent; waiting for c'
    """
    begun = f"round {call['round']:,}, {call['function']}, since {call['since'][11:19]} UTC"
    answered = ", ".join(call["answered"])
    parts = [
        f"{len(call['answered']):,} of {len(call['asked']):,} answered"
        + (f" ({answered})" if answered and call["waiting"] else "")
    ]
    parts += [f"{site}: {why}" for site, why in call["missing"].items()]
    if call["waiting"]:
        parts.append(f"waiting for {', '.join(call['waiting'])}")
    return f"{begun}: {'; '.join(parts)}"


def describe_next_step(facts: dict[str, Any]) -> str:
    """Says why a run does not go on, and what would make it."""
    if facts["reason"]:
        return f": {facts['reason']}"
    if facts["status"] in ("stopped", "nobody serves it"):
        return "; `isthmus serve resume` goes on"
    return ""


def list_counts(site: dict[str, Any]) -> list[str]:
    """Lists what a table says of a site: its certificate, its last round, how its calls ended."""
    until = (site["certificate_until"] or MISSING)[:10]
    last = site["last_answered_round"]
    counts = [site["asked"], site["answered"] + site["private"]]
    counts += [site[end] for end in ("late", "absent", "refused", "failed")]
    state = until if site["state"] == "admitted" else site["state"]
    round = MISSING if last is None else f"{last:,}"
    return [site["name"], state, round, *(f"{count:,}" for count in counts)]


def list_figures(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Yields what a table says of the models at each site: top-1; of which round, if not last."""
    evaluation = facts["evaluation"]
    for site in facts["sites"]:
        cells = []
        for each in evaluation["models"]:
            found = site["figures"].get(f"{each['model']} {each['split']}")
            text = MISSING if found is None else format_share(found["top1"])
            if found is not None and found["round"] != evaluation["round"]:
                text += f" @{found['round']}"
            cells.append(text)
        yield [site["name"], *cells]


def describe_missing(facts: dict[str, Any]) -> Iterator[str]:
    """Yields why which site did not answer, and how often."""
    for site in facts["sites"]:
        told = [f"{why} ({count:,})" for why, count in site["why"].items()]
        if site["lost"]:
            told.append(f"gone within a round, which was played again ({site['lost']:,})")
        if site["left"]:
            told.append(f"left at {format_moment(site['left'])}")
        if told:
            yield f"{site['name']}: {'; '.join(told)}"


def describe_newcomers(facts: dict[str, Any]) -> Iterator[str]:
    """Yields which other sites joined, when last, and why one did not."""
    for site in facts["newcomers"]:
        last = site["last_joined_round"]
        line = f"newcomer {site['name']}: "
        line += "has not joined" if last is None else f"joined after round {last:,}"
        line += f" ({site['joined']:,} of {site['asked']:,} times)"
        if site["top1"] is not None:
            line += f"; top-1 on its own test part {format_share(site['top1'])}"
        told = [f"{why} ({count:,})" for why, count in site["why"].items()]
        yield "; ".join([line, *told])


def describe_line(facts: dict[str, Any]) -> str:
    """Says in one line how a run stands."""
    dagger = DAGGER if facts["chosen_on_test_data"] else ""
    parts = [f"{facts['status']}: round {facts['rounds_done']:,} of {facts['rounds']:,}"]
    if facts["seconds_per_round"] is not None:
        parts.append(f"{facts['seconds_per_round']:.1f} s each")
    if facts["seconds_left"]:
        parts.append(f"{format_time(facts['seconds_left'])} left")
    for each in (facts["evaluation"] or {"models": []})["models"]:
        if each["split"] == "test":
            parts.append(
                f"{each['model']}{dagger if each['model'] == 'personal' else ''} "
                f"{format_share(each['mean_top1'])} (test, top-1, mean over "
                f"{len(each['sites'])} sites, after round {facts['evaluation']['round']})"
            )
    return "; ".join(parts)


def name_columns(facts: dict[str, Any], between: str = ", ") -> list[str]:
    """Names the models that were measured and the parts of data; one chosen on test is marked."""
    dagger = DAGGER if facts["chosen_on_test_data"] else ""
    return [
        f"{each['model']}{dagger if each['model'] == 'personal' else ''}{between}{each['split']}"
        for each in facts["evaluation"]["models"]
    ]


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


ROUNDS_SHOWN = 10  # rounds that are told one by one
BARS = "▁▂▃▄▅▆▇█"
SHOWN = ("personal validation", "personal test", "shared validation", "shared test")


def draw_standing(facts: dict[str, Any]) -> Group:
    """Draws how a site stands."""
    return Group(*_draw_site(facts))


def _draw_site(facts: dict[str, Any]) -> Iterator[RenderableType]:

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
        for row in facts["rounds"][-ROUNDS_SHOWN:]:
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


def _draw_models(facts: dict[str, Any]) -> Iterator[RenderableType]:
    """Draws how this site's models did beside the shared one, and beside training alone."""
    evaluations, alone = facts["evaluations"], facts["alone"]
    if not evaluations and alone is None:
        if facts["agreement"] is not None:
            yield Text("models: not evaluated yet")
        return
    yield Text()
    yield Text("models on this site's own data: top-1 (mean cross-entropy)")
    table = _build_table("round", *(name.replace(" ", "\n") for name in SHOWN))
    best = [row for row in evaluations if row["round"] == facts["best_round"]]
    latest = evaluations[-ROUNDS_SHOWN:]
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
