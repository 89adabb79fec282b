"""How services are spread over the nodes of a pool: one file, one algorithm."""
