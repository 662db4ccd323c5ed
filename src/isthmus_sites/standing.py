"""How a site stands: what it got and sent, what it refused, how its models do."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from isthmus_sites.alone import read_alone
from isthmus_sites.audit import read_lines
from isthmus_sites.codec import REFUSALS
from isthmus_sites.consent import Consent
from isthmus_sites.events import read_events
from isthmus_sites.folders import SiteFolder, read_table
from isthmus_sites.models import SiteModels
from isthmus_sites.site import find_consent

LATEST = 5  # refused calls that are told one by one


def collect_standing(site: SiteFolder) -> dict[str, Any]:
    """Collects what the files of a site say."""
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


def _describe_agreement(site: SiteFolder, agreed: Consent | None) -> dict[str, Any]:
    """Says what was agreed to, and how models did in its run."""
    if agreed is None:
        return {"agreement": None, "evaluations": [], "best_round": None, "alone": None}
    experiment = agreed.read_experiment()
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
        "alone": read_alone(site, agreed.digest),
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
            for line in refused[-LATEST:]
        ],
    }
