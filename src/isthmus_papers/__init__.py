"""Published tables and figures as recipes, run again: experiments, records, verdicts."""
