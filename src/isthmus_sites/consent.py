"""What the people of a site agreed to: one experiment, named by its digest, and its terms."""

import hashlib
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from isthmus.data.federation import Federation
from isthmus.data.own.sites import check_deployable_schema
from isthmus.errors import IsthmusError, nearest
from isthmus.experiment.settings import ANYTHING, FACTS, Experiment
from isthmus.system.files import write_text
from isthmus_sites.folders import SiteFolder

DIGITS = 16  # hexadecimal, of a digest

Count = Annotated[int, Field(ge=0)]


class Consent(BaseModel):
    """An experiment, and on what terms a site takes part in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str  # its TOML, complete
    site: str
    data: str  # a path
    options: Mapping[str, Any] = {}  # for reading the data: label, split, ...
    disclose: tuple[str, ...] = ()  # functions that may say more than models and counts
    figures: bool = True  # the server may keep this site's own figures
    minimum_examples: Count = 20  # to train on; with fewer, nothing is sent
    minimum_label_count: Count = 5  # of any class it has, where label counts are disclosed
    newcomer: bool = False  # it takes part in no round, and builds a model from what they made

    @cached_property
    def study(self) -> Experiment:
        """The experiment."""
        return Experiment.parse(self.experiment)

    @cached_property
    def digest(self) -> str:
        """The name of what all sites of a run agree to."""
        return digest_experiment(self.study)

    @property
    def client(self) -> int:
        """The site's number in the run; that of a newcomer comes after all others'."""
        return self.study.clients if self.newcomer else find_client(self.study, self.site)

    @property
    def row(self) -> int:
        """Which client of its federation the site reads: a newcomer reads its own."""
        return 0 if self.newcomer else self.client

    def find_floor(self, data: Federation, *, counts: bool = False) -> str:
        """Return which minimum the site's data do not reach; with `counts`, also by class."""
        examples = data.sizes(self.row)[0]
        if examples < self.minimum_examples:
            return f"{examples} examples to train on, of at least {self.minimum_examples}"
        for label, count in enumerate(data.label_counts(self.row).tolist()) if counts else ():
            if 0 < count < self.minimum_label_count:
                return f"{count} of class {label}, of at least {self.minimum_label_count}"
        return ""

    def save(self, folder: Path) -> Path:
        """Write the consent into a folder, under its digest."""
        path = folder / f"{self.digest}.toml"
        write_text(path, tomli_w.dumps(self.model_dump(exclude_none=True)))
        return path

    @classmethod
    def load(cls, path: Path) -> "Consent":
        """Read what `save` wrote."""
        try:
            return cls(**tomllib.loads(path.read_text("utf-8")))
        except (OSError, ValueError, ValidationError) as error:
            reason = str(error).splitlines()[0]
            raise IsthmusError(
                f"{path} cannot be used ({reason}); call `isthmus join agree` again"
            ) from None


def find_consent(site: SiteFolder) -> Consent:
    """Return what the people of a site agreed to last."""
    files = sorted(site.agreements.glob("*.toml"), key=lambda file: file.stat().st_mtime_ns)
    if not files:
        raise IsthmusError(
            f"{site.root} has agreed to nothing; call `isthmus join agree EXPERIMENT.toml` first"
        )
    return Consent.load(files[-1])


def digest_experiment(experiment: Experiment) -> str:
    """Return the name of an experiment: equal names, equal settings, sites and schema."""
    return hashlib.sha256(experiment.toml().encode()).hexdigest()[:DIGITS]


def find_client(experiment: Experiment, site: str) -> int:
    """Return the number of a site in a run."""
    names = list(experiment.data.get("names", ()))
    if site not in names:
        raise IsthmusError(
            f"the experiment is for {', '.join(names) or 'no sites'}, and this is {site}; "
            f"{nearest(site, names) if names else 'name sites in data.names'}; a site that is "
            "to receive a model without training joins with --newcomer"
        )
    return names.index(site)


def check_deployable(experiment: Experiment) -> None:
    """Refuse an experiment that cannot be run at sites as it would be in simulation."""
    for name, facts in FACTS.items():
        given, wanted = getattr(experiment, name), facts.at_sites
        given = given["name"] if isinstance(given, Mapping) else given
        if wanted is not ANYTHING and given != wanted:
            raise IsthmusError(f"{name}={given} cannot be had at sites; set {name}={wanted}")
    check_deployable_schema(experiment.data.get("schema") or {})


def finalize_experiment(experiment: Experiment) -> Experiment:
    """Fill in what sites have to agree on: their number, and how steps are computed."""
    names = experiment.data.get("names", ())
    given = experiment.table() | {"engine": "loop", "clients": len(names)}
    given["step"] = "eager" if experiment.step == "auto" else experiment.step
    given["clients_per_round"] = min(experiment.clients_per_round, max(len(names), 1))
    complete = Experiment(**given)
    check_deployable(complete)
    return complete
