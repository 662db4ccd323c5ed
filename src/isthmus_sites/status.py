"""How a deployed run stands, at its server and at a site: collected from files alone."""

import datetime as dt
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isthmus.run.columns import read_arrays
from isthmus.run.record import RunSummary, read_summary
from isthmus.run.schema import (
    CALLS,
    CLIENTS,
    JOINS,
    NEWCOMERS,
    NOTES,
    RELIABILITY,
    ROUNDS,
    RecordColumn,
)
from isthmus.selection import RULES
from isthmus_sites.audit import read_lines
from isthmus_sites.folders import SiteFolder, read_json, read_table
from isthmus_sites.protocol import KINDS, REFUSALS, count_as, describe_outcome, read_events

if TYPE_CHECKING:
    from isthmus_sites.consent import Consent

RECENT = 10  # rounds over which the pace is measured
LATEST = 6  # notes and events that are shown
REFUSALS_SHOWN = 5
MODELS, SPLITS = ("personal", "shared"), ("validation", "test")
# What a process is at that keeps a run going, by the last thing that it said.
BEGINNING = ("", "done", "stopped", "renewed", "server-lost", "stuck", "trouble")
WHILE_SERVED = {
    **dict.fromkeys(BEGINNING, "starting"),
    **dict.fromkeys(("server", "waiting"), "waiting for sites"),
}


class AdmittedSite(NamedTuple):
    """What the server's folder says of a site."""

    name: str
    admitted: bool = False
    revoked: bool = False
    left: dt.datetime | None = None  # when it said that it takes part no more
    until: dt.datetime | None = None  # its certificate
    lost: int = 0  # how often a round had to be played again because it was gone
    left_out: bool = False  # it failed too often


class ServedRun(NamedTuple):
    """What the server's folder says of its run."""

    folder: str
    run: Path
    method: str
    rounds: int
    eval_every: int
    selection: str  # the rule that chooses personal models on a path
    terms: Mapping[str, float]  # quorum, deadline, grace, least
    sites: Sequence[AdmittedSite]  # in the order of their numbers in the run
    served: bool  # whether a process keeps it going
    events: Sequence[Mapping[str, Any]]
    call: Mapping[str, Any] = {}  # the last one: its round, function, when, and what became of it


def collect(served: ServedRun) -> dict[str, Any]:
    """Collects how a run stands, from its files alone; before its first round it has few."""
    rounds = _read(served, "rounds", ROUNDS)
    done = int(rounds["round"][-1]) if len(rounds["round"]) else 0
    seconds = rounds["train_seconds"] + rounds["evaluate_seconds"]
    pace = float(seconds[-RECENT:].mean()) if done else None
    summary = read_summary(served.run)
    status = _judge(served, summary)
    left = None if pace is None else pace * (served.rounds - done)
    notes = _read(served, "notes", NOTES)
    figures = _read(served, "clients", CLIENTS)
    names = [site.name for site in served.sites]
    return {
        "folder": served.folder,
        "run": str(served.run),
        "method": served.method,
        "status": status,
        "reason": summary.reason or None,
        "rounds_done": done,
        "rounds": served.rounds,
        "seconds_per_round": pace,
        "seconds_left": 0.0 if status == "finished" else left,
        "last_round_ended": _find_time(served.run / "rounds.csv") if done else None,
        "down_bytes": int(rounds["down_bytes"].sum()),
        "up_bytes": int(rounds["up_bytes"].sum()),
        "waits": dict(served.terms),
        "call": _describe_call(served) if status == "running" else None,
        "sites": _describe_sites(served, figures),
        "newcomers": _describe_newcomers(served),
        "evaluation": _describe_evaluation(served, figures, names),
        "chosen_on_test_data": _is_chosen_on_test(served, figures),
        "curves": _draw_curves(figures),
        "next_evaluation": _find_next(served, done),
        "notes": [
            {"round": int(round), "note": str(note)}
            for round, note in zip(notes["round"][-LATEST:], notes["note"][-LATEST:], strict=True)
        ],
        "events": [
            {"at": str(event.get("at", "")), "text": str(event.get("text", event.get("event")))}
            for event in served.events[-LATEST:]
        ],
        "digest": summary.digest or None,
    }


def _judge(served: ServedRun, summary: RunSummary) -> str:
    """Says in a few words whether the run goes on."""
    if summary.finished:
        return "finished"
    last = str(served.events[-1].get("event")) if served.events else ""
    if served.served:
        return WHILE_SERVED.get(last, "running")
    return "stopped" if last == "stopped" else "nobody serves it"


def _describe_call(served: ServedRun) -> dict[str, Any] | None:
    """Says how the call under way stands; one of an earlier job counts no more."""
    began = [str(event.get("at")) for event in served.events if event.get("event") == "job"]
    if not served.call or str(served.call["since"]) < max(began, default=""):
        return None
    outcomes = served.call["outcomes"]
    missing = {site: why for site, why in outcomes.items() if why not in ("", "answered")}
    return {
        **{key: served.call[key] for key in ("round", "function", "since")},
        "asked": list(outcomes),
        "answered": [site for site, why in outcomes.items() if why == "answered"],
        "missing": missing,
        "waiting": [site for site, why in outcomes.items() if not why],
    }


def _read(served: ServedRun, table: str, schema: Sequence[RecordColumn]) -> dict[str, Any]:
    """Reads a table; one that is not written yet has no rows."""
    return dict(read_arrays(served.run / f"{table}.csv", schema))


def _describe_sites(served: ServedRun, figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = _read(served, "calls", CALLS)
    rows = []
    for i, site in enumerate(served.sites):
        mine = calls["client"] == i
        texts = calls["outcome"][mine].tolist()
        ends = [count_as(text) for text in texts]
        counts = Counter(ends)
        answered = [
            int(round)
            for round, end in zip(calls["round"][mine], ends, strict=True)
            if end in ("answered", "private")
        ]
        rows.append(
            {
                "name": site.name,
                "client": i,
                "state": _name_state(site),
                "certificate_until": None if site.until is None else site.until.isoformat(),
                "last_answered_round": max(answered, default=None),
                "asked": len(ends),
                **{end: counts[end] for end in KINDS},
                "lost": site.lost,
                "left": None if site.left is None else site.left.isoformat(),
                "why": _count_reasons(texts),
                "figures": _find_figures(figures, i),
            }
        )
    return rows


def _describe_newcomers(served: ServedRun) -> list[dict[str, Any]]:
    """Says which other sites were asked to join, what became of it, and how their models did."""
    joins, figures = _read(served, "joins", JOINS), _read(served, "newcomers", NEWCOMERS)
    rows = []
    for name in dict.fromkeys(joins["site"].tolist()):
        mine = joins["site"] == name
        texts = joins["outcome"][mine].tolist()
        joined = joins["round"][mine & (joins["outcome"] == "answered")]
        measured = (figures["data"] == name) & (figures["model"] == "newcomer")
        measured &= figures["split"] == "test"
        last = np.flatnonzero(measured)
        rows.append(
            {
                "name": name,
                "asked": len(texts),
                "joined": len(joined),
                "last_joined_round": int(joined[-1]) if len(joined) else None,
                "why": _count_reasons(texts),
                "top1": _to_number(figures["top1"][last[-1]]) if len(last) else None,
            }
        )
    return rows


def _count_reasons(outcomes: Sequence[str]) -> dict[str, int]:
    """Return how often there was no answer, by the reason in words."""
    return dict(Counter(map(describe_outcome, outcomes)) - Counter({"answered": len(outcomes)}))


def _name_state(site: AdmittedSite) -> str:
    if site.revoked:
        return "revoked"
    if site.left is not None:
        return "left"
    if not site.admitted:
        return "not admitted"
    if site.until is not None and site.until < dt.datetime.now(dt.UTC):
        return "certificate ended"
    return "left out" if site.left_out else "admitted"


def _find_figures(figures: Mapping[str, Any], client: int) -> dict[str, Any]:
    """Finds how the models did at one site when it was measured last, where that may be kept."""
    found = {}
    for model in MODELS:
        for split in SPLITS:
            rows = _choose(figures, model, split) & (figures["client"] == str(client))
            if rows.any():
                last = np.flatnonzero(rows)[-1]
                found[f"{model} {split}"] = {
                    "round": int(figures["round"][last]),
                    "top1": _to_number(figures["top1"][last]),
                    "loss": _to_number(figures["loss"][last]),
                    "n": int(figures["n"][last]),
                }
    return found


def _describe_evaluation(
    served: ServedRun, figures: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any] | None:
    """Says how models did in the last evaluation: over sites, and over all examples together."""
    pooled = _read(served, "reliability", RELIABILITY)
    rounds = [int(table["round"][-1]) for table in (figures, pooled) if len(table["round"])]
    if not rounds:
        return None
    last, models = max(rounds), []
    for model in MODELS:
        for split in SPLITS:
            rows = _choose(figures, model, split) & (figures["round"] == last)
            rows &= figures["n"] > 0
            bins = (pooled["model"] == model) & (pooled["split"] == split)
            bins &= pooled["round"] == last
            n = pooled["n"][bins]
            right = np.nan_to_num(n * pooled["top1"][bins]).sum()
            if rows.any() or n.sum():
                of = [names[int(client)] for client in figures["client"][rows]]
                means = {name: figures[name][rows] for name in ("top1", "loss")}
                models.append(
                    {
                        "model": model,
                        "split": split,
                        "sites": of,
                        "mean_top1": _to_number(means["top1"].mean()) if of else None,
                        "mean_loss": _to_number(means["loss"].mean()) if of else None,
                        "examples": int(n.sum()),
                        "pooled_top1": float(right / n.sum()) if n.sum() else None,
                    }
                )
    return {"round": last, "models": models}


def _is_chosen_on_test(served: ServedRun, figures: Mapping[str, Any]) -> bool:
    """Tells whether personal models were chosen on the test data that they are measured on."""
    chosen = (figures["model"] == "personal") & (figures["at"] != "")
    rule = RULES.get(served.selection)
    return bool(chosen.any()) and rule is not None and rule.on_test


def _draw_curves(figures: Mapping[str, Any]) -> dict[str, list[tuple[int, float]]]:
    """Gives the mean top-1 over sites' test parts after each evaluated round, by model."""
    curves = {}
    for model in MODELS:
        rows = _choose(figures, model, "test") & ~np.isnan(figures["top1"])
        rounds, where = np.unique(figures["round"][rows], return_inverse=True)
        means = np.bincount(where, weights=figures["top1"][rows]) / np.bincount(where)
        curves[model] = list(zip(rounds.tolist(), means.tolist(), strict=True))
    return curves


def _choose(figures: Mapping[str, Any], model: str, split: str) -> Any:
    rows = (figures["model"] == model) & (figures["split"] == split)
    return rows & (figures["client"] != "server")


def _find_next(served: ServedRun, done: int) -> int | None:
    """Finds the round after which models are measured next; the last one always is."""
    every = max(1, served.eval_every)
    return min(served.rounds, (done // every + 1) * every) if done < served.rounds else None


def _find_time(path: Path) -> str:
    return dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC).isoformat(timespec="seconds")


def _to_number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def collect_standing(site: SiteFolder) -> dict[str, Any]:
    """Collects what the files of a site say."""
    from isthmus_sites.consent import find_consent

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
        **_describe_calls(lines, "" if agreed is None else agreed.digest),
    }


def _describe_agreement(site: SiteFolder, agreed: "Consent | None") -> dict[str, Any]:
    """Says what was agreed to, and how models did in its run."""
    from isthmus_sites.state import SiteModels

    if agreed is None:
        return {"agreement": None, "evaluations": [], "best_round": None, "alone": None}
    experiment = agreed.study
    rows = SiteModels(site.state / f"{agreed.digest}.lmdb").read_figures()
    losses = {row["t"] + 1: row["loss"] for row in rows if row["loss"] is not None}
    terms = agreed.model_dump(include={"figures", "minimum_examples", "minimum_label_count"})
    return {
        "agreement": {
            "digest": agreed.digest,
            "method": experiment.method["name"],
            "rounds": experiment.rounds,
            "client": None if agreed.newcomer else agreed.client,
            "newcomer": agreed.newcomer,
            "clients": experiment.clients,
            "data": agreed.data,
            "disclose": list(agreed.disclose),
            **terms,
        },
        "evaluations": [{"round": row["t"] + 1, **row["figures"]} for row in rows],
        "best_round": min(losses, key=lambda round: losses[round]) if losses else None,
        "alone": read_json(site.alone(agreed.digest)),
    }


def _describe_calls(lines: Sequence[dict[str, Any]], digest: str) -> dict[str, Any]:
    """Adds up what was got and sent; by round for the run that was agreed to."""
    rounds: dict[int, dict[str, Any]] = {}
    for line in lines:
        if "round" in line and line.get("run", digest) == digest:
            row = rounds.setdefault(
                line["round"],
                {"round": line["round"], "calls": 0, "got_bytes": 0, "sent_bytes": 0, "refused": 0},
            )
            row["calls"] += 1
            row["got_bytes"] += line["bytes"]
            row["sent_bytes"] += line["sent"]
            row["refused"] += bool(line["refused"])
            row["last"] = line["at"]
    refused = [line for line in lines if line["refused"]]
    return {
        "calls": len(lines),
        "answered": len(lines) - len(refused),
        "refused": dict(Counter(line["refused"] for line in refused)),
        "got_bytes": sum(line["bytes"] for line in lines),
        "sent_bytes": sum(line["sent"] for line in lines),
        "last_call": lines[-1]["at"] if lines else None,
        "rounds": [rounds[round] for round in sorted(rounds)],
        "latest_refusals": [
            {
                "at": line["at"],
                "function": line.get("function"),
                "round": line.get("round"),
                "reason": REFUSALS.get(line["refused"], line["refused"]),
                "why": line.get("why", ""),
            }
            for line in refused[-REFUSALS_SHOWN:]
        ],
    }
