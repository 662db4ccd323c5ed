"""Data sets that others published, read from their original files: one file for each."""
