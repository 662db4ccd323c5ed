"""Figures of a run, written to other programs while it goes on."""
