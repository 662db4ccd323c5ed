"""Inputs that are scaled by what sites train on: by all of them together, or by each alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from deployed import Deployment, digest_at_sites, simulate
from golden import raises
from isthmus import Experiment, Federation
from isthmus.data.own.newcomer_files import read_newcomers
from isthmus.data.scaling import divide_sums, find_scales, sum_inputs
from isthmus.errors import IsthmusError
from isthmus.run import record as reader
from isthmus.run.build import read_federation
from isthmus.run.store import digest_of
from isthmus_sites.folders import SiteFolder, write_table
from isthmus_sites.preparation import consent, find_data, register
from isthmus_sites.rehearsal import plan_study
from isthmus_sites.server import open_run
from isthmus_sites.site import open_site
from small import played
from test_preparation import write_patients

BOTH = pytest.mark.parametrize("way", ["sums", "client"])


def patients(folder: Path, way: str, **changes: Any) -> tuple[Experiment, Federation]:
    path = str(write_patients(folder / "patients.csv"))
    table = {"name": "table", "path": path, "label": "outcome", "client": "hospital"}
    given: dict[str, Any] = {"method": "superfed-mm", "rounds": 3, "epochs": 1, "seed": 2}
    experiment = Experiment(data={**table, "standardise": way}, **(given | changes))
    return experiment, read_federation(experiment, folder)


@BOTH
def test_numbers_have_mean_0_and_deviation_1_over_what_is_trained_on(
    way: str, tmp_path: Path
) -> None:
    _, data = patients(tmp_path, way)
    ages = [data.split(i, "train").x[:, 0].double().numpy() for i in range(3)]
    for some in ages if way == "client" else [np.concatenate(ages)]:
        assert some.mean() == pytest.approx(0, abs=1e-6)
        assert some.std() == pytest.approx(1, abs=1e-6)
    words = data.split(0, "train").x[:, 1:]
    assert set(words.flatten().tolist()) == {0.0, 1.0}
    assert data.columns(0)[0].mean == pytest.approx(data.scales(0).mean[0])  # type: ignore[union-attr]


@BOTH
def test_sites_scale_as_the_simulation_does_to_the_bit(
    way: str, isthmus: Isthmus, tmp_path: Path
) -> None:
    experiment, data = patients(tmp_path, way)
    study = plan_study(experiment, data)
    with Deployment(tmp_path / "sites", study, data) as deployed:
        half = deployed.run(tmp_path / "run", lambda: True)
        assert half.progress.t == 1
        run = deployed.run(tmp_path / "run")
        exchanges = [m for _, m, _ in deployed.corridor.sent if b"data: " in m[:400]]
    end = played(simulate(study, data), 3)
    assert run.digest == digest_at_sites(end)
    shown = isthmus("show", tmp_path / "run").out.splitlines()
    place = shown.index("  data.schema.columns:")
    assert shown[place + 1].strip().startswith("name = age, ")
    assert "  data.schema.classes = 2" in shown
    assert len(exchanges) == (6 if way == "sums" else 0)  # two each, once in all


def write_more(folder: Path, name: str) -> dict[str, Any]:
    """A table of patients with holes, or with a column of weights; how it is read."""
    path = write_patients(folder / "patients.csv")
    header, *lines = path.read_text().splitlines()
    if name == "weight":
        lines = [f"{line},{i % 4 + 0.5}" for i, line in enumerate(lines)]
        header += ",w"
    else:
        cells = [line.split(",") for line in lines]
        holed = [[a, "NA" if i % 5 == 2 else b, *rest] for i, (a, b, *rest) in enumerate(cells)]
        lines = [*map(",".join, holed)]
    path.write_text("\n".join([header, *lines]) + "\n")
    table = {"name": "table", "path": str(path), "label": "outcome", "client": "hospital"}
    return table | ({"weight": "w"} if name == "weight" else {"missing": "indicator"})


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("holes", {"standardise": "sums"}),
        ("holes", {"standardise": "client"}),
        ("weight", {}),
    ],
)
def test_sites_fill_holes_and_weigh_examples_as_the_simulation_does_to_the_bit(
    name: str, more: dict[str, Any], tmp_path: Path
) -> None:
    table = write_more(tmp_path, name) | more
    balance = "classes" if name == "weight" else "none"
    experiment = Experiment(method="fedavg", rounds=1, epochs=1, data=table, balance=balance)
    data = read_federation(experiment, tmp_path)
    study = plan_study(experiment, data)
    with Deployment(tmp_path / "sites", study, data) as deployed:
        digest = deployed.run(tmp_path / "run").digest
    assert digest == digest_of(played(simulate(study, data), 1))
    if name == "weight":
        plain = Federation(data.arrays._replace(weight=None), data.splits)
        assert digest != digest_of(played(simulate(study, plain), 1))


@BOTH
def test_a_median_over_all_sites_cannot_be_had_from_sums(way: str, tmp_path: Path) -> None:
    table = write_more(tmp_path, "holes") | {"standardise": way, "missing": "median"}
    experiment = Experiment(method="fedavg", data=table)
    data = read_federation(experiment, tmp_path)
    if way == "sums":
        with raises(IsthmusError):
            plan_study(experiment, data)
    else:
        plan_study(experiment, data)


def test_sums_are_told_only_with_consent(tmp_path: Path) -> None:
    experiment, data = patients(tmp_path, "sums")
    study = plan_study(experiment, data)
    refused = pytest.raises(IsthmusError, match=r"no sums from a \(it refused: it did not")
    with Deployment(tmp_path / "sites", study, data, disclose=()) as deployed, refused:
        deployed.run(tmp_path / "run")


def test_other_scales_than_before_are_refused(tmp_path: Path) -> None:
    experiment, data = patients(tmp_path, "sums")
    study = plan_study(experiment, data)
    with Deployment(tmp_path / "sites", study, data) as deployed:
        deployed.run(tmp_path / "run", lambda: True)
        path = tmp_path / "run" / "scales.json"
        path.write_text(path.read_text().replace("[[", "[[1"))
        with raises(IsthmusError):
            deployed.run(tmp_path / "run", lambda: True)


def test_the_mean_of_sums_does_not_depend_on_their_order() -> None:
    rng = np.random.default_rng(0)
    shares = [rng.normal(1e9, 1, (n, 2)) for n in (3, 50, 7)]
    first = divide_sums([sum_inputs(x) for x in shares])
    assert (first == divide_sums([sum_inputs(x) for x in reversed(shares)])).all()
    scales = find_scales([], shares)
    together = np.concatenate(shares)
    assert scales.mean == pytest.approx(together.mean(0), rel=1e-15)
    assert scales.std == pytest.approx(together.std(0), rel=1e-6)


@BOTH
def test_a_site_that_joins_later_scales_as_isthmus_adapt_does(way: str, tmp_path: Path) -> None:
    """By the scales of the run's sites, or by its own; it is asked for no sums."""
    experiment, data = patients(tmp_path, way)
    study = plan_study(experiment, data)
    path = write_patients(tmp_path / "all.csv")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:41]))
    place = SiteFolder(tmp_path / "later")
    place.root.mkdir()
    write_table(place.settings, {"name": "later"})
    register(place, str(path), {"label": "outcome"})
    consent(place, study, find_data(place), minimum_examples=1, newcomer=True)
    with Deployment(tmp_path / "sites", study, data) as deployed:
        deployed.corridor.sites["later"] = open_site(place.root)
        deployed.run(tmp_path / "run")
    with open_run(tmp_path / "run", tmp_path) as here:
        options = {"name": "table", "label": "outcome"}
        (found,) = here.join(read_newcomers(path, here.setting.federation, options), [None])
    table = reader.read(tmp_path / "run").newcomers
    told = table.loss[table.round == 3].tolist()
    assert told == pytest.approx([score.figures.loss[0] for score in found.scores], abs=1e-8)
