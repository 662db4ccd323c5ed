from math import exp

import pytest
import torch

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.fedas import FedAs, Own, Reply, Server

START = vector(1.0, 0.0, 0.0)  # b, h0, h1: the feature of x is z = b x


def test_two_clients_worked_by_hand() -> None:
    """Shared b = 1, one example x = 1 each, align_lr = 0.01, lr = 0.1.

    A (class 0) took part before and has b = 2, h = (0, 0): its mean feature is 2, the alignment's
    gradient 2 (1 - 2) = -2, so b = 1.02. With h = 0 training moves only h, by 0.1 b (1/2, -1/2):
    h = (0.051, -0.051). Logits (+-0.051 * 1.02) give p1 = 1 / (1 + exp(0.10404)); the gradient is
    (-0.102, -1.02, 1.02) p1, so f = (0.102^2 + 2 * 1.02^2) p1^2 = 2.091204 p1^2.

    B (class 1) is new: its means are those of b = 1, nothing to align; h = (-0.05, 0.05), and f =
    (0.1^2 + 2) p0^2 with p0 = 1 / (1 + exp(0.1)). The new b is (1.02 f_A + 1 f_B) / (f_A + f_B).
    """
    method, job = FedAs(), task(model=chain(), w0=START)
    clients = Cohort(method, job, [client(method, job, 3, y=(label,)) for label in (0, 1)])
    clients.own[0] = Own(vector(2.0, 0.0, 0.0), torch.tensor(True))
    server = clients.after(1)
    assert clients.own[0].w.tolist() == pytest.approx([1.02, 0.051, -0.051], abs=1e-15)
    assert clients.own[1].w.tolist() == pytest.approx([1.0, -0.05, 0.05], abs=1e-15)
    f = 2.091204 / (1 + exp(0.10404)) ** 2, 2.01 / (1 + exp(0.1)) ** 2
    assert server.v.tolist() == pytest.approx([(1.02 * f[0] + f[1]) / sum(f)], abs=1e-12)


class Answers:
    """Two clients with bodies 1 and 4."""

    def __init__(self, *f: float):
        self.f = vector(*f)

    def map(self, local: object, server: Server) -> tuple[None, Reply]:
        return None, Reply(torch.stack([vector(1, 9, 9), vector(4, 9, 9)]), self.f)


def test_the_server_weighs_by_fisher_information() -> None:
    """(3 * 1 + 1 * 4) / 4 = 1.75; if nobody has any, (1 + 4) / 2 = 2.5."""
    before = Server(vector(0.0))
    for f, expected in (((3.0, 1.0), 1.75), ((0.0, 0.0), 2.5)):
        after = FedAs().round(before, Answers(*f))  # type: ignore[arg-type]
        assert after.v.tolist() == [expected]


def test_fisher_information_is_summed_over_batches() -> None:
    """Two equal examples in batches of one, without training to speak of: twice that of one."""
    traces = []
    for examples in (1, 2):
        method, job = FedAs(align_epochs=0), task(model=chain(), w0=START, lr=1e-9)
        here = client(method, job, 0, x=((1.0,),) * examples, y=(0,) * examples)
        traces.append(method.local(here, method.own(job, 0), method.init(job))[1].f.item())
    assert traces == pytest.approx([0.5, 1.0], abs=1e-6)  # |(0, -1/2, 1/2)|^2 = 1/2


def test_a_client_deploys_the_model_of_its_last_participation() -> None:
    """What the server learns later does not reach it; one that never took part has the body."""
    method, job = FedAs(), task(model=chain(), w0=START)
    here, later = client(method, job, 9), Server(vector(5.0))
    own = Own(vector(2.0, 0.3, 0.4), torch.tensor(True))
    assert method.personal(here, own, later).tolist() == [2.0, 0.3, 0.4]
    assert method.personal(here, method.own(job, 0), later).tolist() == [5.0, 0.0, 0.0]


def test_a_newcomer_takes_part_once() -> None:
    """b = 5 has nothing to be aligned with but itself; h = 0.1 * 5 * (1/2, -1/2)."""
    method, job = FedAs(), task(model=chain(), w0=START)
    newcomer = client(method, job, 9)
    newcomer.own = method.own(job, 7)
    joined = method.join(newcomer, Server(vector(5.0)))
    found = method.personal(newcomer, joined, Server(vector(5.0)))
    assert found.tolist() == pytest.approx([5.0, 0.25, -0.25], abs=1e-15)
