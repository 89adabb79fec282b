"""The hardware: NVML in a process of its own, or a simulated inventory."""
