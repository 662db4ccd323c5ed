"""The tables of a run: their columns, what writes them, what reads them."""
