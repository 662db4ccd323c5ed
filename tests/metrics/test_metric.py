"""Metrics as values: everything that names one reads the table."""

import pytest

from isthmus.metrics.metric import METRICS, Metric
from isthmus.metrics.score import Figures


def test_figures_have_every_metric_by_its_name() -> None:
    assert Figures._fields == ("n", *METRICS)
    assert all(name == metric.name for name, metric in METRICS.items())


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_is_computed_of_examples_or_of_bins(metric: Metric) -> None:
    assert (metric.of_examples is None) == metric.is_calibration
    assert (metric.of_batches is None) != metric.is_calibration


def test_only_calibration_errors_are_marked_per_batch() -> None:
    marked = [name for name, metric in METRICS.items() if metric.column(True) != name]
    assert marked == ["ece", "mce"]
    assert METRICS["ece"].column(per_batch=True) == "ece_per_batch"
