"""A network with all that is done to its inputs in front of it, as a file that others can run.

It takes inputs as they are before anything is done to them, and gives probabilities:

    tables    float64 [B, D]: numbers as in the table, nan where one is missing; a 0 or 1 per word
    images    float32 [B, ...]: as in the data, for example 0 to 255
    tokens    int64 [B, T]

`torch` is a program of torch.export, `onnx` one that other programs run too. Both take batches of
any size. A file is compared with the network it was made of before anybody gets it.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isthmus.errors import IsthmusError

FORMATS = {"safetensors": ".safetensors", "torch": ".pt2", "onnx": ".onnx"}
TOLERANCE = 1e-4  # largest difference of a probability: float32, added in another order
PACKAGES = ("onnx", "onnxscript", "onnxruntime")

Card = Mapping[str, Any]
Program = Callable[[NDArray[Any]], NDArray[np.float64]]  # inputs to probabilities


class Deployed(nn.Module):
    """What is done to inputs, a network, and softmax."""

    mean: Tensor
    std: Tensor
    fill: Tensor

    def __init__(self, network: nn.Module, card: Card):
        nn.Module.__init__(self)
        self.network = network
        self.tokens, self.holes = bool(card.get("tokens")), False
        kind = getattr(torch, card["input"]["type"])
        if card["columns"]:
            columns = card["columns"]
            mean, std = ([c[name] for c in columns] for name in ("mean", "std"))
            fill = [c.get("fill") for c in columns]
            self.holes = any(value is not None for value in fill)
            shape: tuple[int, ...] = (-1,)
        else:
            mean, std, fill = card["mean"] or [0.0], card["std"] or [1.0], [None]
            shape = (-1, *[1] * (len(card["shape"]) - 1))
        self.scale = float(card["scale"]) if card.get("integers") else 1.0
        kind = torch.float32 if kind == torch.int64 else kind
        filled = [float("nan") if value is None else value for value in fill]
        for name, numbers in (("mean", mean), ("std", std), ("fill", filled)):
            self.register_buffer(name, torch.tensor(numbers, dtype=kind).view(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities [B, C]."""
        if not self.tokens:
            if self.holes:
                x = torch.where(torch.isnan(x), self.fill, x)
            x = (((x / self.scale) - self.mean) / self.std).to(torch.get_default_dtype())
        return torch.softmax(self.network(x), 1)


def list_inputs(card: Card) -> list[str]:
    """Names the inputs of a table in their order: a column, or a column and one of its words."""
    return [
        column["name"]
        + (f"={column['category']}" if column["category"] is not None else "")
        + (f" ({column['part']})" if column.get("part") else "")
        for column in card["columns"]
    ]


def write_program(module: Deployed, form: str, example: Tensor) -> bytes:
    """Write a module as a file of a format; `example` are two inputs or more."""
    if form == "onnx":
        require_onnx()
    with _make_quiet(), torch.no_grad():
        try:
            sizes = ({0: torch.export.Dim("batch")},)
            program = torch.export.export(module, (example,), dynamic_shapes=sizes)
            if form == "onnx":
                names: dict[str, Any] = {"input_names": ["x"], "output_names": ["probabilities"]}
                made = torch.onnx.export(program, dynamo=True, verbose=False, **names)
                assert made is not None
                packed: bytes = made.model_proto.SerializeToString()
                return packed
            file = io.BytesIO()
            torch.export.save(program, file)
            return file.getvalue()
        except Exception as error:  # what torch raises here has no common ancestor
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise IsthmusError(
                f"torch.export cannot trace this network for {form} ({reason[:150]}); use "
                "--format safetensors"
            ) from error


def read_program(packed: bytes, form: str) -> Program:
    """Read a file as something that gives probabilities."""
    if form == "onnx":
        require_onnx()
        import onnxruntime

        session = onnxruntime.InferenceSession(packed, providers=["CPUExecutionProvider"])
        return lambda x: np.asarray(session.run(None, {"x": x})[0], np.float64)
    with _make_quiet():
        module = torch.export.load(io.BytesIO(packed)).module()
    return run_module(module)


def run_module(module: nn.Module) -> Program:
    """Make a function of arrays of a module."""

    def run(x: NDArray[Any]) -> NDArray[np.float64]:
        with torch.no_grad():
            return np.asarray(module(torch.as_tensor(x)).double())

    return run


def check_program(packed: bytes, form: str, x: Tensor, expected: Tensor) -> float:
    """Return how far the probabilities of a file are from those of its network; refuse if far."""
    found = read_program(packed, form)(x.numpy())
    apart = float(np.abs(found - expected.double().numpy()).max())
    if not apart <= TOLERANCE:
        raise IsthmusError(
            f"probabilities of the {form} file differ by {apart:.2g} from the model's, more than "
            f"{TOLERANCE:g}; use --format safetensors"
        )
    return apart


def require_onnx() -> None:
    """Refuse what needs the packages of ONNX where they are not installed."""
    if not all(map(find_spec, PACKAGES)):
        raise IsthmusError(
            "ONNX needs the packages onnx, onnxscript and onnxruntime; run "
            "pip install 'isthmus[onnx]'"
        )


@contextmanager
def _make_quiet() -> Iterator[None]:
    """Silence what torch prints: what matters becomes an error, or a difference."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
