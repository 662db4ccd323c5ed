"""Hostile input, thousands of times: `python -m benchmarks.attack --seconds 60 --seed 1`."""
