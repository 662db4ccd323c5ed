"""Runs: built, trained round by round, estimated beforehand, joined afterwards."""
