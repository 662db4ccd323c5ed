"""A paper of a few small runs, for recipes that are made up."""

PAPER = """
paper = "Tiny"
seeds = [1]
[settings]
data = { name = "synthetic", samples = 80 }
rounds = 2
clients = 4
clients_per_round = 2
epochs = 1
model = { name = "mlp", hidden = 4 }
[methods]
local = { label = "Local" }
fedavg = { label = "FedAvg" }
fedprox = { label = "FedProx", settings = { method.mu = 0.5 } }
superfed-mm = { label = "SuPerFed-MM", number.selection = "oracle-common" }
"""
