"""What the people of a site do before it takes part: register data, look, and consent."""

import datetime as dt
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.cohort import Clients, Round
from isthmus.context import RunContext
from isthmus.data.own.own_files import detect_kind, find_own_files
from isthmus.engines.base import one_thread
from isthmus.errors import IsthmusError, nearest
from isthmus.evaluation import score
from isthmus.experiment.settings import Experiment, read
from isthmus.method import State
from isthmus.methods.local import Local
from isthmus.report.tables.formats import format_bytes
from isthmus.run.lock import open_lock
from isthmus.system.files import explain_unwritable, write_text
from isthmus_sites import exchange
from isthmus_sites.consent import (
    Consent,
    finalize_experiment,
    find_client,
)
from isthmus_sites.folders import SiteFolder, make_private, read_table, write_table
from isthmus_sites.forms import Forms, learn, learn_newcomer, measure_form
from isthmus_sites.site import build_setting, prepare_part, read_share


class RegisteredData(NamedTuple):
    """Data that a site has: where they are, and how their file is read."""

    name: str
    path: str
    options: Mapping[str, Any]


def register(site: SiteFolder, path: str, options: Mapping[str, Any], name: str = "") -> str:
    """Register data by name, with absolute paths; the last one registered comes first."""
    place = find_own_files(path, Path())
    options = {"name": detect_kind(place), **options}
    name = name or place.stem
    known = read_table(site.data) if site.data.exists() else {}
    known.pop(name, None)
    write_table(site.data, {name: {"path": str(place), "options": options}, **known})
    return name


def find_data(site: SiteFolder, name: str = "") -> RegisteredData:
    """Return registered data: of this name, or those that were registered last."""
    known = read_table(site.data) if site.data.exists() else {}
    if not known:
        raise IsthmusError(
            f"{site.root} has no data; register them with `isthmus join check --data FILE`"
        )
    if name and name not in known:
        raise IsthmusError(f"no data are registered as {name!r}; {nearest(name, list(known))}")
    chosen = name or next(iter(known))
    return RegisteredData(chosen, known[chosen]["path"], known[chosen]["options"])


def read_deployable(path: Path) -> Experiment:
    """Read an experiment for sites, complete to the last setting; all sites get the same."""
    return finalize_experiment(Experiment(**read(path)))


def propose(experiment: Experiment, site: str, data: RegisteredData, **terms: Any) -> Consent:
    """Return what a site could agree to: as a client or, where it is none, as a newcomer."""
    newcomer = site not in experiment.data.get("names", (site,))
    part: dict[str, Any] = {
        "site": site,
        "data": data.path,
        "options": data.options,
        "newcomer": newcomer,
    }
    return Consent(experiment=experiment.toml(), **(part | terms))


def preview(part: Consent) -> Iterator[str]:
    """Describe what taking part would mean, after playing some rounds on the site's data."""
    study = part.study
    setting, forms = prepare_part(part)
    data, members = read_share(part), build_setting(study)
    began = time.process_time()
    if part.newcomer:
        learn_newcomer(members, data)
    else:
        learn(members._replace(federation=data), part.client)
    seconds = time.process_time() - began
    train, validation, test = data.sizes(part.row)
    about = setting.method.about()
    counts = data.label_counts(part.row).tolist()
    yield f"examples: {train:,} to train on, {validation:,} to choose on, {test:,} to test on"
    names = data.arrays.labels or range(len(counts))
    held = (f"{name}: {n:,}" for name, n in zip(names, counts, strict=True) if n)
    yield f"classes: {', '.join(held)}"
    yield from (f"note: {note}" for note in data.notes)
    yield f"method: {study.method['name']}, {study.rounds} rounds"
    if part.newcomer:
        members_named = ", ".join(study.data["names"])
        yield f"this site is none of {members_named}: it could join as a newcomer, with --newcomer"
        yield f"has a model: {about.newcomer}; it takes part in no round"
        yield "would leave this site: how its models do, unless --no-figures"
    else:
        yield f"would leave this site: {about.up}; its counts of examples; how its models do"
    yield f"would stay: the data; {about.home}; the personal models"
    for function, disclosed in list_disclosures(setting, forms).items():
        yield f"would disclose, in {function}: {disclosed}; only with --disclose {function}"
    sent = {form.function: form.reply for form in forms.known if form.purpose == "train"}
    sends = f"a round sends {format_bytes(sum(map(measure_form, sent.values())))}; "
    yield f"{'' if part.newcomer else sends}tried here in {seconds:.1f} s"


def list_disclosures(setting: RunContext, forms: Forms) -> dict[str, str]:
    """Return what the calls of `forms` tell besides models and counts, by name.

    A site agrees to each of these by its name. A newcomer gets fewer calls.
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
    newcomer: bool = False,
    **terms: Any,
) -> Consent:
    """Record that this site takes part in exactly this experiment, on these terms of Consent."""
    name = str(read_table(site.settings)["name"])
    names = list(experiment.data.get("names", ()))
    if newcomer and name in names:
        raise IsthmusError(
            f"{name} is client {names.index(name)} of the experiment; leave --newcomer out"
        )
    if not newcomer:
        find_client(experiment, name)
    agreed = propose(experiment, name, data, newcomer=newcomer, **terms)
    disclosing = list_disclosures(*prepare_part(agreed))
    for function in agreed.disclose:
        if function not in disclosing:
            known = list(disclosing)
            raise IsthmusError(
                f"disclose={function} names no function of the method that discloses something; "
                f"{nearest(function, known) if known else 'there is none'}"
            )
    lacking = agreed.find_floor(read_share(agreed))
    if lacking:
        raise IsthmusError(f"{data.path} has {lacking}; lower --minimum-examples if that is meant")
    agreed.save(site.agreements)
    return agreed


def reset_state(site: SiteFolder, digest: str) -> Path:
    """Move what a site holds of an earlier run of an experiment into a folder of its own."""
    files = [file for file in site.state.glob(f"{digest}.*") if file.suffix != ".lock"]
    if not files:
        raise IsthmusError(f"{site.state} holds nothing of {digest}; leave --reset out")
    archive = site.state / f"{digest}-{time.strftime('%Y%m%d-%H%M%S')}"
    with open_lock(site.state / f"{digest}.lock"), explain_unwritable(archive):
        make_private(archive)
        for file in files:
            file.rename(archive / file.name)
    return archive


def train_alone(site: SiteFolder, part: Consent) -> dict[str, Any]:
    """Train by the method `local` with the experiment's network and settings; keep the figures.

    It trains in every round, until its validation loss gets no better; where there are no
    validation data, to the last round. These are the bits of `local` in simulation, but where
    inputs are scaled by sums over all sites: alone, a site has its own.
    """
    experiment = part.study
    budget = "full" if experiment.validation else "participation"
    method = {"name": "local", "budget": budget}
    setting = build_setting(Experiment(**(experiment.table() | {"method": method})))
    setting = setting._replace(federation=read_share(part))
    local = setting.method
    assert isinstance(local, Local)
    own: dict[int, State] = {}
    began, t = time.monotonic(), 0
    with one_thread():
        for t in range(experiment.rounds):
            round = Round(setting, t, own)
            _, reply = Clients([part.row], round).map(local.local)
            own = {**own, **round.changed}
            if not bool(reply.training.all()):
                break
        one = Clients([part.row], Round(setting, t, own))
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
    make_private(site.state)
    write_text(site.alone(part.digest), json.dumps(found, indent=1) + "\n")
    return found
