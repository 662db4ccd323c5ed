"""Your own network: any nn.Module without buffers; pass the class, or a function that builds it."""

from torch import Tensor, nn

from isthmus import Experiment, federate


class Residual(nn.Module):
    """A small convolutional network with one skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.block = nn.Sequential(nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.classifier = nn.Linear(8 * 4 * 4, 10)  # defined last: the head

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = nn.functional.max_pool2d(nn.functional.relu(x + self.block(x)), 2)
        logits: Tensor = self.classifier(x.flatten(1))
        return logits


experiment = Experiment(method="superfed-mm", data="digits", rounds=12, epochs=3, lr=0.05, seed=3)
run = federate(experiment, model=Residual)
print(run)
