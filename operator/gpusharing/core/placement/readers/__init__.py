"""One file = one format: a function `read` from plain data to what the planner takes, or to everything wrong with it."""
