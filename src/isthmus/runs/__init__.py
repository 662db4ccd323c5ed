"""What is done with a run that is on disk."""
