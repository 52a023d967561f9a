# Every target sets up what it needs, so any of them can be the first command on a fresh machine.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)
WORKERS ?= 2
PIP := $(BIN)/python -m pip install -q -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run check test lint types fast floors bench format clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

run: $(READY) ## a tournament of 16 PPO members on CartPole, then its champion in Gymnasium's own env
	$(BIN)/podium evolve cartpole ppo tournament evolve.interval=1024 -o runs/tournament -D
	$(BIN)/podium eval runs/tournament --env CartPole-v1

check: lint types fast ## lint, types and the fast tests: three minutes

test: lint types ## lint, types and all tests: a quarter of an hour
	$(PYTEST)

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict, on src/
	$(BIN)/mypy

fast: $(READY) ## the tests that take no more than a few seconds each
	$(PYTEST) -m "not slow"

floors: $(READY) ## every number the project promises, measured anew: hours
	$(PIP) --no-deps -r bench/replay-peers.txt
	$(BIN)/python bench/floors.py

bench: $(READY) ## side by side with its peers
	$(BIN)/podium bench ppo
	$(BIN)/podium bench stack
	$(BIN)/podium bench offpolicy
	$(PIP) --no-deps -r bench/replay-peers.txt
	$(BIN)/podium bench replay
	$(BIN)/podium bench env
	$(BIN)/podium bench evolve
	$(BIN)/podium bench orchestrator
	$(BIN)/podium bench pareto
	$(BIN)/podium bench rpc
	$(BIN)/podium bench fleet

format: $(READY) ## put the code in its canonical form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove caches and build leftovers; keeps .venv and runs
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

# Torch goes first and alone: its exact pin decides which build of it everything else is resolved against.
$(READY): pyproject.toml constraints.txt
	@echo 'Setting up $(VENV): a few minutes, once.'
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Podium needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...' >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) 'torch==$(TORCH)'
	$(PIP) -e '.[dev]'
	@touch $@
