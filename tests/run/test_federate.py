import gc
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from golden import raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.run.loop import RoundResult, is_due
from small import CLASSES, FEATURES, WIDTH, advance, begin, federation, network, played, setting

OWN = {"method": "fedavg", "data": "own", "rounds": 2, "epochs": 1, "clients_per_round": 2}


def test_own_data_and_an_own_model_run_and_are_named_in_the_experiment() -> None:
    data = federation()
    run = federate(Experiment(**OWN), data=data, model=network)
    assert run.experiment.data == {"name": "own", "digest": data.digest()}
    assert run.experiment.model == {"name": "own", "class": "network"}
    assert run.experiment.clients == len(data)
    assert (run.experiment.test, run.experiment.validation) == (0.2, 0.15)  # the data's
    assert run.evaluation("shared").figures.top1.shape == (len(data),)


def test_a_recorded_experiment_wants_the_data_it_was_made_with(tmp_path: Path) -> None:
    federate(Experiment(**OWN), data=federation(), model=network, out=tmp_path / "run")
    again = Experiment.load(tmp_path / "run" / "experiment.toml")
    assert federate(again, data=federation(), model=network).experiment == again
    with raises(IsthmusError):
        federate(again, data=federation(seed=6), model=network)
    with raises(IsthmusError):
        federate(again)


class Symbols(nn.Module):
    """Looks up symbol 2 of the two that it knows."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.table = nn.Embedding(2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.table(torch.full_like(x[:, 0], 2).long())
        return logits


def test_a_model_that_does_not_fit_the_data_is_refused() -> None:
    with raises(IsthmusError):
        federate(Experiment(**OWN), data=federation(), model=lambda: nn.Linear(FEATURES, 7))
    with raises(IsthmusError):
        federate(Experiment(**OWN), data=federation(), model=lambda: nn.Linear(5, CLASSES))
    with raises(IsthmusError):
        federate(Experiment(**OWN), data=federation(), model=Symbols)


def test_stacked_refuses_batch_normalisation_and_loop_takes_it() -> None:
    """Padded examples would enter the batch's mean and variance."""
    norm = nn.BatchNorm1d(FEATURES, track_running_stats=False)
    data = federation(sizes=(40, 40, 40))  # 27 to train on: no batch of one

    def build() -> nn.Module:
        return nn.Sequential(type(norm)(FEATURES, track_running_stats=False), network())

    given = OWN | {"batch_size": 8}
    with raises(IsthmusError):
        federate(Experiment(**given, engine="stacked"), data=data, model=build)
    assert federate(Experiment(**given), data=data, model=build).digest


def test_evaluation_falls_due_every_so_often_and_at_the_end() -> None:
    def rounds(every: int) -> list[int]:
        experiment = Experiment(rounds=7, eval_every=every)
        return [t + 1 for t in range(7) if is_due(experiment, t)]

    assert rounds(3) == [3, 6, 7]
    assert rounds(0) == [7]
    assert rounds(1) == list(range(1, 8))


def test_the_learning_rate_decays_by_the_round() -> None:
    """lr_t = lr * decay^(t + 1): 0.1 * 0.5, 0.1 * 0.25."""
    made = setting("fedavg", lr=0.1, lr_decay=0.5)
    progress, first = advance(made, begin(made), evaluate=False)
    _, second = advance(made, progress, evaluate=False)
    assert (first.cost.lr, second.cost.lr) == (0.05, 0.025)


def test_all_methods_see_the_same_cohorts_and_the_same_federation() -> None:
    settings = [setting(name, clients_per_round=2) for name in ("fedprox", "superfed-mm")]
    prox, mixed = (set(played(made, 1).own) for made in settings)
    assert prox == set()  # keeps nothing at home
    assert len(mixed) == 2
    runs = [
        federate(Experiment(method=name, data="synthetic", rounds=1, epochs=1, seed=4))
        for name in ("fedavg", "superfed-lm")
    ]
    digests = {run.setting.federation.digest() for run in runs}
    assert len(digests) == 1


def test_a_seed_decides_the_federation() -> None:
    one, two = (
        federate(Experiment(method="fedavg", rounds=1, epochs=1, seed=seed)).setting.federation
        for seed in (1, 2)
    )
    assert one.digest() != two.digest()


def test_a_split_seed_gives_one_federation_to_several_seeds() -> None:
    """Examples, parts, noise and who is held out stay; cohorts and first parameters do not."""
    common = {"noise": "pair", "held_out": 0.2, "rounds": 1, "epochs": 1, "method": "fedavg"}
    seeds = [{"seed": 3}, {"seed": 1, "split_seed": 3}, {"seed": 2, "split_seed": 3}]
    runs = [federate(Experiment(**common, **seed)) for seed in seeds]
    assert len({run.setting.federation.digest() for run in runs}) == 1
    assert len({run.setting.newcomers.digest() for run in runs if run.setting.newcomers}) == 1
    assert len({run.digest for run in runs}) == 3


def test_without_validation_data_nothing_is_chosen_on_them() -> None:
    data = federation()
    rng = np.random.default_rng(0)
    bare = Federation.of(
        data.arrays.x, data.arrays.y, rng.integers(3, size=len(data.arrays.y)), validation=0.0
    )
    run = federate(Experiment(**OWN), data=bare, model=network)
    assert {score.split for score in run.evaluation.scores} == {"test"}
    for method in ("superfed-mm", "local"):
        with raises(IsthmusError):
            federate(Experiment(**OWN | {"method": method}), data=bare, model=network)
    fixed = Experiment(**OWN | {"method": "superfed-mm"}, selection="fixed")
    assert federate(fixed, data=bare, model=network).digest


def test_a_run_describes_itself_in_a_line() -> None:
    run = federate(Experiment(method="superfed-mm", rounds=1, epochs=1, selection="oracle"))
    assert "on TEST data" in repr(run)
    assert run.digest in repr(run)
    plain = federate(Experiment(method="fedavg", rounds=1, epochs=1))
    assert "path point" not in repr(plain)


def test_no_collection_of_garbage_copies_what_workers_share() -> None:
    frozen = []

    def watch(done: RoundResult) -> None:
        frozen.append(gc.get_freeze_count())

    federate(Experiment(method="fedavg", rounds=1, epochs=1), watch=watch)
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() == 0


def test_a_task_knows_how_many_features_enter_the_head() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.last.weight.T

    assert setting("fedavg").task.features == WIDTH
    assert setting("fedavg", build=Functional).task.features == 0
