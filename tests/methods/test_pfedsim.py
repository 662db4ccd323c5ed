from math import log

import pytest
import torch

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.pfedsim import SELF, PFedSim, Server, similarity
from small import SIZES, advance, begin, played, setting

START = vector(1.0, 0.5, -0.5)  # b, h0, h1


def test_similarity_worked_by_hand() -> None:
    """Rows (1, 0), (0, 2) against (1, 1), (0, -1): cosines 0.7071 and -1, mean -0.1464: 0.

    Against (3, 0), (1, 1): cosines 1 and 0.7071, mean 0.8536. A head against itself is cut to SELF.
    """
    heads = torch.tensor([[1.0, 0, 0, 2], [1, 1, 0, -1], [3, 0, 1, 1]])
    phi = similarity(heads, rows=2)
    assert phi[0].tolist() == pytest.approx([SELF, 0.0, (1 + 0.5**0.5) / 2])
    assert torch.equal(phi, phi.T)


def test_bodies_are_mixed_and_heads_are_not() -> None:
    """Two clients with phi = 0.9: a = -log 0.1 = 2.302585 against a_ii = -log 1e-4 = 9.210340.

    Client 0's body is (9.210340 * 2 + 2.302585 * 4) / 11.512925 = 2.4, since 9.21034 is 4 times
    2.302585; its head stays. Nothing is trained: lr is 0 but for rounding.
    """
    method = PFedSim(warmup=0.5)
    made = setting({"name": "pfedsim", "warmup": 0.0}, rounds=4, lr=1e-12)
    server = method.init(made.task)
    size, cut = made.task.model.size, made.task.model.body.stop
    models = {i: torch.full((size,), float(2 * i + 2)) for i in (0, 1)}
    phi = torch.zeros(len(SIZES))
    phi[1] = 0.9
    assert -log(1 - SELF) / -log(1 - 0.9) == pytest.approx(4)
    shelf = {"model/0": models[0], "model/1": models[1], "phi/0": phi}
    middle = begin(made)._replace(server=server, shelf=shelf)
    end, _ = advance(made, middle, evaluate=False)
    sent = end.shelf["model/0"]
    assert sent[:cut].tolist() == pytest.approx([2.4] * cut, abs=1e-5)
    assert sent[cut:].tolist() == pytest.approx([2.0] * (size - cut), abs=1e-5)


def test_two_clients_worked_by_hand_after_the_warm_up() -> None:
    """With nothing known of each other they train alone from w, as in test_fedper.

    A (class 0): b = 1.0268941421, h = (0.5268941421, -0.5268941421); B (class 1): b = 0.9268941421,
    h = (0.4268941421, -0.4268941421). Their heads' rows point the same way: phi is 1, cut to SELF.
    """
    method = PFedSim(warmup=0.5)
    job = task(model=chain(), w0=START)
    here = Cohort(method, job, [client(method, job, 5, y=(label,)) for label in (0, 1)])
    here.after(1, Server(START))
    shelf = here.shelf
    for i, sign in enumerate((1, -1)):
        b, h = (1.0268941421, 0.5268941421) if sign > 0 else (0.9268941421, 0.4268941421)
        assert shelf[f"model/{i}"].tolist() == pytest.approx([b, h, -h])
        assert shelf[f"phi/{i}"].tolist() == pytest.approx([SELF, SELF])


def test_the_warm_up_is_not_a_round_short_of_its_share() -> None:
    """0.29 * 100 is 28.999999999999996 in binary numbers; 29 is meant."""
    assert PFedSim(warmup=0.29).schedule(100) == (29,)
    assert PFedSim(warmup=0.5).schedule(101) == (50,)


def test_the_shared_model_stays_after_the_warm_up() -> None:
    made = setting({"name": "pfedsim", "warmup": 0.5})
    middle = played(made, 2)
    end = played(made, 2, middle)
    assert torch.equal(end.server.w, middle.server.w)
    assert not torch.equal(middle.server.w, made.task.w0)
    assert not middle.shelf
    assert end.shelf


def test_who_took_no_part_since_deploys_the_model_of_the_warm_up() -> None:
    method, job = PFedSim(), task()
    assert method.personal(client(method, job, 9), (), vector(1, 2)).tolist() == [1, 2]
    made = setting({"name": "pfedsim", "warmup": 0.5})
    end, step = advance(made, played(made, 3), evaluate=True)
    absent = [i for i in range(len(SIZES)) if f"model/{i}" not in end.shelf]
    assert absent
    assert step.evaluation is not None
    personal = step.evaluation("personal").figures.loss
    shared = step.evaluation("shared").figures.loss
    assert all(personal[i] == shared[i] for i in absent)
