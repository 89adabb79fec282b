# What the project can do; `make` alone prints this list. Everything below runs from one virtual environment
# and one cache outside the checkout: nothing is installed on the machine.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# a plain `uv run` resolves anew and writes uv.lock (no comment behind the value: make keeps the blanks)
export UV_NO_SYNC := 1
export UV_PYTHON_DOWNLOADS := never
# bytecode is kept, whatever the environment says: the tests start hundreds of Python processes
unexport PYTHONDONTWRITEBYTECODE
export GPUSHARING_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gpusharing
VENV := .venv
UV = $(shell hack/uv)
RUN := $(VENV)/bin/

help:  ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready  ## the virtual environment, from requirements.lock

$(VENV)/.ready: requirements.lock pyproject.toml hack/uv
	@echo "== environment: .venv from requirements.lock"
	@$(UV) venv --quiet --allow-existing --python "$$(command -v python3)" $(VENV)
	@$(UV) pip sync --quiet --require-hashes --python $(VENV) requirements.lock
	@$(UV) pip install --quiet --python $(VENV) --no-build-isolation --no-deps -e .
	@touch $@

COMPILE = $(UV) pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 \
  --no-emit-index-url --no-emit-find-links pyproject.toml

lock:  ## both locks anew, from the floors in pyproject.toml: the project's, and what the image needs of it
	$(COMPILE) --all-extras --group dev -o requirements.lock
	$(COMPILE) --extra controller --extra device-plugin --extra cli --constraint requirements.lock -o requirements-image.lock

cluster: setup  ## fetch and build what the test cluster needs, into the cache
	@$(RUN)python -m tests.support.cluster.binaries --node

generate: setup  ## CRDs and reference pages from the API models, gRPC stubs from the proto files
	@$(RUN)python scripts/generate.py
	@$(RUN)python scripts/stubs.py

lint: setup  ## format, lint, import contracts, spelling, generated files up to date
	@$(RUN)ruff format --check --quiet . && $(RUN)ruff check --quiet .
	@$(RUN)lint-imports --no-logo
	@$(RUN)codespell
	@$(RUN)python scripts/generate.py --check
	@$(RUN)python scripts/stubs.py --check

types: setup  ## mypy, strict; what it found out stays in the cache, where the next checkout finds it
	@$(RUN)mypy --no-error-summary --cache-dir "$(GPUSHARING_CACHE)/mypy"

unit: setup  ## pure tests: no network, no cluster
	@$(RUN)pytest tests/unit

integration: cluster  ## a real API server, the controller under its own rights, faults, the command line
	@$(RUN)pytest tests/integration tests/faults

kind: setup  ## fetch and build what GPUSHARING_CLUSTER=kind needs, into the cache
	@$(RUN)python -m tests.support.cluster.kind

e2e: $(if $(filter kind,$(GPUSHARING_CLUSTER)),kind,cluster)  ## every sample, from kubectl apply to Ready; pods on a real kubelet
	@$(RUN)pytest tests/e2e

# with a Docker of their own (no Docker runs, and root) they can run side by side: make -j 2 e2e-kind
ON_KIND := $(addprefix e2e-kind-,1.34.4 1.37.2)
e2e-kind: $(ON_KIND)  ## the e2e tests on kind, on the oldest Kubernetes and the newest

$(ON_KIND): e2e-kind-%: setup
	@$(MAKE) --no-print-directory e2e GPUSHARING_CLUSTER=kind GPUSHARING_KUBERNETES=$*

e2e-newest: export GPUSHARING_KUBELET := 1.37.2
e2e-newest: cluster  ## what kubelets do differently, on the newest one; the control plane stays the oldest
	@$(RUN)python -m tests.support.cluster.binaries --node
	@said=$$($(RUN)pytest tests/e2e -m newest_kubelet 2>&1); code=$$?; echo "$$said"; exit $$code

test: setup  ## everything that CI runs
	@$(MAKE) --no-print-directory -j 2 lint types cluster collected
	@$(MAKE) --no-print-directory -j 2 all-tests e2e-newest

all-tests: cluster
	@$(RUN)pytest -n 4 --dist loadscope

# each of the workers below would otherwise compile all tests by itself
collected: setup
	@found=$$($(RUN)pytest --collect-only --quiet 2>&1) || { echo "$$found"; exit 1; }

bench: cluster  ## speed and memory against a bare loop on a real API server; a table, and JSON in bench-results/
	@$(RUN)python -m tests.bench

demo: cluster  ## a control plane, the controller, four GPU nodes, policies and pods; see what happens
	@$(RUN)python -m tests.support.demo

image: ## the container image; IMAGE=name:tag, BASE=python image
	docker build --build-arg BASE=$(or $(BASE),python:3.13-slim) -t $(or $(IMAGE),gpu-sharing-operator:dev) .

clean:  ## remove the environment and what tests left; the cache stays
	rm -rf $(VENV) dist bench-results .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.PHONY: help setup lock cluster kind generate lint types unit integration e2e e2e-kind $(ON_KIND) e2e-newest test all-tests collected bench demo image clean
