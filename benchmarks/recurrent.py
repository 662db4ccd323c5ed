"""Times ways to compute the stacked LSTM of Shakespeare: `python -m benchmarks recurrent`.

A step is a forward and a backward pass of 50 windows of 80 characters, evaluation a forward pass of
some more. The ways take turns, on one thread; the least processor time of each is printed, and how
far its logits and gradients are from those of the cell written out.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding

from isthmus.engines.base import one_thread
from isthmus.models import MODELS
from isthmus.models.recurrent import StackedLSTM, unroll

SYMBOLS, LENGTH, BATCH = 81, 80, 50


def write_out(module: nn.Module, x: Tensor, *, look_up: bool) -> Tensor:
    """Compute the network cell by cell; the first layer's input products looked up, or not."""
    symbols, stack = module.get_submodule("body.0"), module.get_submodule("body.1")
    assert isinstance(symbols, nn.Embedding)
    assert isinstance(stack, StackedLSTM)
    states: Tensor | None = None
    for layer in range(stack.layers):
        weight, bias, recurrent = (
            getattr(stack, f"{name}_l{layer}") for name in ("weight_ih", "bias_ih", "weight_hh")
        )
        if states is None and look_up:
            gates = embedding(x, torch.addmm(bias, symbols.weight, weight.T))
        else:
            gates = (symbols(x) if states is None else states) @ weight.T + bias
        states = unroll(gates, recurrent.T)
    assert states is not None
    logits: Tensor = module.get_submodule("classifier")(states[:, -1])
    return logits


def measure_least(ways: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Let them take turns; give the least milliseconds of processor time of each."""
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(times + 1):  # the first one warms up, and is never the least
        for name, run in ways.items():
            began = time.process_time()
            run()
            least[name] = min(least[name], 1000 * (time.process_time() - began))
    return least


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks recurrent", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--windows", type=int, default=1000, help="in an evaluation")
    wanted = parser.parse_args(arguments)
    torch.manual_seed(0)
    module = MODELS["stackedlstm"]((LENGTH,), SYMBOLS)
    parameters = list(module.parameters())
    x, y = torch.randint(SYMBOLS, (BATCH, LENGTH)), torch.randint(SYMBOLS, (BATCH,))
    many = torch.randint(SYMBOLS, (wanted.windows, LENGTH))
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "written out": partial(write_out, module, look_up=False),
        "written out, first products looked up": partial(write_out, module, look_up=True),
        "fused": module,
    }

    def step(way: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(cross_entropy(way(x), y), parameters)

    with one_thread():
        reference, gradient = ways["written out"](x), step(ways["written out"])
        steps = measure_least(
            {name: partial(step, way) for name, way in ways.items()}, wanted.times
        )
        with torch.no_grad():
            runs = {name: partial(way, many) for name, way in ways.items()}
            forward = measure_least(runs, max(1, wanted.times // 5))
        table = Table("", "a step, ms", "evaluation, ms", "logits apart", "gradients apart")
        for name, way in ways.items():
            logits = (way(x) - reference).abs().max()
            pairs = zip(step(way), gradient, strict=True)
            apart = max(
                float((one - other).abs().max() / other.abs().max()) for one, other in pairs
            )
            table.add_row(
                name, f"{steps[name]:.0f}", f"{forward[name]:.0f}", f"{logits:.0e}", f"{apart:.0e}"
            )
    Console().print(table)
