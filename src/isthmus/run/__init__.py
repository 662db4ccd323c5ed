"""Runs: built once, estimated, trained round by round, joined by newcomers afterwards."""
