"""Other frameworks at the same work, each a program for its own environment."""
