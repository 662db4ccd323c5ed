import pytest
import torch

from by_hand import client, task, vector
from isthmus.methods.local import Local
from small import SIZES, advance, played, setting


def test_two_rounds_worked_by_hand() -> None:
    """As FedAvg's client: (0.05, -0.05), whose loss on the same example is log(1 + exp(-0.1)).

    That is 0.6443966601; with patience 1 the client goes on, since it is better than nothing.
    """
    method = Local(patience=1)
    own, reply = method.local(client(method, task(), 0), method.own(task(), 0))
    assert own.w.tolist() == pytest.approx([0.05, -0.05], abs=1e-15)
    assert float(own.best_loss) == pytest.approx(0.6443966601, abs=1e-9)
    assert bool(reply.training)
    assert torch.equal(method.personal(client(method, task(), 0), own, ()), own.w)


def test_a_client_stops_when_its_validation_loss_no_longer_falls() -> None:
    """The best loss is set below what can be reached, so every round is a disappointment."""
    method = Local(patience=2)
    own = method.own(task(), 0)._replace(best_w=vector(9, 9), best_loss=vector(0.0)[0])
    own, first = method.local(client(method, task(), 0), own)
    own, second = method.local(client(method, task(), 1), own)
    assert (bool(first.training), bool(second.training)) == (True, False)
    assert own.best_w.tolist() == [9, 9]  # what it deploys; it trained on from w


def test_with_the_full_budget_all_clients_train_until_each_has_stopped() -> None:
    made = setting({"name": "local", "patience": 2}, rounds=40, epochs=6)
    end = played(made, 40)
    assert set(end.own) == set(range(len(SIZES)))
    assert not end.server.training.any()
    _, done = advance(made, end, evaluate=False)
    assert done.cost.asked == 0  # nobody is left


def test_with_the_participation_budget_only_the_sampled_clients_train() -> None:
    made = setting({"name": "local", "budget": "participation"}, clients_per_round=2)
    end, done = advance(made, played(made, 0), evaluate=True)
    assert done.cost.asked == len(end.own) == 2
    assert [score.model for score in done.evaluation.scores] == ["personal", "personal"]
    assert done.evaluation.server is None  # nothing is shared
