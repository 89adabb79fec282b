"""GPU sharing on Kubernetes: a controller and a kubectl plugin."""

__version__ = "0.1.0"
