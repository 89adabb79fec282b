"""Edge: the Kubernetes API, on plain dicts."""
