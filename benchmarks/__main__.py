"""The benchmarks by name: `python -m benchmarks speed`, `python -m benchmarks engines`.

soak, faults, scale and absentees are programs of their own: `python -m benchmarks.soak`.
"""

import argparse

from benchmarks import blocks, cluster, engines, pooling, recurrent, speed

BENCHMARKS = {
    "speed": speed.main,
    "engines": engines.main,
    "cluster": cluster.main,
    "blocks": blocks.main,
    "pooling": pooling.main,
    "recurrent": recurrent.main,
}


def main() -> None:
    """Run the benchmark that is named first with what follows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="see `speed --help`")
    wanted = parser.parse_args()
    BENCHMARKS[wanted.benchmark](wanted.arguments)


if __name__ == "__main__":
    main()
