"""Published tables and figures as recipes: the experiments behind them, the numbers they print."""
