"""The kubelet's device plugin API, version v1beta1: the proto file, and what `make generate` makes of it."""
