"""Tables of training runs: the plan, the runs, the rows."""
