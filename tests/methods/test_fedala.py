import pytest
import torch

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.fedala import FedAla, Own, Server

YES = torch.tensor(True)


def test_two_clients_worked_by_hand() -> None:
    """A took part before: v = (0.2, -0.2), and receives w = (0, 0); lr = ala_lr = 0.1.

    Its weights begin at 1, so the model is w and the gradient there (-0.5, 0.5) at class 0. With
    respect to m it is g (w - v) = (-0.5 * -0.2, 0.5 * 0.2) = (0.1, 0.1), so m = (0.99, 0.99): it
    takes a little less of w. It begins at v + (w - v) m = (0.002, -0.002) and makes one step:
    p0 = 1 / (1 + exp(-0.004)) = 0.501, w = (0.002 + 0.1 * 0.499, ...) = (0.0519, -0.0519), to 1e-6.
    B never took part: it makes FedAvg's step, at class 1 (-0.05, 0.05).
    """
    method, job = FedAla(ala_lr=0.1), task()
    own = Own(vector(0.2, -0.2), vector(1, 1), YES)
    new, reply = method.local(client(method, job, 0), own, Server(vector(0, 0)))
    assert new.m.tolist() == pytest.approx([0.99, 0.99])
    assert reply.w.tolist() == pytest.approx([0.0519, -0.0519], abs=1e-6)
    assert torch.equal(new.v, reply.w)
    first = Cohort(method, job, [client(method, job, 0, y=(1,))])
    assert first.after(1).w.tolist() == pytest.approx([-0.05, 0.05])
    assert first.own[0].m.tolist() == [1, 1]


def test_weights_stay_between_0_and_1() -> None:
    method, job = FedAla(ala_lr=1000.0), task()
    own = Own(vector(0.2, -0.2), vector(1, 1), YES)
    away, _ = method.local(client(method, job, 0), own, Server(vector(0, 0)))
    assert away.m.tolist() == [0, 0]
    back, _ = method.local(client(method, job, 0, y=(1,)), own, Server(vector(0, 0)))
    assert back.m.tolist() == [1, 1]


def test_only_the_last_layers_learn_their_weights() -> None:
    method, job = FedAla(), task(model=chain(), w0=vector(1.0, 0.5, -0.5))
    own = Own(vector(2.0, 0.9, -0.9), vector(1, 1, 1), YES)
    new, _ = method.local(client(method, job, 0), own, method.init(job))
    assert new.m[0] == 1
    assert (new.m[1:] < 1).all()


def test_what_is_deployed_is_what_the_next_round_would_begin_with() -> None:
    """v + (w - v) m = (0.2, -0.2) + (-0.2, 0.2) * (0.5, 0.25) = (0.1, -0.15)."""
    method, job = FedAla(), task()
    own = Own(vector(0.2, -0.2), vector(0.5, 0.25), YES)
    deployed = method.personal(client(method, job, 0), own, Server(vector(0, 0)))
    assert deployed.tolist() == pytest.approx([0.1, -0.15])
    never = method.personal(client(method, job, 0), method.own(job, 0), Server(vector(3, 4)))
    assert never.tolist() == [3, 4]
