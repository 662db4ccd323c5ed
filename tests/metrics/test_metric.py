"""Metrics as values: everything that names one reads the table."""

import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.metrics.metric import METRICS, Metric
from isthmus.metrics.score import Figures

# A metric that a user adds: the entropy of the predicted distribution, in nats.
ADDED = """
from types import MappingProxyType
from isthmus.metrics import metric

entropy = metric.Metric(
    name="entropy",
    label="entropy",
    title="entropy of the prediction",
    meaning="mean entropy",
    range="nats",
    of_examples=lambda given: -(given.log_p.exp() * given.log_p).sum(1),
)
metric.METRICS = MappingProxyType({**metric.METRICS, "entropy": entropy})

from isthmus import Experiment, federate
from isthmus.report import read
from isthmus.tracking.callback import scalars

experiment = Experiment(
    method="fedavg", data={"name": "synthetic", "samples": 120}, clients=4, clients_per_round=2,
    epochs=1, rounds=1, model={"name": "mlp", "hidden": 8},
)
done = federate(experiment, out="run")
run = read("run")
print(run.values("entropy").mean(), run.pool("entropy"))
print(scalars(experiment, done.rounds[-1])["personal/test/entropy mean over clients"])
"""


def test_figures_have_every_metric_by_its_name() -> None:
    assert Figures._fields == ("n", *METRICS)
    assert all(name == metric.name for name, metric in METRICS.items())


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_is_computed_of_examples_or_of_classes_or_of_bins(metric: Metric) -> None:
    ways = (metric.of_examples, metric.of_classes, metric.of_bins)
    assert sum(way is not None for way in ways) == 1
    assert (metric.of_batches is None) != metric.is_calibration


def test_only_calibration_errors_are_marked_per_batch() -> None:
    marked = [name for name, metric in METRICS.items() if metric.column(True) != name]
    assert marked == ["ece", "mce"]
    assert METRICS["ece"].column(per_batch=True) == "ece_per_batch"


def test_a_new_metric_is_one_entry(tmp_path: Path) -> None:
    """With it in the table, a run records it, a report reads it and a tracker is told of it."""
    done = subprocess.run(
        [sys.executable, "-c", ADDED], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    means, tracked = (line.split() for line in done.stdout.splitlines())
    assert float(means[0]) == pytest.approx(float(tracked[0]), rel=1e-7)  # records: eight digits
    assert float(means[0]) > 0
    header = [
        line
        for line in (tmp_path / "run" / "clients.csv").read_text().splitlines()
        if "top1" in line
    ]
    assert header[0].endswith("ece,mce,balanced,entropy")
