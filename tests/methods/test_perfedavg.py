from copy import copy
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from by_hand import Cohort, client, task, vector
from isthmus.client import Client
from isthmus.methods.perfedavg import Model, PerFedAvg
from isthmus.models.flat import Flat


def test_two_clients_worked_by_hand() -> None:
    """Two batches, alpha = 1, lr = 0.1, from (0, 0), first order.

    A (class 0 twice): w' = (0.5, -0.5); there p0 = 1 / (1 + exp(-1)) = 0.7310585786, so w =
    0 - 0.1 (p0 - 1, 1 - p0) = (0.0268941421, -0.0268941421). B (class 1) is the mirror.
    """
    method, job = PerFedAvg(alpha=1.0), task()
    _, reply = method.local(client(method, job, 0, y=(0, 0)), (), method.init(job))
    assert reply.w.tolist() == pytest.approx([0.0268941421, -0.0268941421])
    clients = [client(method, job, 0, y=(label, label)) for label in (0, 1)]
    assert Cohort(method, job, clients).after(1).w.tolist() == pytest.approx([0, 0])


def test_clients_count_alike_whatever_their_size() -> None:
    method, job = PerFedAvg(), task()
    one, many = client(method, job, 0, y=(0, 0)), client(method, job, 0, y=(1,) * 10)
    ends = [method.local(copy(here), (), method.init(job))[1].w for here in (one, many)]
    both = Cohort(method, job, [one, many]).after(1).w
    assert both.tolist() == pytest.approx(((ends[0] + ends[1]) / 2).tolist())


class Tiny:
    """Three batches of a small smooth network in float64, and exact derivatives there."""

    def __init__(self, method: PerFedAvg):
        network = Flat(
            lambda: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double(), "last"
        )
        self.w = network.fresh(seed=1).double()
        self.job = task(model=network, w0=self.w, lr=1.0)
        self.client: Client = client(
            method, self.job, 0, x=((0.3, -1.0), (1.0, 0.5), (-0.7, 0.2)), y=(0, 1, 0)
        )

    def loss(self, w: Tensor, k: int) -> Tensor:
        x, y = self.client.examples.x[k : k + 1], self.client.examples.y[k : k + 1]
        return torch.nn.functional.cross_entropy(self.job.model.logits(w, x), y)

    def gradient(self, w: Tensor, k: int) -> Tensor:
        return cast(Tensor, torch.func.grad(lambda w: self.loss(w, k))(w))


def test_the_hessian_free_direction_is_the_exact_meta_gradient() -> None:
    """(I - alpha H(w; D3)) grad F(w'; D2): a central quotient's error is of order delta^2.

    With delta = 1e-4 that is about 1e-8, and rounding adds about 1e-16 / 1e-4 = 1e-12.
    """
    method = PerFedAvg(variant="hessian-free", alpha=0.5, delta=1e-4)
    tiny = Tiny(method)
    w = tiny.w
    ahead = w - 0.5 * tiny.gradient(w, 0)
    d = tiny.gradient(ahead, 1)
    hessian: Any = torch.func.jacrev(lambda w: tiny.gradient(w, 2))(w)
    exact = d - 0.5 * hessian @ d
    _, reply = method.local(tiny.client, (), Model(w))
    assert torch.allclose(w - reply.w, exact, rtol=0, atol=1e-7)
    assert not torch.allclose(exact, d, rtol=0, atol=1e-3)  # the Hessian matters here


def test_the_exact_meta_gradient_is_that_of_the_meta_objective() -> None:
    """With all three batches the same, it is the derivative of F(w - alpha grad F(w))."""
    method = PerFedAvg(variant="hessian-free", alpha=0.5, delta=1e-4)
    tiny = Tiny(method)
    same = client(method, tiny.job, 0, x=((0.3, -1.0),) * 3, y=(0, 0, 0))

    def meta(w: Tensor) -> Tensor:
        return tiny.loss(w - 0.5 * tiny.gradient(w, 0), 0)

    _, reply = method.local(same, (), Model(tiny.w))
    assert torch.allclose(tiny.w - reply.w, torch.func.grad(meta)(tiny.w), rtol=0, atol=1e-7)


def test_the_first_order_direction_leaves_the_hessian_out() -> None:
    method = PerFedAvg(alpha=0.5)
    tiny = Tiny(method)
    ahead = tiny.w - 0.5 * tiny.gradient(tiny.w, 0)
    _, reply = method.local(tiny.client, (), Model(tiny.w))
    # The third batch is left over: it begins a step that does not end.
    assert torch.allclose(tiny.w - reply.w, tiny.gradient(ahead, 1), rtol=0, atol=1e-14)


def test_the_limiting_case_without_an_inner_step_is_plain_sgd_on_every_second_batch() -> None:
    """alpha = 0, tune = 0, labels 0 1 0 1: only the 1s count, two plain steps of 0.1."""
    method, job = PerFedAvg(alpha=0.0, tune=0), task()
    _, reply = method.local(client(method, job, 0, y=(0, 1, 0, 1)), (), method.init(job))
    second = 0.05 + 0.1 * (1 - 0.52497918747894)
    assert reply.w.tolist() == pytest.approx([-second, second])
    assert method.personal(client(method, job, 0), (), Model(vector(1, 2))).tolist() == [1, 2]


def test_what_is_deployed_is_tuned_by_steps_of_alpha() -> None:
    """One epoch of one example from (0, 0) with alpha = 0.2: (0.1, -0.1)."""
    method, job = PerFedAvg(alpha=0.2), task()
    deployed = method.personal(client(method, job, 0), (), method.init(job))
    assert deployed.tolist() == pytest.approx([0.1, -0.1])
