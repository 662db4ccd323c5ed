"""Networks with BatchNorm and dropout, trained: as torch does it alone, and to the bit again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import isthmus
from golden import raises
from isthmus import Experiment, Federation, IsthmusError, federate, streams
from isthmus.methods import METHODS
from isthmus.models.card import load, load_network
from isthmus.run import landscape
from isthmus.run.export import export
from small import CLASSES, FEATURES, WIDTH, federation, fitting, read_rows, setting

OWN = {"data": "own", "rounds": 4, "epochs": 2, "clients_per_round": 4, "batch_size": 8, "lr": 0.1}


def network(p: float = 0.0) -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH),
        nn.BatchNorm1d(WIDTH),
        nn.ReLU(),
        nn.Dropout(p),
        nn.Linear(WIDTH, CLASSES),
    )


def dropping() -> nn.Module:
    return network(0.4)


def train_alone(module: nn.Module, x: Tensor, y: Tensor, seed: int, given: dict[str, Any]) -> None:
    """What a person writes: SGD, in the order in which the first client of a run sees its data."""
    sgd = torch.optim.SGD(module.parameters(), given["lr"], momentum=0.5, weight_decay=0.01)
    shuffle = streams.stream(seed, "train batches", 0, 0, 0)
    module.train()
    for _ in range(given["epochs"]):
        for rows in torch.as_tensor(shuffle.permutation(len(y))).split(given["batch_size"]):
            sgd.zero_grad()
            cross_entropy(module(x[rows]), y[rows]).backward()
            sgd.step()
    module.eval()


def test_one_client_is_trained_as_torch_trains_it() -> None:
    """Weight decay and momentum act on parameters; statistics follow torch's own rule."""
    data = federation(sizes=(62,))  # 42 to train on: the last batch has two
    given = OWN | {"rounds": 1, "clients_per_round": 1, "seed": 3}
    given |= {"momentum": 0.5, "weight_decay": 0.01, "lr_decay": 1.0}
    run = federate(Experiment(method="fedavg", **given), data=data, model=network, workers=1)
    model = run.setting.task.model
    module = model.load(run.setting.task.w0)
    train_alone(module, *data.split(0, "train"), seed=3, given=given)
    trained = model.load(run.progress.server.w).state_dict()
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            assert (trained[name] - tensor).abs().max() < 1e-5, name
    assert trained["1.running_mean"].abs().max() > 0.1


def test_statistics_are_averaged_like_parameters() -> None:
    """Clients of constant inputs 0 and 3, one step each: their means go a tenth of the way, to 0
    and 0.3, their variances from 1 to 0.9; the server weighs them by 28 and 55 examples."""
    owner = np.repeat([0, 1], [40, 80])
    x = np.where(owner == 0, 0, 3)[:, None].astype(np.float32)
    data = Federation.of(x, np.arange(120) % 2, owner, validation=0.15, seed=1)
    assert [data.sizes(i)[0] for i in (0, 1)] == [28, 55]
    given = OWN | {"rounds": 1, "epochs": 1, "clients_per_round": 2, "batch_size": 100}
    run = federate(
        Experiment(method="fedavg", **given),
        data=data,
        model=lambda: nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2)),
    )
    assert run.progress.server.w[2:4].tolist() == pytest.approx([0.3 * 55 / 83, 0.9], abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_them_and_repeats_itself(method: str) -> None:
    """Clients of 9 to 40 examples, some of which leave one for the last batch."""
    runs = [
        federate(
            Experiment(method=fitting(method), **OWN | {"rounds": 2}),
            data=federation(),
            model=dropping,
            workers=1,
        )
        for _ in range(2)
    ]
    assert runs[0].digest == runs[1].digest
    score = runs[0].evaluation("personal")
    assert score.figures.loss.min() > 0
    assert score.figures.loss.max() < 10


def test_random_layers_do_not_depend_on_who_computes() -> None:
    given = OWN | {"rounds": 2, "clients_per_round": 6}
    digests = {
        federate(
            Experiment(method="superfed-mm", seed=seed, **given),
            data=federation(),
            model=dropping,
            workers=workers,
        ).digest
        for workers, seed in ((1, 1), (2, 1), (1, 2))
    }
    assert len(digests) == 2, "one per seed"


def test_a_program_of_random_steps_repeats_itself() -> None:
    """The first client makes the program, the others find it; in two processes both make one."""
    given = OWN | {"rounds": 2, "epochs": 1, "clients_per_round": 6, "step": "compiled"}
    runs = [
        federate(
            Experiment(method="fedavg", **given), data=federation(), model=dropping, workers=workers
        )
        for workers in (1, 2)
    ]
    assert runs[0].digest == runs[1].digest
    assert runs[0].evaluation("shared").figures.loss.max() < 10


def test_a_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    experiment = Experiment(method="superfed-mm", seed=4, **OWN)
    whole = federate(experiment, data=federation(), model=dropping)
    first = tmp_path / "run"
    federate(experiment, data=federation(), model=dropping, out=first, watch=lambda _: True)
    resumed = isthmus.resume(first, data=federation(), model=dropping)
    assert len(whole.rounds) > 1
    assert resumed.digest == whole.digest


class Residual(nn.Module):
    """A basic block of ResNet-18, which halves the image where it has more channels to give."""

    def __init__(self, channels: int, outputs: int, stride: int) -> None:
        nn.Module.__init__(self)
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels, outputs, 1, stride), nn.BatchNorm2d(outputs))
            if stride > 1
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        outputs: Tensor = self.relu(y)
        return outputs


def residual() -> nn.Module:
    blocks = Residual(4, 4, 1), Residual(4, 8, 2)
    pool = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), *blocks, *pool, nn.Linear(8, CLASSES)
    )


def images() -> Federation:
    rng, owner = np.random.default_rng(2), np.repeat(np.arange(3), 60)
    y = rng.integers(CLASSES, size=180)
    x = rng.standard_normal((180, 1, 4, 4)) + y[:, None, None, None] * np.tri(4)
    return Federation.of(x.astype(np.float32), y, owner, validation=0.2, seed=1)


@pytest.mark.parametrize("method", ["fedavg", "fedbn", "superfed-mm", "floco", "ditto"])
def test_a_residual_network_goes_on_repeats_and_comes_back(method: str, tmp_path: Path) -> None:
    """With BatchNorm and dropout: to the same bits in pieces, and as recorded from files."""
    experiment = Experiment(method=method, **OWN | {"clients_per_round": 2, "seed": 4})
    data, out = images(), tmp_path / "run"
    whole = federate(experiment, data=data, model=residual, workers=1)
    federate(experiment, data=data, model=residual, out=out, watch=lambda _: True)
    resumed = isthmus.resume(out, data=data, model=residual)
    assert resumed.digest == whole.digest
    recorded = whole.evaluation("personal").figures
    assert recorded.top1.mean() > 0.5, "guessing has a third"
    with isthmus.open(out, data=data, model=residual) as opened:
        cards = list(export(opened, tmp_path / "models"))
    for i, card in enumerate(cards):
        x, y = data.split(i, "test")
        with torch.no_grad():
            right = load_network(card, residual)(x).argmax(1) == y
        assert right.double().mean() == recorded.top1[i]
        assert torch.equal(torch.as_tensor(load(card, residual)(x.numpy())).argmax(1) == y, right)


def test_points_of_a_path_have_statistics_of_their_own(tmp_path: Path) -> None:
    """Within the path they are those of the client's training examples, not the ends' mixed; the
    shared end keeps those that were averaged."""
    data, method = federation(), {"name": "superfed-mm", "start": 0.0}
    federate(Experiment(method=method, **OWN), data=data, model=network, out=tmp_path / "run")
    with isthmus.open(tmp_path / "run", data=data, model=network) as opened:
        point, common = opened.path(1), opened.common()
        model = opened.setting.task.model
    assert point is not None
    assert common is not None
    assert model.statistics is not None
    assert torch.equal(point.w[0], common)
    settled = model.reestimate_statistics(
        torch.lerp(point.w[0], point.w[10], 0.5), [data.split(1, "train").x]
    )
    assert (point.w[5] - settled).abs().max() < 1e-6
    mixed = torch.lerp(point.w[0], point.w[10], 0.5)
    assert (point.w[5] - mixed)[model.statistics].abs().max() > 1e-3


def test_points_of_a_plane_have_statistics_of_their_own(tmp_path: Path) -> None:
    """The corner of a grid, measured on client 1: its loss with client 1's training statistics.

    Statistics of no model count as coordinates: the own models' are far from the shared one's."""
    data, method, out = federation(), {"name": "superfed-mm", "start": 0.0}, tmp_path / "run"
    federate(Experiment(method=method, **OWN), data=data, model=network, out=out)
    with isthmus.open(out, data=data, model=network) as opened:
        marked = landscape.models(opened, [1, 2], None)
        landscape.survey(out, opened, clients=[1, 2], on=["1", "server"], points=2)
        model = opened.setting.task.model
    assert model.statistics is not None
    without = [m.w * ~model.statistics for m in marked]
    corner = next(row for row in read_rows(out / "landscape.csv") if not row["model"])
    point = landscape.plane_through(*without[:3]).at(float(corner["x"]), float(corner["y"]))
    (x, y), seen = data.split(1, "test"), data.split(1, "train").x
    with torch.no_grad():
        loss = cross_entropy(model.logits(model.reestimate_statistics(point, [seen]), x), y)
    assert corner["client"] == "1"
    assert float(corner["loss"]) == pytest.approx(float(loss), rel=1e-4)
    own = next(row for row in read_rows(out / "landscape.csv") if row["model"] == "own")
    away = torch.linalg.vector_norm(without[1] - without[0])
    assert float(own["x"]) == pytest.approx(float(away), rel=1e-4)


def test_a_client_of_one_training_example_is_normalised_with_itself() -> None:
    rng, owner = np.random.default_rng(1), np.repeat([0, 1], [3, 40])
    x = rng.standard_normal((43, FEATURES)).astype(np.float32)
    data = Federation.of(x, np.arange(43) % CLASSES, owner, test=0.4, validation=0.5, seed=1)
    assert data.sizes(0)[0] == 1
    given = OWN | {"clients_per_round": 2, "rounds": 1}
    method = {"name": "superfed-mm", "start": 0.0}
    run = federate(Experiment(method=method, **given), data=data, model=network)
    assert run.evaluation("personal").figures.loss.max() < 10


def test_a_network_that_gives_more_than_logits_is_refused() -> None:
    class Output(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            return {"logits": nn.Linear.forward(self, x)}

    with raises(IsthmusError):
        setting("fedavg", build=lambda: Output(FEATURES, CLASSES))


def test_a_network_that_remembers_elsewhere_is_refused() -> None:
    class Counting(nn.Linear):
        def __init__(self) -> None:
            nn.Linear.__init__(self, FEATURES, CLASSES)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1  # type: ignore[operator]
            return nn.Linear.forward(self, x)

    with raises(IsthmusError):
        setting("fedavg", build=Counting)
