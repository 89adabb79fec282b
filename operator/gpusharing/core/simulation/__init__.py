"""The allocation policies in simulated time: the code of production, driven by a model of scheduler and kubelet."""
