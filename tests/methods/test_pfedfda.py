from math import exp, log

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import nn

from by_hand import Cohort, chain, client, task, vector
from golden import raises
from isthmus import IsthmusError
from isthmus.client import Client
from isthmus.context import Call, Request, RunContext
from isthmus.engines.loop import make_client
from isthmus.methods.pfedfda import PFedFda, Server, lda
from isthmus.models.flat import Flat
from small import begin, federation, played, setting

START = vector(1.0, 0.0, 0.0, 0.0, 0.0)  # body b, slopes, intercepts: the feature of x is z = b x


def biased() -> Flat:
    """One weight, then a linear layer of two classes with a bias."""
    return Flat(
        lambda: nn.Sequential(
            nn.Linear(1, 1, bias=False, dtype=torch.float64),
            nn.Linear(1, 2, dtype=torch.float64),
        )
    )


def state(*mu: float, cov: float = 1.0) -> Server:
    return Server(vector(1.0), vector(*mu)[:, None], vector(cov)[:, None])


def test_two_clients_worked_by_hand() -> None:
    """Means 1 and -1, variance 1: slopes (1, -1), intercepts equal where classes are. lr = 0.1.

    A has x = 1 of class 0 and x = -1 of class 1. Its first step: logits differ by 2, the gradient
    is -2 / (1 + exp(2)), so b1 = 1 + 0.2 / (1 + exp(2)); its second is the same at -b1: b2 = b1 +
    0.2 / (1 + exp(2 b1)). One example of a class is too few: means and variance stay the shared.

    B has x = 1, 2, 3 of class 0 and their negatives, and its own features alone count (beta =
    "local"), but a step that is no step (lr = 0): means 2 and -2; variance (2 + 2) / 5 + 1.0001.
    """
    fitted, own = PFedFda(), PFedFda(beta="local")
    job = task(model=biased(), w0=START)
    a = client(fitted, job, 0, x=((1.0,), (-1.0,)), y=(0, 1))
    still = task(model=biased(), w0=START, lr=0.0)
    x = ((1.0,), (2.0,), (3.0,), (-1.0,), (-2.0,), (-3.0,))
    b = client(own, still, 0, x=x, y=(0, 0, 0, 1, 1, 1))
    server = state(1.0, -1.0)
    _, first = fitted.local(a, (), server)
    _, second = own.local(b, (), server)
    b1 = 1 + 0.2 / (1 + exp(2))
    assert first.fitted.v.tolist() == pytest.approx([b1 + 0.2 / (1 + exp(2 * b1))], abs=1e-12)
    assert torch.equal(first.fitted.mu, server.mu)
    assert torch.equal(first.fitted.cov, server.cov)
    assert second.fitted.v.tolist() == [1.0]
    assert second.fitted.mu[:, 0].tolist() == pytest.approx([2, -2], abs=1e-12)
    assert second.fitted.cov.item() == pytest.approx(1.8001, abs=1e-12)


def test_the_server_averages_bodies_means_and_covariances() -> None:
    """Two and six examples: means (2 * 1 + 6 * 2) / 8 = 1.75.

    One example of a class is too few: the two scatter by 0 around the shared 1 and -1. So variances
    are (2 * 1.0001 + 6 * 1.8001) / 8 = 1.6001.
    """
    method, still = PFedFda(beta="local"), task(model=biased(), w0=START, lr=0.0)
    x = ((1.0,), (2.0,), (3.0,), (-1.0,), (-2.0,), (-3.0,))
    few = client(PFedFda(), still, 0, x=((1.0,), (-1.0,)), y=(0, 1))
    many = client(method, still, 0, x=x, y=(0, 0, 0, 1, 1, 1))
    after = Cohort(method, still, [few, many]).after(1, state(1.0, -1.0))
    assert after.mu[:, 0].tolist() == pytest.approx([1.75, -1.75], abs=1e-12)
    assert after.cov.item() == pytest.approx(1.6001, abs=1e-12)


@pytest.mark.parametrize(("ridge", "variance"), [("released", 1.8001), ("small", 0.8001)])
def test_a_client_deploys_the_classifier_of_its_gaussians(ridge: str, variance: float) -> None:
    """Means 2 and -2: slopes +-2 / v, intercepts -4 / (2 v) + log(1/2); the plain network has them.

    The share 1e-4 of the variance replaces as much of itself: with one feature, nothing.
    """
    method = PFedFda(beta="local", ridge=ridge)  # type: ignore[arg-type]
    job = task(model=biased(), w0=START)
    x = ((1.0,), (2.0,), (3.0,), (-1.0,), (-2.0,), (-3.0,))
    here = client(method, job, 0, x=x, y=(0, 0, 0, 1, 1, 1))
    w = method.personal(here, (), state(1.0, -1.0))
    intercept = -2 / variance + log(0.5)
    expected = [1, 2 / variance, -2 / variance, intercept, intercept]
    assert w.tolist() == pytest.approx(expected, abs=1e-12)
    assert job.model.logits(w, vector(1.0)[:, None]).argmax() == 0


def test_the_limiting_case_is_lda_of_the_clients_own_features() -> None:
    """With beta = "local" the shared means and covariance leave no bit behind."""
    made, here = a_client("local")
    first = made.method.init(made.task)
    other = Server(first.v, first.mu - 5, 3 * first.cov)
    found = [made.method.personal(here, (), server) for server in (first, other)]
    assert torch.equal(found[0], found[1])
    fitted = PFedFda().personal(here, (), other)
    assert not torch.equal(fitted, PFedFda().personal(here, (), first))


def a_client(beta: str, weighed: bool = False) -> tuple[RunContext, Client]:
    """A client with six examples of each class, and so three in each half."""
    data = federation((120,))
    if weighed:
        data.arrays = data.arrays._replace(weight=np.where(np.arange(120) % 5, 0.1, 9))
    made = setting({"name": "pfedfda", "beta": beta}, data=data, clients_per_round=1)
    here = make_client(made, Call(len, (), 0, "train", 0), Request(0, (), ()))
    assert here.label_counts().min() >= 6
    return made, here


def criterion(
    beta: NDArray[np.float64],
    z: NDArray[np.float64],
    y: NDArray[np.int64],
    server: Server,
    weight: NDArray[np.float64],
) -> float:
    """Two-fold cross-validation of LDA, once more, with numpy and loops."""
    mu, cov = server.mu.double().numpy(), server.cov.double().numpy()
    prior = np.bincount(y, minlength=3) / len(y) + 1e-4
    prior /= prior.sum()
    fold = np.zeros(len(y), int)
    for c in range(3):
        fold[np.flatnonzero(y == c)] = np.arange((y == c).sum()) % 2
    total = 0.0
    for k in (0, 1):
        zk, yk = z[fold == k], y[fold == k]
        m = np.stack([zk[yk == c].mean(0) if (yk == c).sum() > 2 else mu[c] for c in range(3)])
        centred = zk - m[yk]
        r = centred.T @ centred / (len(yk) - 1) + 1e-4 + np.eye(len(cov))
        means = beta[0] * m + (1 - beta[0]) * mu
        mixed = beta[1] * r + (1 - beta[1]) * cov
        mixed = (1 - 1e-4) * mixed + 1e-4 * np.trace(mixed) / len(cov) * np.eye(len(cov))
        slopes = np.linalg.solve(mixed, means.T)
        logits = z[fold != k] @ slopes - (means.T * slopes).sum(0) / 2 + np.log(prior)
        logits -= np.log(np.exp(logits).sum(1, keepdims=True))
        total -= (weight[fold != k] * logits[np.arange(len(logits)), y[fold != k]]).mean()
    return total


@pytest.mark.parametrize("weighed", [False, True])
def test_the_interpolation_is_that_of_a_generic_optimiser(weighed: bool) -> None:
    """L-BFGS-B of scipy on the same criterion: ours is at most one step of 1/64 from it.

    The shared statistics are the client's own plus noise, so that neither end is best.
    """
    made, here = a_client("fitted", weighed)
    model, task = here.model, here.task
    z = model.features(task.w0, here.examples.x)
    y = here.examples.y
    counted = made.federation.weights(0) if weighed else np.ones(len(y))
    given = z.double().numpy(), y.numpy()
    method = PFedFda()
    first = method.init(task)
    own = PFedFda(beta="local").fit(here, first)
    noise = torch.randn(own.mu.shape, generator=torch.Generator().manual_seed(0))
    server = Server(first.v, own.mu + 0.1 * noise, 0.3 * own.cov)
    fitted = method.fit(here, server)
    ratio = (fitted.mu - server.mu) / (own.mu - server.mu)
    b = float(ratio.median())
    d = float(((fitted.cov - server.cov) / (own.cov - server.cov)).diagonal().median())
    best = minimize(
        criterion,
        np.full(2, 0.5),
        args=(*given, server, counted / counted.mean()),
        bounds=[(0, 1), (0, 1)],
        method="L-BFGS-B",
    )
    assert [b, d] == pytest.approx(best.x.tolist(), abs=1 / 64)
    reached = criterion(np.array([b, d]), *given, server, counted / counted.mean())
    assert reached == pytest.approx(best.fun, abs=1e-3)
    assert reached < criterion(np.full(2, 0.5), *given, server, counted / counted.mean())


def test_statistics_are_learned_while_training() -> None:
    made = setting("pfedfda")
    before, after = begin(made).server, played(made, 2).server
    assert (after.mu - before.mu).abs().max() > 0.1
    assert (after.cov - before.cov).abs().max() > 0.01
    assert torch.equal(after.cov, after.cov.T)


def test_the_shared_model_takes_all_classes_as_equally_frequent() -> None:
    """Means 1 and -1, variance 1: slopes (1, -1), intercepts -1/2 and log 1 = 0."""
    assert lda(state(1.0, -1.0), torch.ones(2)).tolist() == [1, -1, -0.5, -0.5]


def test_a_head_that_is_no_linear_layer_is_refused() -> None:
    with raises(IsthmusError):
        PFedFda().init(task(model=chain(), w0=vector(1, 0, 0)))
