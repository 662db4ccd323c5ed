"""FLOCO and FLOCO+."""
