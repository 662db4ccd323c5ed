"""Networks by name: functions of the inputs' shape and the number of classes."""

from collections.abc import Callable

from torch import nn

from isthmus.models.plain import mlp, twocnn, twocnn_superfed, twonn, twonn_superfed

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "twonn": twonn,
    "twonn_superfed": twonn_superfed,
    "twocnn": twocnn,
    "twocnn_superfed": twocnn_superfed,
}
