"""`make bench`: speed and memory of the controller on a real API server, beside a bare loop in the same run."""
