from collections import OrderedDict

import pytest
import torch
from torch import nn

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.fedproto import FedProto, Own, Prototypes
from small import CLASSES, FEATURES, advance, played, setting

START = vector(1.0, 0.0, 0.0)  # b, h0, h1: the feature of x is z = b x


def prototypes(*p: float, m: tuple[float, ...]) -> Prototypes:
    return Prototypes(vector(*p)[:, None], vector(*m))


def test_two_clients_worked_by_hand() -> None:
    """One step from b = 1, h = (0, 0), lr = 0.1, lam = 1; class 0 has prototype 3, class 1 none.

    With h = 0 the cross-entropy does not move b, and moves h by 0.1 z (1/2, -1/2) towards the
    label. A (x = 1, class 0): z = 1, the pull is 2 (1 - 3) = -4, so b = 1.4, h = (0.05, -0.05); its
    prototype is 1.4. B (x = 2, class 1): no pull, b = 1, h = (-0.1, 0.1); its prototype is 2.
    """
    method, job = FedProto(), task(model=chain(), w0=START)
    a, b = client(method, job, 1), client(method, job, 1, x=((2.0,),), y=(1,))
    clients = Cohort(method, job, [a, b])
    server = clients.after(1, prototypes(3.0, 0.0, m=(1, 0)))
    assert clients.own[0].w.tolist() == pytest.approx([1.4, 0.05, -0.05], abs=1e-15)
    assert clients.own[1].w.tolist() == pytest.approx([1.0, -0.1, 0.1], abs=1e-15)
    assert server.p[:, 0].tolist() == pytest.approx([1.4, 2.0], abs=1e-15)
    assert server.m.tolist() == [1, 1]


class Answers:
    """Two clients: three examples of class 0 around 1, and one of class 0 at 5; nobody has 1."""

    def map(self, f: object, server: Prototypes) -> tuple[None, Prototypes]:
        q = torch.tensor([[[1.0], [0.0]], [[5.0], [0.0]]])
        return None, Prototypes(q, torch.tensor([[3.0, 0.0], [1.0, 0.0]]))


def test_prototypes_are_weighted_by_the_examples_of_the_class() -> None:
    """(3 * 1 + 1 * 5) / 4 = 2, and not the 3 of plain averaging; a class nobody has stays."""
    after = FedProto().round(prototypes(7.0, 9.0, m=(1, 6)), Answers())  # type: ignore[arg-type]
    assert after.p[:, 0].tolist() == [2.0, 9.0]
    assert after.m.tolist() == [4.0, 6.0]


def test_the_nearest_prototype_is_deployed() -> None:
    """b = 1, prototypes 1 and 3: at x = 1.5, -0.5^2 and -1.5^2 differ by 2; 2 is halfway.

    The head of two weights has no place for intercepts: 1 + 2 + 2 numbers are deployed.
    """
    method, job = FedProto(), task(model=chain(), w0=START)
    here = client(method, job, 1)
    params = method.personal(here, Own(START), prototypes(1.0, 3.0, m=(1, 1)))
    assert params.tolist() == [1, 2, 6, -1, -9]
    logits = method.logits(here, params, vector(1.5, 2.0, 2.5)[:, None])
    assert (logits[:, 0] - logits[:, 1]).tolist() == [2, 0, -2]


def test_a_class_without_prototype_is_never_predicted() -> None:
    method, job = FedProto(), task(model=chain(), w0=START)
    here = client(method, job, 1)
    for far in (3.0, 300.0):  # 2 * 300 * -2 - 300^2 is far below any number chosen beforehand
        params = method.personal(here, Own(START), prototypes(far, 0.0, m=(1, 0)))
        logits = method.logits(here, params, vector(-2.0, 0.0, 9.0)[:, None])
        assert logits.argmax(1).tolist() == [0, 0, 0]
        assert (logits[:, 0] - logits[:, 1]).tolist() == [100, 100, 100]


def test_without_any_prototype_all_classes_are_alike() -> None:
    method, job = FedProto(), task(model=chain(), w0=START)
    here = client(method, job, 1)
    params = method.personal(here, Own(START), prototypes(0.0, 0.0, m=(0, 0)))
    assert method.logits(here, params, vector(-2.0, 9.0)[:, None]).unique().tolist() == [0]


def test_with_a_linear_head_what_is_deployed_is_a_plain_network() -> None:
    made = setting("fedproto")
    end = played(made, 2)
    personal = made.method.personal
    task, x = made.task, made.federation.split(0, "test").x
    here = client(made.method, task, 2)
    params = personal(here, end.own.get(0, made.method.own(task, 0)), end.server)
    assert torch.allclose(
        made.method.logits(here, params, x), task.model.logits(params, x), atol=1e-5
    )


def test_any_head_will_do() -> None:
    """A head of two layers without biases: the body's five features are compared."""

    def deep() -> nn.Module:
        body = nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh())
        layers = nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, CLASSES, bias=False)
        return nn.Sequential(OrderedDict(body=body, classifier=nn.Sequential(*layers)))

    made = setting("fedproto", build=deep, head="classifier", rounds=10)
    _, done = advance(made, played(made, 9), evaluate=True)
    assert done.evaluation("personal").figures.top1.mean() > 0.9
