"""Provider `kind`: several real nodes in Docker, with a pod network, Services and the product's own image."""
