"""Runs: built once, trained round by round, joined by newcomers afterwards."""
