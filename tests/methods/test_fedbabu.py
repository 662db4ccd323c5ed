import pytest

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.fedbabu import FedBabu

START = vector(1.0, 0.5, -0.5)  # b, h0, h1


def test_two_clients_worked_by_hand() -> None:
    """One step of the body each: those of test_fedper, with the head as it was drawn."""
    method, job = FedBabu(tune=0), task(model=chain(), w0=START)
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    assert server.b.tolist() == pytest.approx([0.9768941421])
    assert server.h0.tolist() == [0.5, -0.5]
    assert method.common(server).tolist() == pytest.approx([0.9768941421, 0.5, -0.5])


def test_before_it_is_deployed_body_and_head_are_tuned() -> None:
    """One epoch of one step from (1, 0.5, -0.5): that of FedAvg, as in test_fedper."""
    method, job = FedBabu(tune=1), task(model=chain(), w0=START)
    deployed = method.personal(client(method, job, 0), (), method.init(job))
    expected = [1.0268941421, 0.5268941421, -0.5268941421]
    assert deployed.tolist() == pytest.approx(expected)
