"""Formulas that methods share, under the names that papers use."""
