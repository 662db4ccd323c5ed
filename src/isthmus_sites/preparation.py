"""What the people of a site do before it takes part: register data, look, and consent."""

import datetime as dt
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.cohort import Clients, Round
from isthmus.context import RunContext
from isthmus.data.federation import Federation
from isthmus.data.own.own_files import detect_kind, find_own_files
from isthmus.engines.base import one_thread
from isthmus.errors import IsthmusError, nearest
from isthmus.evaluation import score
from isthmus.experiment.settings import Experiment, read
from isthmus.method import State
from isthmus.methods.local import Local
from isthmus.run.lock import open_lock
from isthmus.system.files import explain_unwritable, write_text
from isthmus_sites import exchange
from isthmus_sites.consent import (
    Consent,
    check_disclosures,
    check_newcomer,
    digest_experiment,
    finalize_experiment,
    find_client,
)
from isthmus_sites.folders import SiteFolder, make_private, read_table, write_table
from isthmus_sites.forms import Form, Forms, learn, learn_newcomer, measure_form
from isthmus_sites.site import build_setting, prepare, prepare_part, read_share
from isthmus_sites.status import find_alone


class RegisteredData(NamedTuple):
    """Data that a site has: where they lie, and how their file is read."""

    name: str
    path: str
    options: Mapping[str, Any]


class Preview(NamedTuple):
    """What taking part would mean, found out without telling anybody."""

    experiment: Experiment
    data: Federation
    row: int  # whose data these are, in them
    newcomer: bool  # the site is none of the experiment's clients
    forms: tuple[Form, ...]
    seconds: float  # that it computed, for a few rounds and their evaluations
    discloses: Mapping[str, str]  # by function: what it tells besides models and counts

    @property
    def bytes_up(self) -> int:
        """What one round of training sends."""
        sizes = {
            form.function: measure_form(form.reply)
            for form in self.forms
            if form.purpose == "train"
        }
        return sum(sizes.values())


def register(site: SiteFolder, path: str, options: Mapping[str, Any], name: str = "") -> str:
    """Registers data by name, with absolute paths; the last one registered comes first."""
    place = find_own_files(path, Path())
    options = {"name": detect_kind(place), **options}
    name = name or place.stem
    known = read_table(site.data) if site.data.exists() else {}
    known.pop(name, None)
    write_table(site.data, {name: {"path": str(place), "options": options}, **known})
    return name


def find_data(site: SiteFolder, name: str = "") -> RegisteredData:
    """Finds registered data: of this name, or those that were registered last."""
    known = read_table(site.data) if site.data.exists() else {}
    if not known:
        raise IsthmusError(
            f"{site.root} has no data; expected some that are registered; call "
            "`isthmus join check --data FILE` first"
        )
    if name and name not in known:
        raise IsthmusError(f"no data are registered as {name!r}; {nearest(name, list(known))}")
    chosen = name or next(iter(known))
    return RegisteredData(chosen, known[chosen]["path"], known[chosen]["options"])


def read_deployable(path: Path) -> Experiment:
    """Reads an experiment for sites, complete to the last setting; all sites get the same."""
    return finalize_experiment(Experiment(**read(path)))


def preview(experiment: Experiment, site: str, data: RegisteredData) -> Preview:
    """Reads a site's data as the experiment wants them, and plays its turning points here alone."""
    part = propose_part(experiment, site, data)
    setting, forms = prepare_part(part)
    mine, members = read_share(part), build_setting(experiment)
    began = time.process_time()
    if part.newcomer:
        learn_newcomer(members, mine)
    else:
        learn(members._replace(federation=mine), part.client)
    seconds = time.process_time() - began
    discloses = list_disclosures(setting, forms)
    return Preview(experiment, mine, part.row, part.newcomer, forms.known, seconds, discloses)


def propose_part(experiment: Experiment, site: str, data: RegisteredData) -> Consent:
    """Gives what a site could agree to: as a client or, where it is none, as a newcomer."""
    return Consent(
        experiment=experiment.toml(),
        site=site,
        data=data.path,
        options=data.options,
        newcomer=site not in experiment.data.get("names", (site,)),
    )


def list_disclosures(setting: RunContext, forms: Forms) -> dict[str, str]:
    """Lists what tells more than models and counts, and what it tells: a site agrees to each.

    `forms` are those of what it is asked: a newcomer is asked less.
    """
    asked = {form.function for form in forms.known}
    calls = setting.method.about().calls
    told = {name: words for name, words in calls.items() if words and name in asked}
    if exchange.MEANS in asked:
        told[exchange.DISCLOSED] = exchange.TELLS
    return told


def consent(
    site: SiteFolder,
    experiment: Experiment,
    data: RegisteredData,
    *,
    disclose: Sequence[str] = (),
    figures: bool = True,
    minimum_examples: int = 20,
    minimum_label_count: int = 5,
    newcomer: bool = False,
) -> Consent:
    """Writes down that this site takes part in exactly this experiment, on these terms."""
    name = read_table(site.settings)["name"]
    if newcomer:
        check_newcomer(experiment, name)
    else:
        find_client(experiment, name)
    agreed = Consent(
        experiment=experiment.toml(),
        site=name,
        data=data.path,
        options=data.options,
        disclose=tuple(disclose),
        figures=figures,
        minimum_examples=minimum_examples,
        minimum_label_count=minimum_label_count,
        newcomer=newcomer,
    )
    check_disclosures(list_disclosures(*prepare_part(agreed)), agreed.disclose)
    lacking = agreed.refuse_floors(read_share(agreed))
    if lacking:
        raise IsthmusError(
            f"{data.path} has {lacking}; expected enough that nothing is sent of a few people; "
            "lower it with --minimum-examples if that is meant"
        )
    agreed.save(site.agreements)
    return agreed


def set_aside(site: SiteFolder, digest: str) -> Path:
    """Moves what a site holds of an earlier run of an experiment into a folder of its own."""
    files = [file for file in site.state.glob(f"{digest}.*") if file.suffix != ".lock"]
    if not files:
        raise IsthmusError(
            f"{site.state} holds nothing of {digest}; expected an earlier run of it; leave "
            "--afresh out"
        )
    aside = site.state / f"{digest}-{time.strftime('%Y%m%d-%H%M%S')}"
    with open_lock(site.state / f"{digest}.lock"), explain_unwritable(aside):
        make_private(aside)
        for file in files:
            file.rename(aside / file.name)
    return aside


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
    path = find_alone(site, digest_experiment(experiment))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(found, indent=1) + "\n")
    return found
