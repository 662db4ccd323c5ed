"""What an experiment says, and what its names stand for."""
