"""Data sets, their division among clients, and the federation that holds both."""
