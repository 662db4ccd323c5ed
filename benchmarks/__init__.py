"""Measurements: ratios of medians, everything that is compared interleaved in one process."""
