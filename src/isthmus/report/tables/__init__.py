"""Tables of runs and of methods, for terminals, papers, programs and the page."""
