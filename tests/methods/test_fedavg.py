import numpy as np
import pytest
import torch

from by_hand import client, task, vector
from isthmus.context import Call
from isthmus.engines.base import draw
from isthmus.formulas.vector import mean
from isthmus.methods.fedavg import FedAvg, Reply, Server
from isthmus.models.flat import Flat
from small import federation, network, played, setting


def test_two_clients_worked_by_hand() -> None:
    """Both start at w = (0, 0), where p = (1/2, 1/2), with lr = 0.1.

    Client A has one example of class 0: g = (-1/2, 1/2), w_A = (0.05, -0.05). Client B has one of
    class 1: g = (1/2, -1/2), w_B = (-0.05, 0.05). With n_A = 3 and n_B = 1 the average is
    (3 * 0.05 - 0.05) / 4 = 0.025.
    """
    method, w = FedAvg(), Server(vector(0, 0))
    _, a = method.local(client(method, task(), 0), (), w)
    _, b = method.local(client(method, task(), 0, y=(1,)), (), w)
    assert a.w.tolist() == pytest.approx([0.05, -0.05], abs=1e-15)
    assert b.w.tolist() == pytest.approx([-0.05, 0.05], abs=1e-15)
    average = mean(torch.stack([a.w, b.w]), vector(3, 1))
    assert average.tolist() == pytest.approx([0.025, -0.025], abs=1e-15)
    assert isinstance(a, Reply)
    assert float(a.n) == 1


def test_momentum_and_weight_decay_are_those_of_torch_sgd() -> None:
    """One client against torch.optim.SGD and autograd on the plain module, on the same batches.

    Ten passes over 27 examples in batches of eight: 40 steps, in float32; each adds about 1e-7.
    """
    made = setting("fedavg", data=federation(sizes=(40,)), clients_per_round=1, epochs=10)
    task, data = made.task, made.federation
    module = Flat(network).load(task.w0)
    sgd = torch.optim.SGD(module.parameters(), lr=task.lr_at(0), momentum=0.9, weight_decay=1e-4)
    x, y = data.split(0, "train")
    drawn = draw(made, Call(len, (), 0, "train", 0), 0, len(y))
    for order in torch.as_tensor(drawn.orders):
        for rows in order.split(8):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            sgd.step()
    expected = task.model.flatten(module)
    assert (played(made, 1).server.w - expected).abs().max() < 1e-5
    assert (expected - task.w0).abs().max() > 0.1


def test_a_single_upload_becomes_the_shared_model() -> None:
    rows = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(mean(rows, torch.tensor([7.0])), rows[0])


def test_fedavg_lu_deploys_the_shared_model_after_one_epoch_of_its_own() -> None:
    """From w = (0, 0) with tune_lr 0.01: w = -0.01 * (-1/2, 1/2) = (0.005, -0.005)."""
    method = FedAvg(tune=1)
    tuned = method.personal(client(method, task(), 9), (), Server(vector(0, 0)))
    assert tuned.tolist() == pytest.approx([0.005, -0.005], abs=1e-15)
    assert np.isclose(float(tuned.sum()), 0)
