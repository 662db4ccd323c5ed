"""Names the bits of every method and of the demo's runs.

    export ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 PYTHONPATH=tests
    python tests/contract/digests.py probe methods demo > tests/contract/digests.toml

writes them down anew, with the plainest kernels, which most processors have in common; with a new
method's name in the place of the three words, and `>>`, that one's are added. What is named: the
state after four rounds on the small federation, and every figure of the evaluation that follows, in
both engines; and the end of each of the demo's runs. The probe names what this processor's kernels
make of a few operations: where it differs, so may the rest, through no fault of the program.
"""

import hashlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from isthmus import Experiment, federate
from isthmus.cli.demo import DEMO, DEMO_SETTINGS
from isthmus.engines.stacked import Stacked
from isthmus.evaluation import Evaluation
from isthmus.run.store import digest_of
from small import advance, played, setting
from table import ROWS

LATER = ("balanced",)


def probe() -> str:
    """Names what this processor makes of a product, a convolution and an exponential."""
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.standard_normal((40, 40)), dtype=torch.float32) for _ in range(2))
    image = a[None, None]
    parts = [a @ b, torch.log_softmax(a, 1), a.tanh(), torch.conv2d(image, b[None, None, :5, :5])]
    return name(part.numpy() for part in parts)


def name(arrays: Any) -> str:
    """Hashes arrays to a short name."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()[:16]


def figures(evaluation: Evaluation) -> str:
    """Names every number of an evaluation, of metrics that there were when names were written."""
    known = [
        (score.at, *(column for key, column in score.figures._asdict().items() if key not in LATER))
        for score in evaluation.scores
    ]
    return name(column for columns in known for column in columns)


def method_digests(method: dict[str, Any]) -> dict[str, str]:
    """Names states and figures of a method on the small federation, in both engines."""
    named = {}
    for engine, runner in (("loop", None), ("stacked", Stacked(block=4))):
        made = setting(method, runner)
        end, step = advance(made, played(made, 3), evaluate=True)
        named[engine], named[f"{engine}-figures"] = digest_of(end), figures(step.evaluation)
    return named


def demo_digest(method: str) -> str:
    """Names the end of one of the demo's runs."""
    settings = {**DEMO_SETTINGS, "seed": 11, "eval_every": 0}  # evaluations change no state
    chosen = {"name": method, **DEMO[method]}
    return federate(Experiment(method=chosen, **settings), workers=1).digest


def describe(word: str) -> Iterator[str]:
    """Yields names as TOML: of the probe, all methods, one method or the demo."""
    if word == "probe":
        yield f'probe = "{probe()}"'
    for row in ROWS:
        if word in ("methods", row.name):
            yield f"\n[methods.{row.name}]"
            yield from (f'{key} = "{value}"' for key, value in method_digests(row.method).items())
    if word == "demo":
        yield "\n[demo]"
        yield from (f'{method} = "{demo_digest(method)}"' for method in DEMO)


if __name__ == "__main__":
    for word in sys.argv[1:]:
        for line in describe(word):
            print(line, flush=True)
