"""What isthmus knows of torch 2.13's compiler from inside, and changes in its programs.

docs/native.md has what it brings, and when it goes.
"""

from functools import cache
from typing import Any

import torch

KNOWN = ("2.13.",)  # versions of torch whose compiler this package knows from inside


def is_known() -> bool:
    """Whether this version of torch has the compiler that is known."""
    return torch.__version__.startswith(KNOWN)


def list_known() -> str:
    """List the versions of torch whose compiler is known.

    >>> list_known()
    'torch 2.13'
    """
    return "torch " + ", ".join(version.rstrip(".") for version in KNOWN)


@cache
def load() -> bool:
    """Register the operations that programs use; whether the compiler is known."""
    if is_known():
        from isthmus.engines.native import graph_passes  # noqa: F401
    return is_known()


def find_options() -> dict[str, Any]:
    """Return the options with which torch compiles a program; none if the compiler is not known."""
    if not load():
        return {}
    from isthmus.engines.native.graph_passes import StepPass

    products_that_are_added = "cpp.enable_floating_point_contract_flag"
    return {products_that_are_added: "fast", "post_grad_custom_post_pass": StepPass()}


def fuse(graph: torch.fx.GraphModule) -> bool:
    """Replace pooled convolutions by one operation; whether there were any."""
    if not load():
        return False
    from isthmus.engines.native.pooling import fuse_pooling

    return fuse_pooling(graph) > 0
