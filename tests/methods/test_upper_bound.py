import numpy as np
import pytest
import torch

from by_hand import client, task, vector
from isthmus import Federation
from isthmus.data.arrays import Column
from isthmus.data.federation import pool
from isthmus.methods.pooled import PooledTraining, Server
from small import FEATURES, SIZES, advance, begin, federation, setting


def test_a_round_worked_by_hand() -> None:
    """As FedAvg's client: from (0, 0) one step of lr 0.1 along (1/2, -1/2) is (0.05, -0.05)."""
    method = PooledTraining()
    _, reply = method.local(client(method, task(), 0), (), Server(vector(0, 0)))
    assert reply.w.tolist() == pytest.approx([0.05, -0.05], abs=1e-15)


def test_a_round_draws_as_many_examples_as_its_cohort_has_from_everybody_s() -> None:
    data = federation()
    everything = np.sort(np.concatenate([parts.train for parts in data.splits]))
    size = data.sizes(1)[0] + data.sizes(4)[0]
    first, again, later = (pool(data, size, 3, t) for t in (0, 0, 1))
    assert len(first) == 1
    assert first.sizes(0) == (size, 0, 0)
    rows = [np.sort(drawn.splits[0].train) for drawn in (first, again, later)]
    assert len(np.unique(rows[0])) == size
    assert np.isin(rows[0], everything).all()
    assert (rows[0] == rows[1]).all()
    assert not (rows[0] == rows[2]).all()
    owners = {i for i, parts in enumerate(data.splits) if np.isin(parts.train, rows[0]).any()}
    assert len(owners) > 2  # not of the cohort alone
    assert (np.sort(pool(data, len(everything), 3, 0).splits[0].train) == everything).all()


def test_examples_are_scaled_as_at_the_client_they_come_from() -> None:
    data = federation()
    columns = tuple(Column(str(k), None) for k in range(FEATURES))
    arrays = data.arrays._replace(scaled_by="client", columns=columns)
    own = Federation(arrays, data.splits)
    total = sum(own.sizes(i)[0] for i in range(len(own)))
    x, y = pool(own, total, 3, 0).split(0, "train")
    each = [own.split(i, "train") for i in range(len(own))]
    assert torch.equal(x, torch.cat([part.x for part in each]))
    assert torch.equal(y, torch.cat([part.y for part in each]))
    assert not torch.equal(x, pool(data, total, 3, 0).split(0, "train").x)


def test_nobody_is_asked_and_the_model_is_everybody_s() -> None:
    made = setting("pooled")
    end, step = advance(made, begin(made), evaluate=True)
    assert (step.cost.asked, step.cost.down_bytes, step.cost.up_bytes) == (0, 0, 0)
    assert not end.own
    personal, shared = step.evaluation("personal"), step.evaluation("shared")
    assert personal.figures.loss.tolist() == shared.figures.loss.tolist()
    assert len(personal.clients) == len(SIZES)
