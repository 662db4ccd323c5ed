"""ResNet-18 and SqueezeNet 1.1 in ImageNet's layout, drawn anew or read from a file.

Parts are called as in torchvision, so that its files fit. Grey images are repeated to three
channels.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.models.blocks import Average, build_network, read_image_shape, zero_biases
from isthmus.models.normalisation import NORMS
from isthmus.models.residual import Residual
from isthmus.models.weight_files import load_weights


class Colours(nn.Module):
    """Repeats a grey image to three channels; leaves three as they are."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, 3, height, width]."""
        return x.expand(-1, 3, -1, -1)


class Fire(nn.Module):
    """A few 1x1 convolutions, then 1x1 and 3x3 convolutions side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int):
        nn.Module.__init__(self)
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of twice `expanded` channels."""
        x = self.squeeze(x).relu()
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], 1).relu()


def resnet18(
    shape: tuple[int, ...],
    classes: int,
    *,
    norm: Literal["auto", "group", "batch", "running", "frozen"] = "auto",
    weights: str = "",
    weights_digest: str = "",
) -> nn.Module:
    """ResNet-18: blocks 64-128-256-512 | classes; 11,181,642 for 10 classes.

    `running` is ordinary BatchNorm, `batch` has no running statistics. `frozen` keeps the file's
    statistics and trains scales and shifts. `auto` is `frozen` where
    `weights` names a file, and `group` where it does not.
    """
    _check_colours("resnet18", shape, least=8)
    kind = _choose_norm(norm, weights)
    widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    stages = {
        f"layer{number}": nn.Sequential(
            Residual(inputs, outputs, stride, kind), Residual(outputs, outputs, 1, kind)
        )
        for number, (inputs, outputs, stride) in enumerate(widths, start=1)
    }
    body = nn.Sequential(
        OrderedDict(
            colours=Colours(),
            conv1=nn.Conv2d(3, 64, 7, 2, padding=3, bias=False),
            bn1=NORMS[kind](64),
            relu=nn.ReLU(),
            maxpool=nn.MaxPool2d(3, 2, padding=1),
            **stages,
            average=Average(2, 3),
        )
    )
    for part in body.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out")
    module = build_network(body, nn.Linear(512, classes))
    return load_weights("resnet18", module, weights, weights_digest, last="fc")


def squeezenet(
    shape: tuple[int, ...], classes: int, *, weights: str = "", weights_digest: str = ""
) -> nn.Module:
    """SqueezeNet 1.1, no dropout | 1x1 convolution; 727,626 for 10 classes."""
    _check_colours("squeezenet", shape, least=17)
    features = nn.Sequential(
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(64, 16, 64),
        Fire(128, 16, 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(128, 32, 128),
        Fire(256, 32, 128),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(256, 48, 192),
        Fire(384, 48, 192),
        Fire(384, 64, 256),
        Fire(512, 64, 256),
    )
    last = nn.Conv2d(512, classes, 1)
    for part in features.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_uniform_(part.weight)
    nn.init.normal_(last.weight, std=0.01)
    module = build_network(
        nn.Sequential(OrderedDict(colours=Colours(), features=features)),
        nn.Sequential(last, nn.ReLU(), Average(2, 3)),
    )
    module = zero_biases(module)
    return load_weights("squeezenet1_1", module, weights, weights_digest, last="classifier.1")


def drop_weights_file(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that build a network of the same parts without its file of weights."""
    changed = dict(options)
    weights = changed.pop("weights", "")
    changed.pop("weights_digest", None)
    if "norm" in changed:
        changed["norm"] = _choose_norm(changed["norm"], weights)
    return changed


def _choose_norm(norm: str, weights: str) -> str:
    if norm == "auto":
        return "frozen" if weights else "group"
    return norm


def _check_colours(name: str, shape: tuple[int, ...], least: int) -> None:
    channels, _, _ = read_image_shape(name, shape, least)
    if channels not in (1, 3):
        raise IsthmusError(
            f"{name} was given images of {channels} channels, and takes 1 or 3; set model=cnn"
        )
