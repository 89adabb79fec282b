"""Logs, metrics and the health endpoint; for both processes."""
