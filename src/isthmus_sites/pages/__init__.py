"""How a run at real sites stands: what its records say, for a terminal and as a page."""
