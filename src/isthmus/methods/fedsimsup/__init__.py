"""FedSimSup, with its server's side and its two networks."""
