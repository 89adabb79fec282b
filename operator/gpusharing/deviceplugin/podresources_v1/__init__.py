"""The kubelet's pod resources API, version v1: the proto file, and what `make generate` makes of it."""
