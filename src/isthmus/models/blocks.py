"""What the networks are put together from: body and classifier, layers, checks and draws."""

from collections import OrderedDict
from itertools import pairwise

from torch import Tensor, nn

from isthmus.errors import IsthmusError


def build_network(body: nn.Module, classifier: nn.Module) -> nn.Module:
    """Join a body that makes features and a classifier that makes logits of them."""
    return nn.Sequential(OrderedDict(body=body, classifier=classifier))


def stack_linear(*widths: int, bias: bool = True) -> list[nn.Module]:
    """List linear layers from each width to the next, with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs, bias), nn.ReLU()]
    return layers[:-1]


def pool(
    convolution: nn.Conv2d,
    size: int = 2,
    padding: int = 0,
    activation: type[nn.Module] = nn.ReLU,
) -> list[nn.Module]:
    """List a convolution, what activates it, and the maximum over its neighbours."""
    return [convolution, activation(), nn.MaxPool2d(size, padding=padding)]


class Average(nn.Module):
    """Averages over some axes: over 2 and 3, [B, C, height, width] becomes [B, C]."""

    def __init__(self, *axes: int):
        nn.Module.__init__(self)
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """Return the averages."""
        return x.mean(self.axes)


def draw_xavier(module: nn.Module) -> nn.Module:
    """Draw all matrices and kernels Xavier-normal; biases, scales and shifts stay as they are."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)
    return module


def zero_biases(module: nn.Module) -> nn.Module:
    """Set the biases of all layers to zero."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return module


def read_image_shape(name: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Take a shape apart into channels, height and width, or refuse it."""
    if len(shape) != 3 or min(shape[1:]) < least:
        raise IsthmusError(
            f"{name} was given inputs of shape {shape}, and takes images, channels x height x "
            f"width, of at least {least} x {least}; set model=mlp"
        )
    channels, height, width = shape
    return channels, height, width
