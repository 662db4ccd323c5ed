"""The shortest way in: one experiment on the bundled digits."""

from isthmus import Experiment, federate

experiment = Experiment(method="superfed-mm", data="digits", rounds=20, lr=0.05, seed=11)
run = federate(experiment)
print(run)
print("each client's lambda:", run.evaluation("personal").at[:, 0].round(1))
