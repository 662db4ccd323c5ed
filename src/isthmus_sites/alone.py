"""What a site's model would be worth without any other: trained on its own data, told to nobody."""

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

from isthmus.cohort import Clients, Round
from isthmus.engines.base import one_thread
from isthmus.evaluation import score
from isthmus.experiment.settings import Experiment
from isthmus.method import State
from isthmus.methods.local import Local
from isthmus.system.files import write_text
from isthmus_sites.consent import digest_experiment
from isthmus_sites.folders import SiteFolder
from isthmus_sites.preparation import RegisteredData, propose_part
from isthmus_sites.site import prepare, read_share


def train_alone(site: SiteFolder, experiment: Experiment, name: str, data: RegisteredData) -> Any:
    """Trains by the method `local` with the experiment's network and settings; keeps the figures.

    It trains in every round, until its validation loss gets no better; where there are no
    validation data, to the last round. These are the bits of `local` in simulation, but where
    inputs are scaled by sums over all sites: alone, a site has its own.
    """
    part = propose_part(experiment, name, data)
    budget = "full" if experiment.validation else "participation"
    method = {"name": "local", "budget": budget}
    setting, _ = prepare(Experiment(**(experiment.table() | {"method": method})))
    setting = setting._replace(federation=read_share(part))
    client = part.row
    local = setting.method
    assert isinstance(local, Local)
    own: dict[int, State] = {}
    began, t = time.monotonic(), 0
    with one_thread():
        for t in range(experiment.rounds):
            round = Round(setting, t, own)
            _, reply = Clients([client], round).map(local.local)
            own = {**own, **round.changed}
            if not bool(reply.training.all()):
                break
        one = Clients([client], Round(setting, t, own))
        scores = score(setting, one, local.deliver(local.init(setting.task), one))
    found = {
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "rounds": t + 1,
        "seconds": time.monotonic() - began,
        "figures": {
            f"alone {each.split}": {
                "top1": float(each.figures.top1[0]),
                "loss": float(each.figures.loss[0]),
                "n": int(each.figures.n[0]),
            }
            for each in scores
            if each.model == "personal"
        },
    }
    path = _find_file(site, digest_experiment(experiment))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(found, indent=1) + "\n")
    return found


def read_alone(site: SiteFolder, digest: str) -> dict[str, Any] | None:
    """Reads what `train_alone` kept for an experiment, if it was called."""
    try:
        found = json.loads(_find_file(site, digest).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _find_file(site: SiteFolder, digest: str) -> Path:
    return site.state / f"{digest}.alone.json"
