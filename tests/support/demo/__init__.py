"""`make demo`: the main job, for real, on a control plane of its own."""
