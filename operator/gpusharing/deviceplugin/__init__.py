"""The in-node device plugin: serves a node's GPUs to the kubelet, and reports what is true."""
