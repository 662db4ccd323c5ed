"""The stack of LSTM layers: torch's fused kernel in `loop`, written out elsewhere, one result."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from isthmus import Federation, tree
from isthmus.context import RunContext
from isthmus.data.arrays import Arrays
from isthmus.engines.base import one_thread
from isthmus.engines.compiled import repays
from isthmus.engines.loop import Loop
from isthmus.models import MODELS
from isthmus.models.flat import Flat
from isthmus.models.recurrent import ROWS_AT_A_TIME, StackedLSTM
from isthmus.run.store import Progress
from small import advance, begin, setting

SYMBOLS, LENGTH = 10, 12
NAMES = pytest.mark.parametrize("name", ["stackedlstm", "stackedlstm_superfed"])


def text(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(SYMBOLS, (count, LENGTH), generator=generator)
    return x, x.sum(1) % SYMBOLS


def flat(name: str) -> Flat:
    return Flat(partial(MODELS[name], (LENGTH,), SYMBOLS))


@pytest.mark.parametrize("bias", [False, True])
def test_both_ways_compute_what_an_lstm_of_torch_does(bias: bool) -> None:
    """nn.LSTM has two biases per gate, which only their sum tells apart: the second is zero here.

    Ten steps through two layers in float64: some ten roundings of 1e-16 on numbers below 1.
    """
    ours, torchs = StackedLSTM(3, 5, 2, bias).double(), nn.LSTM(3, 5, 2, bias, batch_first=True)
    torchs = torchs.double()
    with torch.no_grad():
        for name, parameter in torchs.named_parameters():
            own = dict(ours.named_parameters()).get(name)
            parameter.copy_(torch.zeros_like(parameter) if own is None else own)
    x = torch.randn(4, 10, 3, dtype=torch.float64)
    expected = torchs(x)[0][:, -1]
    assert (ours(x) - expected).abs().max() < 1e-14
    assert (vmap(ours)(x[None])[0] - expected).abs().max() < 1e-14


@NAMES
def test_a_gradient_of_the_fused_kernel_is_that_of_the_cell_written_out(name: str) -> None:
    """In float32 each of 12 steps adds up 256 products, 6e-8 each: 1e-5 of the largest entry of a
    tensor leaves room for ten such sums in a row."""
    network, (x, y) = flat(name), text(50)
    leaf = network.fresh(seed=5).requires_grad_()
    with one_thread():
        (fused,) = torch.autograd.grad(cross_entropy(network.logits(leaf, x), y), leaf)
        written = grad(lambda w: cross_entropy(network.logits(w, x), y))(leaf.detach())
    assert not torch.equal(fused, written), "they are two ways"
    for one, other in zip(network.tensors(fused), network.tensors(written), strict=True):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


@NAMES
def test_evaluation_in_pieces_gives_the_logits_of_the_whole(name: str) -> None:
    """Logits are below 1; float32 rounds them at 6e-8, and ten times that is allowed."""
    network, (x, _) = flat(name), text(2 * ROWS_AT_A_TIME + 3)
    w = network.fresh(seed=5)
    whole = network.logits(w.requires_grad_(), x).detach()
    with torch.no_grad():
        pieces, none = network.logits(w, x), network.logits(w, x[:0])
    assert (pieces - whole).abs().max() < 6e-7
    assert none.shape == (0, SYMBOLS)


def played_on_text(workers: int) -> tuple[Progress, object]:
    """Plays a round of clients of 9 to 40 windows, with its evaluation."""
    x, y = (part.numpy() for part in text(99))
    owner = np.repeat(np.arange(4), (9, 40, 30, 20))
    arrays = Arrays(x, y, x[:0], y[:0], SYMBOLS, owner=owner, tokens=True)
    data = Federation.from_owners(arrays, test=0.2, validation=0.15, seed=1)
    build = partial(MODELS["stackedlstm"], (LENGTH,), SYMBOLS)
    made: RunContext = setting("superfed-mm", Loop(workers), data, build, rounds=1, epochs=1)
    try:
        progress, step = advance(made, begin(made), evaluate=True)
    finally:
        made.engine.close()
    assert step.evaluation is not None
    return progress, [score.figures for score in step.evaluation.scores]


def test_one_process_two_and_a_second_run_give_the_same_bits() -> None:
    progress, scores = played_on_text(workers=1)
    for workers in (1, 2):
        again, same_scores = played_on_text(workers)
        pairs = zip(tree.leaves(progress.server), tree.leaves(again.server), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
        np.testing.assert_equal(scores, same_scores)


@NAMES
def test_steps_of_a_recurrent_network_are_not_compiled_however_many_there_are(name: str) -> None:
    assert not repays(flat(name), steps=1e9)
