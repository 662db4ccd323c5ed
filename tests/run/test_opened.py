"""Runs on disk: personal models out, newcomers in."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import isthmus
from golden import raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.cohort import Clients, Round
from isthmus.data.own.newcomer_files import read_newcomers
from isthmus.method import Delivery
from isthmus.methods import METHODS
from isthmus.models import card
from isthmus.run.export import export
from isthmus.run.newcomers import describe
from small import federation, fitting, network, read_rows, setting

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 160},
    "clients": 5,
    "clients_per_round": 2,
    "epochs": 2,
    "lr": 0.1,
    "rounds": 4,
    "model": {"name": "mlp", "hidden": 8},
    "seed": 3,
}


def kept(path: Path, **changes: Any) -> Path:
    federate(Experiment(**SETTINGS | changes), out=path)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a method's run, which is made once: who looks into it leaves it as it is."""
    return cache(
        lambda method: kept(tmp_path_factory.mktemp("run") / "run", method=fitting(method))
    )


def recorded(path: Path, table: str = "clients.csv") -> list[dict[str, str]]:
    return read_rows(path / table)


def content(path: Path) -> dict[str, str]:
    files = [file for file in path.iterdir() if file.suffix != ".lock"]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize(
    ("method", "selection"),
    [(name, "validation") for name in METHODS]
    + [("superfed-mm", rule) for rule in ("common", "fixed", "oracle", "oracle-common")],
)
def test_an_opened_clients_model_scores_what_was_recorded(
    tmp_path: Path, finished: Callable[[str], Path], method: str, selection: str
) -> None:
    """The same place on the path, the same accuracy to the last digit, on both parts."""
    usual = selection == "validation"
    path = finished(method) if usual else kept(tmp_path, method=method, selection=selection)
    rows = {
        (row["client"], row["split"]): row
        for row in recorded(path)
        if (row["round"], row["model"]) == ("4", "personal")
    }
    with isthmus.open(path) as run:
        assert len(run) == 5
        for i, personal in enumerate(run.clients()):
            for split in ("validation", "test"):
                row = rows[str(i), split]
                assert f"{personal.top1(split):.8g}" == row["top1"]
                assert " ".join(f"{number:.6g}" for number in personal.at) == row["at"]


def test_the_clients_bins_add_up_to_the_pooled_ones(tmp_path: Path) -> None:
    path = kept(tmp_path / "run", method="superfed-mm")
    with isthmus.open(path) as run:
        each = [personal.tally() for personal in run.clients()]
    pooled = [
        row
        for row in recorded(path, "reliability.csv")
        if (row["round"], row["model"], row["split"]) == ("4", "personal", "test")
    ]
    assert len(pooled) == 15
    for b, row in enumerate(pooled):
        n = sum(int(one.bin_n[b]) for one in each)
        assert n == int(row["n"])
        right = sum(float(one.bin_top1[b]) for one in each)
        assert right == pytest.approx(n * float(row["top1"] or 0), rel=1e-7)  # eight digits


def test_opening_changes_nothing_and_lets_others_in_afterwards(tmp_path: Path) -> None:
    path = kept(tmp_path / "run", method="superfed-mm")
    before = content(path)
    with isthmus.open(path) as run:
        model = run.client(2)
        with raises(IsthmusError):
            isthmus.open(path)
    assert content(path) == before
    with isthmus.open(path) as run:
        assert torch.equal(run.client(2).w, model.w)
        with pytest.raises(IndexError, match="clients 0 to 4"):
            run.client(5)


def test_a_personal_model_is_callable_and_a_plain_module(tmp_path: Path) -> None:
    path = kept(tmp_path / "run", method="superfed-lm")
    x = np.random.default_rng(0).standard_normal((7, 16)).astype(np.float32)
    with isthmus.open(path) as run:
        personal = run.client(1)
        logits = personal(x)
        assert logits.shape == (7, 10)
        assert torch.equal(logits, personal.module()(torch.as_tensor(x)))


def test_an_exported_model_loads_without_anything_that_trains(tmp_path: Path) -> None:
    """In another process, which measures the accuracy that the card and the records state."""
    path = kept(tmp_path / "run", method="superfed-mm")
    (tmp_path / "models").mkdir()
    (tmp_path / "models/client-0.json.0123abcd.part").write_text("{")  # of a killed process
    with isthmus.open(path) as run:
        cards = list(export(run, tmp_path / "models"))
        x, y = run.setting.federation.split(3, "test")
    assert [card.name for card in cards] == [f"client-{i}.json" for i in range(5)]
    assert not list((tmp_path / "models").glob("*.part"))
    about = json.loads(cards[3].read_text())
    assert about["selection"] == "validation"
    assert about["chosen_on_test_data"] is False
    assert about["rounds"] == 4
    np.savez(tmp_path / "test.npz", x=x.numpy(), y=y.numpy())
    code = (
        "import sys, numpy, torch; from isthmus.models.card import load_network; "
        f"data = numpy.load({str(tmp_path / 'test.npz')!r}); "
        f"model = load_network({str(cards[3])!r}); "
        "right = model(torch.as_tensor(data['x'])).argmax(1) == torch.as_tensor(data['y']); "
        "print(float(right.double().mean())); "
        "print([n for n in ('engines', 'training', 'cohort') if f'isthmus.{n}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    accuracy, training = done.stdout.splitlines()
    assert float(accuracy) == about["top1"]["test"]
    assert training == "[]"


def test_a_model_of_ones_own_is_exported_and_needs_its_definition(tmp_path: Path) -> None:
    given = {"method": "fedavg", "data": "own", "rounds": 2, "epochs": 1, "clients_per_round": 2}
    federate(Experiment(**given), data=federation(), model=network, out=tmp_path / "run")
    with isthmus.open(tmp_path / "run", data=federation(), model=network) as run:
        (path,) = export(run, tmp_path / "models", [0])
        w = run.client(0).w
    with raises(IsthmusError):
        card.load_network(path)
    loaded = torch.cat(
        [parameter.flatten() for parameter in card.load_network(path, network).parameters()]
    )
    assert torch.equal(loaded.detach(), w)
    with raises(IsthmusError):
        card.load_network(path, lambda: nn.Linear(2, 2))


def test_damaged_exports_are_refused(tmp_path: Path) -> None:
    path = kept(tmp_path / "run", method="fedavg", rounds=1)
    with isthmus.open(path) as run:
        (written,) = export(run, tmp_path / "models", [0])
    tensors = written.with_suffix(".safetensors")
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[: len(whole) // 2])
    with raises(IsthmusError):
        card.load_network(written)
    tensors.write_bytes(whole)
    written.write_text("{")
    with raises(IsthmusError):
        card.load_network(written)
    with raises(IsthmusError):
        card.load_network(tmp_path / "nothing.json")
    with isthmus.open(path) as run, raises(IsthmusError):
        list(export(run, path / "experiment.toml", [0]))


@pytest.mark.parametrize("method", list(METHODS))
def test_newcomers_join_a_finished_run_of_every_method(
    finished: Callable[[str], Path], method: str
) -> None:
    """Each has a model, scored on its own parts, for few examples and for all."""
    path = finished(method)
    before = content(path)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((90, 16)).astype(np.float32)
    data = Federation.of(x, rng.integers(10, size=90), np.repeat([0, 1, 2], 30), seed=2)
    with isthmus.open(path) as run:
        found = run.join(data, shots=(4, 1000, None))
        shares = run.setting.method.common(run.progress.server) is not None
    assert [newcomers.shots for newcomers in found] == [4, None]  # 1000 is all, and more
    for newcomers in found:
        models = {score.model for score in newcomers.scores}
        assert models == ({"newcomer", "shared"} if shares else {"newcomer"})
        for score in newcomers.scores:
            assert score.figures.top1.shape == (3,)
            assert np.isfinite(score.figures.loss).all()
    assert content(path) == before
    assert "all training examples" in describe(found)


def test_a_superfed_newcomer_trains_an_end_of_its_own() -> None:
    """A client whose labels are shifted by one gains nothing from the shared model alone."""
    settings = SETTINGS | {"data": {"name": "synthetic", "samples": 2000}, "partition": "iid"}
    run = federate(Experiment(**settings | {"method": "superfed-mm", "rounds": 10, "epochs": 5}))
    arrays = run.setting.federation.arrays
    y = (arrays.y[:300] + 1) % 10
    data = Federation.of(arrays.x[:300], y, np.zeros(300, int), seed=1)
    from isthmus.run.newcomers import join

    (found,) = join(run.setting, run.progress, data, (None,))
    by_model = {score.model: score for score in found.scores if score.split == "test"}
    assert by_model["shared"].figures.top1[0] < 0.2
    assert by_model["newcomer"].figures.top1[0] > 0.5
    assert by_model["newcomer"].at[0, 0] > 0.5


def test_a_newcomers_start_is_no_other_clients() -> None:
    made = setting("superfed-mm")
    newcomer = Clients([0], Round(made._replace(first=6), 2, {}))
    (own,) = newcomer.visit(lambda client, own: own, Delivery(None))
    others = [made.method.own(made.task, i).wl for i in range(6)]
    assert not any(torch.equal(own[0].wl, other) for other in others)


def test_a_newcomer_is_sent_what_is_meant_for_no_other_client() -> None:
    """The run has clients 0 to 5; the first newcomer asks as number 6."""
    newcomer = Clients([0], Round(setting("fedavg")._replace(first=6), 2, {}))
    delivery = Delivery(None, each=torch.tensor)
    assert list(newcomer.visit(lambda client, own, number: number.item(), delivery)) == [{0: 6}]


class TestHeldOut:
    def test_clients_that_are_held_out_never_train(self, tmp_path: Path) -> None:
        path = kept(tmp_path / "run", method="superfed-mm", held_out=0.4, rounds=6)
        rows = recorded(path, "newcomers.csv")
        assert {row["client"] for row in rows} == {"0", "1"}
        assert {row["model"] for row in rows} == {"newcomer", "shared"}
        assert {row["shots"] for row in rows} >= {"5", "all"}
        assert len(recorded(path, "federation.csv")) == 3
        whole = federate(Experiment(**SETTINGS | {"method": "superfed-mm"})).setting.federation
        run = federate(Experiment(**SETTINGS | {"method": "superfed-mm", "held_out": 0.4}))
        parts = [*run.setting.federation.splits, *run.setting.newcomers.splits]
        assert sorted(p.train.tolist() for p in parts) == sorted(
            p.train.tolist() for p in whole.splits
        )

    def test_a_share_of_no_client_is_refused(self) -> None:
        with raises(IsthmusError):
            federate(Experiment(**SETTINGS | {"held_out": 0.01}))

    def test_too_few_that_train_are_refused(self) -> None:
        with raises(IsthmusError):
            federate(Experiment(**SETTINGS | {"held_out": 0.8}))


class TestNpz:
    def like(self) -> Federation:
        return federate(
            Experiment(**SETTINGS | {"method": "fedavg", "rounds": 1})
        ).setting.federation

    def test_one_client_or_several(self, tmp_path: Path) -> None:
        x, y = np.zeros((40, 16), np.float32), np.arange(40) % 10
        np.savez(tmp_path / "one.npz", x=x, y=y)
        np.savez(tmp_path / "two.npz", x=x, y=y, client=np.repeat(["a", "b"], 20))
        like = self.like()
        assert len(read_newcomers(tmp_path / "one.npz", like)) == 1
        two = read_newcomers(tmp_path / "two.npz", like)
        assert len(two) == 2
        assert two.classes == like.classes

    def test_newcomers_are_prepared_as_the_run_s_own_data(self, tmp_path: Path) -> None:
        """A byte of 51 is 51 / 255 = 0.2 and, less the mean 0.1, over the deviation 0.25, 0.4."""
        x, y = np.full((40, 1, 2, 2), 51, np.uint8), np.arange(40) % 10
        like = Federation.of(x, y, clients=np.zeros(40))
        like = Federation(
            like.arrays._replace(scale=255.0, mean=(0.1,), std=(0.25,)), like.splits, like.shares
        )
        np.savez(tmp_path / "new.npz", x=x, y=y)
        found = read_newcomers(tmp_path / "new.npz", like)
        assert found.split(0, "test").x.unique().tolist() == pytest.approx([0.4])

    def test_wrong_files_are_refused(self, tmp_path: Path) -> None:
        like = self.like()
        x, y = np.zeros((40, 16), np.float32), np.arange(40) % 10
        np.savez(tmp_path / "objects.npz", x=np.array([{}] * 3), y=np.arange(3))
        np.savez(tmp_path / "without.npz", x=x)
        np.savez(tmp_path / "shape.npz", x=x[:, :5], y=y)
        np.savez(tmp_path / "labels.npz", x=x, y=y + 9)
        (tmp_path / "text.npz").write_text("x")
        for name in ("objects", "without", "text", "missing", "shape", "labels"):
            with raises(IsthmusError):
                read_newcomers(tmp_path / f"{name}.npz", like)
