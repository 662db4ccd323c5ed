"""What is kept of a run that was made again: a small JSON file with its experiment and numbers."""

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.experiment.registry import complete
from isthmus.experiment.settings import FACTS, Experiment, list_filled
from isthmus.metrics import spread
from isthmus.metrics.metric import METRICS
from isthmus.run.columns import Floats
from isthmus.run.record import RecordedRun
from isthmus.system.files import write_text
from isthmus.system.machine import count_cores
from isthmus_papers.number import LAMBDA, Number

DIGITS = 6  # of what figures draw
LATE = 10  # evaluations at the end of a run, whose mean tells a level from a swing
# Options of methods that records from before lack, and what they were.
LATER = {
    "ditto.proximity": "squared",
    "fedsimsup.starts": "equal",
    "fedsimsup-tcl.starts": "equal",
}
RESULTS = "results"
COMPARED = ("top1", "loss")
CHOSEN_BY = ("loss", "top1")  # on validation data, of which nothing else is kept
ROUNDING = 0.01  # the most by which a long run on another machine may differ
# Methods that train as another does, whose shared model each client tunes before it is evaluated.
TUNED = {"fedavg-lu": "fedavg", "fedprox-lu": "fedprox"}


class MeasuredNumber(NamedTuple):
    """One number of a run's last evaluation, named as isthmus_papers.number does."""

    metric: str
    model: str
    data: str
    summary: str
    clients: str
    value: float
    deviation: float | None = None  # over clients
    late: float | None = None  # mean of the last evaluations
    late_deviation: float | None = None  # over them


class RunRecord(NamedTuple):
    """A run: what was asked for, what came out, what it took and where."""

    experiment: Mapping[str, Any]
    digest: str = ""
    federation: str = ""
    rounds: int = 0
    seconds: float = 0.0
    machine: str = ""
    versions: Mapping[str, str] = MappingProxyType({})
    numbers: tuple[MeasuredNumber, ...] = ()
    curve: Mapping[str, Any] = MappingProxyType({})  # top-1 at each evaluated round
    path: Mapping[str, Any] = MappingProxyType({})  # top-1 at each place, after the last round
    step: str = ""  # eager or compiled; of older records it is not known
    failed: str = ""  # why it has no numbers: it diverged, and would again

    @property
    def identity(self) -> str:
        """Name what was asked for."""
        return identify(Experiment(**self.experiment))

    def find(self, number: Number) -> MeasuredNumber | None:
        """Return what was measured of a number."""
        names = (number.metric, number.model, number.data, number.summary, number.clients)
        return next((each for each in self.numbers if each[:5] == names), None)


class Agreement(NamedTuple):
    """How a run came out beside a record of the same experiment."""

    largest: float  # difference of a top-1 or a loss
    text: str


def compare(ours: RunRecord, kept: RunRecord) -> Agreement:
    """Compare a run that was made again with its record."""
    theirs = {each[:5]: each.value for each in kept.numbers if each.metric in COMPARED}
    apart = [abs(each.value - theirs.get(each[:5], each.value)) for each in ours.numbers]
    largest = max(apart, default=0.0)
    if ours.digest == kept.digest:
        return Agreement(largest, f"digest {ours.digest}, as in the record")
    by = ", ".join(filter(None, [kept.machine, f"torch {kept.versions.get('torch')}", kept.step]))
    there = f"{kept.digest} in the record ({by}); numbers differ by {largest:.1g}"
    return Agreement(largest, f"digest {ours.digest}; {there}")


def identify(experiment: Experiment) -> str:
    """Name an experiment by all that decides its numbers; equal ones are one run.

    >>> identify(Experiment(seed=1)) == identify(Experiment(seed=1, engine="loop"))
    True
    """
    filled, later = list_filled("placement"), _list_later(experiment.method["name"])
    settings = {
        key: value
        for key, value in experiment.flat().items()
        if key not in filled and (key not in later or later[key] != value)
    }
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _list_later(method: str) -> dict[str, Any]:
    """List settings that records from before lack, with what they were."""
    later = {key.replace(method, "method", 1): value for key, value in LATER.items()}
    return later | {name: facts.before for name, facts in FACTS.items()}


def leave_untuned(experiment: Experiment) -> Experiment | None:
    """Return the experiment without tuning whose run is the same; None where there is no tuning.

    >>> leave_untuned(Experiment(method="fedavg-lu")) == Experiment(method="fedavg")
    True
    """
    method = dict(experiment.method)
    if method["name"] not in TUNED:
        return None
    del method["tune"], method["tune_lr"]
    untuned = complete("method", method | {"name": TUNED[method["name"]]})
    return experiment.model_copy(update={"method": untuned})


def name_run(experiment: Experiment) -> str:
    """Name the directory of a run."""
    source, method = experiment.data["name"], experiment.method["name"]
    return f"{source}-{method}-{identify(experiment)}"


def measure(run: RecordedRun, experiment: Experiment) -> RunRecord:
    """Make a record of a finished run, which was asked for as `experiment`."""
    if not run.summary.finished:
        raise IsthmusError(f"{run.path} is not finished; resume it with isthmus resume")
    return RunRecord(
        experiment=_list_settings(experiment),
        digest=run.summary.digest,
        federation=run.summary.federation,
        rounds=run.last,
        seconds=run.summary.seconds,
        machine=describe_machine(),
        versions=_list_versions(run.summary.isthmus, run.summary.torch),
        numbers=tuple(_list_numbers(run)),
        curve=_measure_curve(run),
        path=_measure_path(run),
        step=str(run.settings.get("step", "")),
    )


def note_divergence(experiment: Experiment, why: str) -> RunRecord:
    """Make a record of a run that diverged, so that it is not run again."""
    versions = _list_versions(version("isthmus"), version("torch"))
    settings, machine = _list_settings(experiment), describe_machine()
    return RunRecord(settings, machine=machine, versions=versions, failed=why)


def read_untuned(record: RunRecord) -> RunRecord | None:
    """Read the record of a tuned method as that of the method it trains as; None of any other.

    That method's clients deploy the shared model, so its numbers are their personal ones too.
    """
    if record.experiment["method"]["name"] not in TUNED:
        return None
    experiment = leave_untuned(Experiment(**record.experiment))
    shared = [each for each in record.numbers if each.model == "shared"]
    personal = [each._replace(model="personal") for each in shared if each.data == "clients"]
    curve = dict(record.curve)
    if "shared" in curve:
        curve["personal"] = curve["shared"]
    assert experiment is not None
    return record._replace(
        experiment=_list_settings(experiment), numbers=(*personal, *shared), curve=curve
    )


def _list_settings(experiment: Experiment) -> dict[str, Any]:
    filled = list_filled("placement")
    return {key: value for key, value in experiment.table().items() if key not in filled}


def _list_versions(isthmus: str, torch: str) -> dict[str, str]:
    numpy, python = version("numpy"), platform.python_version()
    return {"isthmus": isthmus, "torch": torch, "numpy": numpy, "python": python}


def _measure_curve(run: RecordedRun) -> dict[str, Any]:
    """Keep the means over clients at each evaluated round, for figures."""
    curves = {model: run.curve("top1", model) for model in ("personal", "shared")}
    means = {model: curve.mean.round(DIGITS).tolist() for model, curve in curves.items()}
    rounds = curves["personal"].round.tolist()
    known = {model: values for model, values in means.items() if len(values) == len(rounds)}
    return {"clients": len(run.federation.client), "round": rounds} | known


def _measure_path(run: RecordedRun) -> dict[str, Any]:
    """Keep the means over clients along the path, and how many are at each place."""
    along = run.along()
    if along is None or not along.client.size:
        return {}
    places, counts = np.unique(along.chosen.round(DIGITS), return_counts=True)
    return {
        "is_given": run.selection is None,  # not chosen: each client's place comes from the method
        "lam": along.lam.tolist(),
        "mean": along.mean("top1").round(DIGITS).tolist(),
        "places": places.tolist(),
        "clients": counts.tolist(),
    }


def _list_numbers(run: RecordedRun) -> Iterator[MeasuredNumber]:
    for metric in METRICS:
        for model in ("personal", "shared"):
            values = run.over_clients(metric, model)
            if values.size:
                curve = run.curve(metric, model).mean[-LATE:]
                names = (metric, model, "clients")
                mean, late = spread.mean(values), spread.mean(curve)
                deviation, swing = spread.deviation(values), spread.deviation(curve)
                yield MeasuredNumber(*names, "mean", "all", mean, deviation, late, swing)
                pooled = run.pool(metric, model)
                if pooled is not None:
                    yield MeasuredNumber(*names, "pooled", "all", pooled)
                if metric == "top1":
                    worst = spread.worst(values)
                    yield MeasuredNumber(*names, "worst 5%", "all", worst)
        on_server = run.on_server(metric)
        if on_server is not None:
            yield MeasuredNumber(metric, "shared", "server", "mean", "all", on_server)
    for metric in CHOSEN_BY:
        values = run.values(metric, split="validation")
        values = values[~np.isnan(values)]
        if values.size:
            means = (spread.mean(values), spread.deviation(values))
            yield MeasuredNumber(metric, "personal", "validation", "mean", "all", *means)
    yield from _list_kinds(run)
    places = run.values("lam")
    places = places[~np.isnan(places)]
    if places.size and np.ptp(places) == 0 and run.selection is not None:
        yield MeasuredNumber(LAMBDA, "personal", "clients", "mean", "all", float(places[0]))


def _list_kinds(run: RecordedRun) -> Iterator[MeasuredNumber]:
    """List the top-1 of clients by the kind of their second network, where there are several."""
    kinds, top1 = run.federation.kind, run.values("top1")
    if len(kinds) != len(top1):
        return
    for kind in np.unique(kinds):
        values: Floats = top1[(kinds == kind) & ~np.isnan(top1)]
        if kind and values.size:
            means = (spread.mean(values), spread.deviation(values))
            yield MeasuredNumber("top1", "personal", "clients", "mean", str(kind), *means)


@cache
def describe_machine() -> str:
    """Name the processor, what torch uses of it, its cores and the system.

    Processors of one name may differ in their instructions, and then in the last bits of results.
    """
    from torch.backends.cpu import get_cpu_capability

    model = platform.processor() or platform.machine()
    with suppress(OSError, KeyError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        about = {key.strip(): value.strip() for key, _, value in pairs}
        model = f"{about['model name']} {about['cpu family']}-{about['model']}"
    return f"{model}, {get_cpu_capability()}, {count_cores()} cores, {platform.system()}"


def write(record: RunRecord, folder: Path) -> Path:
    """Write a record below a folder, one line for each of its numbers."""
    experiment = Experiment(**record.experiment)
    fields = record._asdict() | {"numbers": [each._asdict() for each in record.numbers]}
    lines = []
    for key, value in fields.items():
        if key == "numbers":
            inner = ",\n  ".join(json.dumps(_drop_none(each)) for each in value)
            lines.append(f' "numbers": [\n  {inner}\n ]')
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value, default=dict)}")
    path = folder / f"{name_run(experiment)}.json"
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")
    return path


def _drop_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def read(path: Path | Traversable) -> RunRecord:
    """Read a record."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        numbers = tuple(MeasuredNumber(**each) for each in table.pop("numbers"))
        record = RunRecord(**table, numbers=numbers)
        record.experiment["method"]["name"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IsthmusError(
            f"{path} is not a record of isthmus reproduce ({error}); remove it"
        ) from None
    return record


def find_shipped() -> Traversable:
    """Find the records that come with the program: in its package."""
    return files("isthmus_papers") / RESULTS


def read_all(folders: Iterable[Path | Traversable]) -> dict[str, RunRecord]:
    """Read the records of some folders, by what was asked for; those of later folders count.

    Where a method was run only with clients that tune its model, it is read off that run.
    """
    paths: list[Path | Traversable] = []
    for folder in folders:
        if folder.is_dir():
            inside = [path for path in folder.iterdir() if path.name.endswith(".json")]
            paths += sorted(inside, key=lambda path: path.name)
    records = {path.name[-17:-5]: read(path) for path in paths}  # by the end of their names
    untuned = filter(None, map(read_untuned, records.values()))
    return {record.identity: record for record in untuned} | records
