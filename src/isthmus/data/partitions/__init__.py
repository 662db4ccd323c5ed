"""Partitions: each is a frozen setting whose `cut` says who gets which examples."""
