"""One file = one format: a function `read` to what the planner takes, or to everything that is wrong."""
