"""A process of a server or of a site, started by another: `python -m isthmus_sites.flare KIND`."""

import sys


def main() -> int:
    """Run the process that the first argument names."""
    kind, *arguments = sys.argv[1:]
    if kind == "worker":
        from isthmus_sites.flare.worker import run_worker

        return run_worker(*arguments)
    from isthmus_sites.flare.gate import run_process

    return run_process(kind, arguments)


if __name__ == "__main__":
    sys.exit(main())
