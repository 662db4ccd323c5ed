"""Recurrent networks over tokens [B, T]: they predict the class of what comes next."""

from math import sqrt

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.models.blocks import build_network, draw_xavier
from isthmus.ranges import NonNegativeInt

EMBEDDED, HIDDEN, LAYERS = 8, 256, 2
ROWS_AT_A_TIME = 128  # rows that are evaluated at a time: their states stay in cache


class StackedLSTM(nn.Module):
    """The last hidden state of a stack of LSTM layers, [B, T, D] to [B, H].

    torch's fused kernel computes it where it can. It does not run under `torch.func`, and a program
    that others run cannot have it: there the cell is written out, and agrees but for rounding. One
    module owns all matrices, so that layer mixing draws one number for the whole stack. Names and
    order of the gates (input, forget, cell, output) are those of `nn.LSTM`; there is one bias per
    gate.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, bias: bool):
        nn.Module.__init__(self)
        self.hidden, self.layers, self.bias = hidden, layers, bias
        for layer in range(layers):
            width = hidden if layer else inputs
            for name, shape in (("weight_ih", (width,)), ("weight_hh", (hidden,)), ("bias_ih", ())):
                if bias or name != "bias_ih":
                    drawn = torch.empty(4 * hidden, *shape).uniform_(-1, 1) / sqrt(hidden)
                    self.register_parameter(f"{name}_l{layer}", nn.Parameter(drawn))

    def forward(self, x: Tensor) -> Tensor:
        """Run all layers over all steps."""
        if can_fuse(x):
            some = max(1, len(x)) if torch.is_grad_enabled() else ROWS_AT_A_TIME
            return torch.cat([self._fuse(rows) for rows in torch.split(x, some)])
        for layer in range(self.layers):
            gates = x @ getattr(self, f"weight_ih_l{layer}").T  # [B, T, 4 H]
            if self.bias:
                gates = gates + getattr(self, f"bias_ih_l{layer}")
            x = unroll(gates, getattr(self, f"weight_hh_l{layer}").T)
        return x[:, -1]

    def _fuse(self, x: Tensor) -> Tensor:
        weights = []
        for layer in range(self.layers):
            weights += [getattr(self, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh")]
            if self.bias:  # the kernel wants two
                bias: Tensor = getattr(self, f"bias_ih_l{layer}")
                weights += [bias, torch.zeros_like(bias)]
        zero = x.new_zeros(self.layers, len(x), self.hidden)
        states, _, _ = torch.lstm(
            x,
            (zero, zero),
            weights,
            has_biases=self.bias,
            num_layers=self.layers,
            dropout=0.0,
            train=torch.is_grad_enabled(),
            bidirectional=False,
            batch_first=True,
        )
        return states[:, -1]


def can_fuse(x: Tensor) -> bool:
    """Whether torch's fused kernel may compute here: on the CPU, in no transformation."""
    transformed = torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling()
    return x.device.type == "cpu" and not transformed


def unroll(gates: Tensor, recurrent: Tensor) -> Tensor:
    """Return the hidden states [B, T, H] of what the inputs add to the gates, [B, T, 4 H]."""
    h = c = gates.new_zeros(gates.shape[0], recurrent.shape[0])
    states = []
    for step in gates.unbind(1):
        i, f, g, o = (step + h @ recurrent).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states, 1)


def stackedlstm(
    shape: tuple[int, ...], classes: int, *, vocabulary: NonNegativeInt = 0
) -> nn.Module:
    """For tokens: embedding 8, LSTM 256-256 | classes; 823,172 for 100 symbols.

    It knows as many symbols as there are classes, or `vocabulary` where that is not 0.
    """
    return _stackedlstm("stackedlstm", shape, classes, vocabulary, bias=True)


def stackedlstm_superfed(
    shape: tuple[int, ...], classes: int, *, vocabulary: NonNegativeInt = 0
) -> nn.Module:
    """SuPerFed's LSTM, without biases; 821,024 for 100 symbols."""
    module = _stackedlstm("stackedlstm_superfed", shape, classes, vocabulary, bias=False)
    draw_xavier(module.get_submodule("classifier"))
    return module


def _stackedlstm(
    name: str, shape: tuple[int, ...], classes: int, vocabulary: int, *, bias: bool
) -> nn.Module:
    if len(shape) != 1 or not shape[0]:
        raise IsthmusError(
            f"{name} was given inputs of shape {shape}, and takes rows of at least one token; "
            "choose another model"
        )
    return build_network(
        nn.Sequential(
            nn.Embedding(vocabulary or classes, EMBEDDED),
            StackedLSTM(EMBEDDED, HIDDEN, LAYERS, bias),
        ),
        nn.Linear(HIDDEN, classes, bias=bias),
    )
