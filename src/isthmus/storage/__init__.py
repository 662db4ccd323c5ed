"""A run on disk: one directory, one transaction per round."""
