"""What is known of a run from its files: settings, progress, figures, sizes."""

from collections.abc import Callable, Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.errors import IsthmusError
from isthmus.metrics import spread
from isthmus.metrics.metric import METRICS
from isthmus.report.statistics import LEVEL, Interval, mean_of_sample, ratio_of_sample
from isthmus.report.tables.formats import (
    describe_sample,
    format_bounds,
    format_bytes,
)
from isthmus.report.tables.sections import summarize_newcomers
from isthmus.report.tables.summary import IN_TABLES, find_intervals
from isthmus.report.templates import render
from isthmus.run import record as reader

RARE = 0.1  # of all examples: a class whose errors top-1 hardly shows


def collect(path: Path, target: float | None = None) -> dict[str, Any]:
    """Collect what is known of a run and, where a target is given, what it took to reach it."""
    if target is not None and not 0 < target <= 1:
        raise IsthmusError(
            f"the target must be an accuracy above 0 and at most 1, not {target:g}; for example 0.9"
        )
    sizes = {file.name: file.stat().st_size for file in sorted(path.glob("*")) if file.is_file()}
    try:
        run = reader.read(path)
    except IsthmusError as error:
        if "experiment.toml" not in sizes:
            raise
        young = isinstance(error, reader.UnevaluatedError)
        return {"run": str(path), "status": str(error), "damaged": not young, "bytes": sizes}
    tested = run.curve("top1")
    curve = dict(zip(tested.round.tolist(), tested.mean.tolist(), strict=True))
    top1 = run.over_clients("top1")
    validated = run.curve("loss", "personal", "validation")
    best = int(validated.round[validated.mean.argmin()]) if len(validated.round) else None
    return {
        "run": str(path),
        "status": run.status,
        "reason": run.summary.reason or None,
        "rounds_done": int(run.rounds.round[-1]) if len(run.rounds.round) else 0,
        "rounds": run.settings.get("rounds"),
        "clients": len(run.federation.client),
        "sample": None if run.sample is None else run.sample._asdict(),
        "federated": run.federated,
        "last": {
            "round": run.last,
            "personal_top1_test": float(top1.mean()),
            "personal_top1_test_worst_5_percent": spread.worst(top1),
            "rarest_class": _find_rarest(run),
            "personal_balanced_test": reader.mean_or_none(run.over_clients("balanced")),
            "shared_top1_test": reader.mean_or_none(run.over_clients("top1", "shared")),
            "personal_pooled_over_test_examples": {
                metric.name: run.pool(metric.name) for metric in IN_TABLES
            },
            **_collect_intervals(run),
        },
        **({} if target is None else {"to_target": _measure_target(run, target)}),
        "best_by_validation_loss": None
        if best is None
        else {"round": best, "personal_top1_test": curve[best]},
        "best_of_each_client": _find_best_rounds(run),
        "chosen_on_test_data": run.chosen_on_test,
        "newcomers": [each._asdict() for each in summarize_newcomers(run)],
        "digest": run.summary.digest or None,
        "federation": run.split_digest,
        "settings": dict(run.settings),
        "bytes": sizes,
    }


def _collect_intervals(run: reader.RecordedRun) -> dict[str, Any]:
    """Collect [low, high] of means over all clients, where only some were evaluated."""
    if run.sample is None:
        return {}
    total, n = int(np.sum(run.federation.test > 0)), run.values("n")
    pooled = {
        metric.name: ratio_of_sample(run.values(metric.name), n, total).clip(metric.bounds)[1:]
        for metric in IN_TABLES
        if metric.of_examples is not None
    }
    means = {name: interval[1:] for name, interval in find_intervals(run).items()}
    balanced = mean_of_sample(run.over_clients("balanced"), total)
    return {
        "personal_top1_test_interval": means["top1"],
        "shared_top1_test_interval": means.get("shared"),
        "personal_balanced_test_interval": balanced.clip(METRICS["balanced"].bounds)[1:],
        "personal_pooled_over_test_examples_intervals": pooled,
        "interval_level": LEVEL,
    }


def _describe_bounds(
    bounds: tuple[float, float] | None, printed: Callable[[float], str] = "{:.2%}".format
) -> str:
    return "" if bounds is None else format_bounds(Interval(nan, *bounds), printed)


def _find_best_rounds(run: reader.RecordedRun) -> dict[str, Any] | None:
    """Return after which rounds clients' own validation losses were lowest."""
    rounds = run.best_rounds()
    if not rounds.size:
        return None
    first, middle, last = (int(np.percentile(rounds, q, method="lower")) for q in (0, 50, 100))
    kept = run.summary.keeps_best
    return {"first_round": first, "median_round": middle, "last_round": last, "kept": kept}


def _find_rarest(run: reader.RecordedRun) -> float:
    """Return the share of the rarest class; 1 where nothing is known of the classes."""
    counts = run.federation.labels.sum(0)
    return float(counts.min() / counts.sum()) if counts.any() else 1.0


def _measure_target(run: reader.RecordedRun, target: float) -> dict[str, Any]:
    spent = run.to_reach(target)
    return {"personal_top1_test": target} | (
        {"reached": False} if spent is None else {"reached": True, **spent._asdict()}
    )


def _list_settings(key: str, value: Any) -> Iterator[str]:
    """Yield a setting: a table's entries one by one, those of several tables on a line each."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _list_settings(f"{key}.{name}", inner)
    elif isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        yield f"{key}:"
        for row in value:
            yield "    " + ", ".join(f"{name} = {inner}" for name, inner in row.items())
    else:
        yield f"{key} = {value}"


def describe(facts: dict[str, Any]) -> str:
    """Describe what was collected, for a person."""
    lines = [f"{facts['run']}: {facts['status']}"]
    if "last" in facts:
        last, sample = facts["last"], facts["sample"]
        pooled = last["personal_pooled_over_test_examples"]
        intervals = last.get("personal_pooled_over_test_examples_intervals", {})
        text = render(
            "show.txt",
            facts=facts,
            sample=sample and describe_sample(reader.EvaluationSample(**sample)),
            intervals={key: last.get(f"{key}_interval") for key in last},
            pooled=[(it, pooled[it.name], intervals.get(it.name)) for it in IN_TABLES],
            settings=[
                line
                for key, value in facts["settings"].items()
                for line in _list_settings(key, value)
            ],
            level=f"{100 * LEVEL:g}",
            bounds=_describe_bounds,
            RARE=RARE,
        )
        lines.append(text.rstrip())
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in facts["bytes"].items())
    return "\n".join([*lines, f"on disk: {sizes}"])
