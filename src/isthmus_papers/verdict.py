"""Whether a number that was published came out again."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Literal, NamedTuple

from isthmus.metrics.metric import METRICS
from isthmus.selection import RULES
from isthmus_papers.plan import list_experiments
from isthmus_papers.recipe import Preset, TableCell
from isthmus_papers.record import MeasuredNumber, RunRecord

Outcome = Literal["reproduced", "higher", "lower", "not run", "cannot run"]

# What two numbers may differ by at least: a point of a percentage, a step of the path's grid.
POINTS = {"percent": 1.0, "fraction": 0.01, "nats": 0.05, "lambda": 0.1, "times": 0.1}

TUNED = ("lr", "momentum", "weight_decay")  # what trials may choose

Records = Mapping[str, RunRecord]


class ReproducedNumber(NamedTuple):
    """A number that was made again: over seeds, in the unit in which it was published."""

    value: float  # mean over seeds
    deviation: float | None  # over clients, mean over seeds
    over_seeds: float | None  # deviation, where there are several
    late: float | None  # mean of the last evaluations
    seeds: tuple[int, ...]
    on_test: bool  # whether a point was chosen on test data
    swing: float | None = None  # deviation of the last evaluations from their mean


class Verdict(NamedTuple):
    """What became of one published number."""

    cell: TableCell
    ours: ReproducedNumber | None  # chosen as the paper does
    validated: ReproducedNumber | None  # chosen on validation data
    released: ReproducedNumber | None  # with the released code's settings
    outcome: Outcome
    follows: Preset  # whose settings the number has that is held against the published one
    failed: str = ""  # why there is no number, though it was run: it diverged

    @property
    def judged(self) -> ReproducedNumber | None:
        """The number that is held against the published one."""
        is_beside = self.released is not None and self.follows == "release"
        return self.released if is_beside else self.ours

    @property
    def difference(self) -> float | None:
        """Ours less theirs."""
        known = self.judged is not None and self.cell.mean is not None
        return self.judged.value - self.cell.mean if known else None  # type: ignore[union-attr,operator]

    @property
    def reason(self) -> str:
        """Why there is no number."""
        return self.cell.reason or self.failed


def find_reproduced(
    cell: TableCell, records: Records, preset: Preset = "paper", validated: bool = False
) -> ReproducedNumber | None:
    """Find a cell's number in the records of its runs."""
    number, found = cell.number, dict[int, MeasuredNumber]()
    experiments = list_experiments(cell, preset, validated)
    for name, experiment in experiments.items():
        record = records.get(name)
        if record is None:
            continue
        measured = record.find(number)
        if measured is not None:
            found[experiment.seed] = measured
    if not found:
        return None

    def average(field: str) -> float | None:
        known = [getattr(each, field) for each in found.values()]
        known = [number.factor * value for value in known if value is not None]
        return mean(known) if known else None

    values = [number.factor * each.value for each in found.values()]
    rule = RULES.get(next(iter(experiments.values())).selection)
    return ReproducedNumber(
        value=mean(values),
        deviation=average("deviation"),
        over_seeds=stdev(values) if len(values) > 1 else None,
        late=average("late"),
        seeds=tuple(found),
        on_test=number.selection != "none" and rule is not None and rule.on_test,
        swing=average("late_deviation"),
    )


def assess(cell: TableCell, records: Records, preset: Preset = "paper") -> Verdict:
    """Compare a published number with the records."""
    released = find_reproduced(cell, records, "release") if preset == "paper" else None
    follows = preset if released is None else cell.explained_by
    verdict = Verdict(
        cell,
        ours=find_reproduced(cell, records, preset),
        validated=find_reproduced(cell, records, follows, True),
        released=released,
        outcome="not run",
        follows=follows,
    )
    names = list_experiments(cell, preset)
    failed = next((records[name].failed for name in names if name in records), "")
    return verdict._replace(outcome=_compare(cell, verdict.judged), failed=failed)


def choose_trials(verdicts: Iterable[Verdict], records: Records) -> dict[str, TableCell]:
    """Choose each method's best trial, where all of its trials were made.

    What is no trial is passed over. Of equal ones it is the first. A trial that diverged has lost,
    and so has one with whose settings any other run did.
    """
    trials: dict[str, list[Verdict]] = {}
    for verdict in (each for each in verdicts if each.cell.is_trial):
        trials.setdefault(verdict.cell.method, []).append(verdict)
    chosen = {}
    for method, made in trials.items():
        ended = [each for each in made if each.ours is not None]
        lasting = [each for each in ended if not _has_diverged(each.cell, records)]
        if lasting and all(each.ours is not None or each.failed for each in made):
            chosen[method] = max(lasting, key=_score).cell
    return chosen


def _has_diverged(trial: TableCell, records: Records) -> bool:
    """Whether a run with the method and the settings of a trial is known to diverge."""
    failed = (record.experiment for record in records.values() if record.failed)
    return any(
        experiment["method"]["name"] == trial.method
        and all(experiment[key] == trial.settings[key] for key in TUNED)
        for experiment in failed
    )


def _score(verdict: Verdict) -> float:
    assert verdict.ours is not None
    return _find_sign(verdict.cell) * verdict.ours.value


def _find_sign(cell: TableCell) -> int:
    """Return 1 where a larger number is better, else -1."""
    metric = METRICS.get(cell.number.metric)
    return 1 if metric is None or metric.larger_is_better else -1


def _compare(cell: TableCell, ours: ReproducedNumber | None) -> Outcome:
    if cell.reason is not None:
        return "cannot run"
    if ours is None or cell.mean is None:
        return "not run"
    difference = ours.value - cell.mean
    if abs(difference) <= find_tolerance(cell, ours):
        return "reproduced"
    return "higher" if difference > 0 else "lower"


def find_tolerance(cell: TableCell, ours: ReproducedNumber) -> float:
    """Return what a number may differ by: a point, or twice the deviation over seeds if larger."""
    published = cell.std if cell.number.deviation == "seeds" and cell.std is not None else 0.0
    return max(POINTS[cell.number.unit], 2 * max(published, ours.over_seeds or 0.0))


def describe_order(verdicts: Sequence[Verdict], local: ReproducedNumber | None = None) -> str:
    """Describe how far the order of the methods in a column held; nothing of fewer than two.

    Methods are held against training alone, `local`, where that was run: as published, or as here
    where the paper has none.
    """
    from scipy.stats import kendalltau

    known = [
        (each.cell.label, each.cell.mean, each.judged.value)
        for each in verdicts
        if each.judged is not None and each.cell.mean is not None and each.cell.reason is None
    ]
    if len(known) < 2:
        return ""
    sign = _find_sign(verdicts[0].cell)
    names, theirs, ours = zip(*known, strict=True)
    winners = [names[max(range(len(names)), key=lambda i: sign * v[i])] for v in (theirs, ours)]
    tau = kendalltau(theirs, ours).statistic
    text = f"Order of {len(names)} methods: Kendall's tau {tau:.2f}; "
    if winners[0] == winners[1]:
        text += f"{winners[0]} first in both"
    else:
        text += f"first: {winners[0]} as published, {winners[1]} here"
    if local is None:
        return text
    alone = next((mean for name, mean, _ in known if name == "Local"), local.value)
    published, here = (
        ", ".join(name for name, value in zip(names, values, strict=True) if sign * value > bar)
        for values, bar in ((theirs, sign * alone), (ours, sign * local.value))
    )
    text += "; better than training alone"
    if published == here:
        return f"{text} in both: {published or 'none'}"
    return f"{text} as published: {published or 'none'}; here: {here or 'none'}"
