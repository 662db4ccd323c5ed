"""A run that is on disk, looked into: personal models out, newcomers in, models nearby measured."""
