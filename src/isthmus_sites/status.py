"""How a deployed run stands, at its server and at a site: collected from files alone."""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from isthmus.errors import IsthmusError
from isthmus.run.columns import read_arrays
from isthmus.run.record import RunSummary, read_summary
from isthmus.run.schema import CALLS, CLIENTS, JOINS, NEWCOMERS, NOTES, RELIABILITY, ROUNDS
from isthmus_sites.audit import read_lines
from isthmus_sites.consent import Consent, find_consent
from isthmus_sites.folders import (
    ServerFolder,
    SiteFolder,
    find_server,
    is_held,
    read_json,
    read_table,
)
from isthmus_sites.protocol import (
    KINDS,
    REFUSALS,
    ServePlan,
    count_as,
    describe_outcome,
    read_events,
)

RECENT = 10  # rounds over which the pace is measured
LATEST = 6  # notes, events and refusals that are shown
TABLES = {
    "rounds": ROUNDS,
    "clients": CLIENTS,
    "calls": CALLS,
    "notes": NOTES,
    "reliability": RELIABILITY,
    "joins": JOINS,
    "newcomers": NEWCOMERS,
}
MODELS, SPLITS = ("personal", "shared"), ("validation", "test")
# What a served run is doing, by the last event; after any other it is running.
STATES = {
    **dict.fromkeys(("", "done", "stopped", "renewed", "server-lost", "stuck"), "starting"),
    "trouble": "starting",
    "server": "waiting for sites",
    "waiting": "waiting for sites",
}


def collect_status(folder: Path) -> dict[str, Any]:
    """Return how the run of a server's folder stands; before its first round it has few records."""
    server = find_server(folder)
    admitted = read_table(server.sites)
    if not server.plan.exists():
        who = [name for name, row in admitted.items() if _name_state(row) == "admitted"]
        raise IsthmusError(
            f"{folder} has no run yet, and {', '.join(who) or 'nobody'} is admitted; begin one "
            "with `isthmus serve run EXPERIMENT.toml`"
        )
    plan = ServePlan.load(server)
    study, names = plan.study, plan.names
    tables = {
        name: {key: column.tolist() for key, column in read_arrays(path, schema).items()}
        for name, schema in TABLES.items()
        for path in [server.run / f"{name}.csv"]
    }
    rounds = tables["rounds"]
    done = rounds["round"][-1] if rounds["round"] else 0
    seconds = list(map(sum, zip(rounds["train_seconds"], rounds["evaluate_seconds"], strict=True)))
    pace = fmean(seconds[-RECENT:]) if done else None
    summary = read_summary(server.run)
    events, _ = read_events(server.events)
    status = _name_status(server, summary, events)
    left = None if pace is None else pace * (study.rounds - done)
    every = max(1, study.eval_every)
    following = min(study.rounds, (done // every + 1) * every)
    figures = _Figures(tables["clients"], tables["reliability"])
    return {
        "folder": str(folder),
        "run": str(server.run),
        "method": study.method["name"],
        "status": status,
        "reason": summary.reason or None,
        "rounds_done": done,
        "rounds": study.rounds,
        "seconds_per_round": pace,
        "seconds_left": 0.0 if status == "finished" else left,
        "last_round_ended": _find_time(server.run / "rounds.csv") if done else None,
        "down_bytes": sum(rounds["down_bytes"]),
        "up_bytes": sum(rounds["up_bytes"]),
        "waits": plan.model_dump(include={"quorum", "deadline", "grace", "least"}),
        "call": _describe_call(server, events) if status == "running" else None,
        "sites": _describe_sites(names, admitted, events, tables["calls"], figures),
        "newcomers": _describe_newcomers(tables["joins"], tables["newcomers"]),
        "evaluation": figures.describe(names),
        "chosen_on_test_data": figures.chosen and study.rule.on_test,
        "curves": figures.curves,
        "next_evaluation": following if done < study.rounds else None,
        "notes": [
            {"round": round, "note": note}
            for round, note in _list_rows(tables["notes"], "round", "note")[-LATEST:]
        ],
        "events": [
            {"at": str(event.get("at", "")), "text": str(event.get("text", event.get("event")))}
            for event in events[-LATEST:]
        ],
        "digest": summary.digest or None,
    }


def _name_status(
    server: ServerFolder, summary: RunSummary, events: Sequence[Mapping[str, Any]]
) -> str:
    """Return in a few words whether the run continues."""
    if summary.finished:
        return "finished"
    last = str(events[-1].get("event")) if events else ""
    if is_held(server.lock):
        return STATES.get(last, "running")
    return "stopped" if last == "stopped" else "nobody serves it"


def _describe_call(
    server: ServerFolder, events: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return how the current call stands; one of an earlier job no longer counts."""
    call = read_json(server.call)
    began = [str(event.get("at")) for event in events if event.get("event") == "job"]
    if not call or str(call["since"]) < max(began, default=""):
        return None
    outcomes = call["outcomes"]
    return {
        **{key: call[key] for key in ("round", "function", "since")},
        "asked": list(outcomes),
        "answered": [site for site, outcome in outcomes.items() if outcome == "answered"],
        "missing": {
            site: describe_outcome(outcome)
            for site, outcome in outcomes.items()
            if outcome not in ("", "answered")
        },
        "waiting": [site for site, outcome in outcomes.items() if not outcome],
    }


def _describe_sites(
    names: Sequence[str],
    admitted: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    calls: Mapping[str, Any],
    figures: "_Figures",
) -> list[dict[str, Any]]:
    lost = Counter(event.get("site") for event in events if event.get("event") == "lost")
    left_out = {event.get("site") for event in events if event.get("event") == "left-out"}
    outcomes: dict[int, list[str]] = defaultdict(list)
    last: dict[int, int] = {}
    for i, round, outcome in _list_rows(calls, "client", "round", "outcome"):
        outcomes[i].append(outcome)
        if count_as(outcome) in ("answered", "private"):
            last[i] = round
    rows = []
    for i, name in enumerate(names):
        row = admitted.get(name)
        state = _name_state(row)
        counts = Counter(map(count_as, outcomes[i]))
        rows.append(
            {
                "name": name,
                "client": i,
                "state": "left out" if state == "admitted" and name in left_out else state,
                "certificate_until": row["until"].isoformat() if row else None,
                "last_answered_round": last.get(i),
                "asked": len(outcomes[i]),
                **{kind: counts[kind] for kind in KINDS},
                "lost": lost[name],
                "left": row["left"].isoformat() if row and "left" in row else None,
                "why": _count_reasons(outcomes[i]),
                "figures": figures.latest[i],
            }
        )
    return rows


def _describe_newcomers(
    joins: Mapping[str, Any], figures: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return which other sites were asked to join, how it ended, and how their models do."""
    tested = {
        name: _to_number(top1)
        for name, model, split, top1 in _list_rows(figures, "data", "model", "split", "top1")
        if (model, split) == ("newcomer", "test")
    }
    asked: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, round, outcome in _list_rows(joins, "site", "round", "outcome"):
        asked[name].append((round, outcome))
    rows = []
    for name, calls in asked.items():
        joined = [round for round, outcome in calls if outcome == "answered"]
        rows.append(
            {
                "name": name,
                "asked": len(calls),
                "joined": len(joined),
                "last_joined_round": max(joined, default=None),
                "why": _count_reasons([outcome for _, outcome in calls]),
                "top1": tested.get(name),
            }
        )
    return rows


class _Figures:
    """How models did at each site when it was measured last, and over sites."""

    def __init__(self, clients: Mapping[str, Any], bins: Mapping[str, Any]) -> None:
        self.latest: dict[int, dict[str, Any]] = defaultdict(dict)  # by site
        self.chosen = False  # personal models were chosen on a path
        self._bins = bins
        tested: dict[tuple[str, int], list[float]] = defaultdict(list)
        keys = ("client", "model", "split", "round", "at", "top1", "loss", "n")
        for client, model, split, round, at, top1, loss, n in _list_rows(clients, *keys):
            if client == "server" or model not in MODELS:
                continue
            self.chosen |= model == "personal" and at != ""
            numbers = {"top1": _to_number(top1), "loss": _to_number(loss), "n": n}
            self.latest[int(client)][f"{model} {split}"] = {"round": round, **numbers}
            if split == "test" and isfinite(top1):
                tested[model, round].append(top1)
        self.last = max([*clients["round"], *bins["round"]], default=None)
        self.curves: dict[str, list[tuple[int, float]]] = {model: [] for model in MODELS}
        for (model, round), values in tested.items():
            self.curves[model].append((round, fmean(values)))

    def describe(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Return how models did in the last evaluation: over sites, and over all examples."""
        if self.last is None:
            return None
        cases = [(model, split) for model in MODELS for split in SPLITS]
        models = [self._describe_model(model, split, names) for model, split in cases]
        return {"round": self.last, "models": [each for each in models if each is not None]}

    def _describe_model(
        self, model: str, split: str, names: Sequence[str]
    ) -> dict[str, Any] | None:
        measured = {
            names[i]: row
            for i, found in sorted(self.latest.items())
            for row in [found.get(f"{model} {split}")]
            if row is not None and row["round"] == self.last and row["n"] > 0
        }
        keys = ("round", "model", "split", "n", "top1")
        where = (self.last, model, split)
        bins = [(n, top1) for *key, n, top1 in _list_rows(self._bins, *keys) if (*key,) == where]
        examples = sum(n for n, _ in bins)
        right = sum(n * top1 for n, top1 in bins if isfinite(top1))
        if not measured and not examples:
            return None
        return {
            "model": model,
            "split": split,
            "sites": list(measured),
            "mean_top1": _average([row["top1"] for row in measured.values()]),
            "mean_loss": _average([row["loss"] for row in measured.values()]),
            "examples": examples,
            "pooled_top1": right / examples if examples else None,
        }


def _list_rows(table: Mapping[str, Any], *keys: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[key] for key in keys), strict=True))


def _count_reasons(outcomes: Sequence[str]) -> dict[str, int]:
    """Return how often there was no answer, by the reason in words."""
    return dict(Counter(describe_outcome(each) for each in outcomes if each != "answered"))


def _name_state(row: Mapping[str, Any] | None) -> str:
    """Return what the server's folder holds of a site, in a word or two."""
    if row is None:
        return "not admitted"
    if row.get("revoked"):
        return "revoked"
    if "left" in row:
        return "left"
    ended = "until" in row and row["until"] < dt.datetime.now(dt.UTC)
    return "certificate ended" if ended else "admitted"


def _find_time(path: Path) -> str:
    return dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC).isoformat(timespec="seconds")


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _to_number(value: float) -> float | None:
    return value if isfinite(value) else None


def collect_site_status(site: SiteFolder) -> dict[str, Any]:
    """Return what a site received and sent, what it refused, and how its models do."""
    settings = read_table(site.settings)
    agreed = find_consent(site) if any(site.agreements.glob("*.toml")) else None
    lines = [facts for facts, _ in read_lines(site.audit)]
    events, _ = read_events(site.events)
    until, left = settings.get("until"), settings.get("left")
    return {
        "site": settings["name"],
        "server": f"{settings['host']}:{settings['port']}" if "host" in settings else None,
        "certificate_until": None if until is None else until.isoformat(),
        "left": None if left is None else str(left),
        "last_event": events[-1] if events else None,
        **_describe_agreement(site, agreed),
        **_describe_log(lines, "" if agreed is None else agreed.digest),
    }


def _describe_agreement(site: SiteFolder, agreed: Consent | None) -> dict[str, Any]:
    """Return what was agreed to, and how models did in its run."""
    if agreed is None:
        return {"agreement": None, "evaluations": [], "best_round": None, "alone": None}
    rows = read_json(site.state / f"{agreed.digest}.figures.json") or []
    losses = {row["t"] + 1: row["loss"] for row in rows if row["loss"] is not None}
    return {
        "agreement": list_terms(agreed),
        "evaluations": [{"round": row["t"] + 1, **row["figures"]} for row in rows],
        "best_round": min(losses, key=lambda round: losses[round]) if losses else None,
        "alone": read_json(site.alone(agreed.digest)),
    }


def list_terms(agreed: Consent) -> dict[str, Any]:
    """Return what was agreed to, without the experiment's text."""
    return {
        "digest": agreed.digest,
        "method": agreed.study.method["name"],
        "rounds": agreed.study.rounds,
        "client": None if agreed.newcomer else agreed.client,
        "clients": agreed.study.clients,
        **agreed.model_dump(mode="json", exclude={"experiment", "site", "options"}),
    }


def _describe_log(lines: Sequence[dict[str, Any]], digest: str) -> dict[str, Any]:
    """Return what was received and sent, also by round for the run that was agreed to."""
    rounds: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if "round" in line and line.get("run", digest) == digest:
            rounds[line["round"]].append(line)
    refused = [line for line in lines if line["refused"]]
    return {
        "calls": len(lines),
        "answered": len(lines) - len(refused),
        "refused": dict(Counter(line["refused"] for line in refused)),
        "got_bytes": sum(line["bytes"] for line in lines),
        "sent_bytes": sum(line["sent"] for line in lines),
        "last_call": lines[-1]["at"] if lines else None,
        "rounds": [
            {
                "round": round,
                "calls": len(calls),
                "got_bytes": sum(line["bytes"] for line in calls),
                "sent_bytes": sum(line["sent"] for line in calls),
                "refused": sum(bool(line["refused"]) for line in calls),
                "last": calls[-1]["at"],
            }
            for round, calls in sorted(rounds.items())
        ],
        "latest_refusals": [
            {
                "at": line["at"],
                "function": line.get("function"),
                "round": line.get("round"),
                "reason": REFUSALS.get(line["refused"], line["refused"]),
                "why": line.get("why", ""),
            }
            for line in refused[-LATEST:]
        ],
    }
