"""Real sites: a call is a message to a process at the data; own states and models stay there."""
