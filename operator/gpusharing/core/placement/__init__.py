"""The planner of `GpuPlacement`: which GPUs of which node each service gets. `planner.place` is the way in."""
