"""What both views of a deployed run say in the same words."""

from collections.abc import Iterator
from typing import Any

from isthmus.report.tables.formats import DAGGER, MISSING, format_bytes


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
