PYTHON ?= python3
PARALLEL ?= fsdp
NPROC ?= $(shell $(PYTHON) -c "from dream_scaffold.project.modes import read_mode; \
	print(read_mode('$(PARALLEL)').ranks)" 2>/dev/null)

TRAIN ?= --set training_parameters.max_steps=100

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
INSTALL := $(VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := demo/my-lm$(if $(filter-out fsdp,$(PARALLEL)),-$(subst +,-,$(PARALLEL)))
SOURCES := $(shell find dream_scaffold/project templates runtime -type f -not -name '*.pyc')

.PHONY: help demo test lint golden docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile
	@echo "  PYTHON=$(PYTHON) PARALLEL=$(PARALLEL) NPROC=$(NPROC) TRAIN='$(TRAIN)' can be set."

demo: $(DEMO)/train.py  ## make a project, check it and train it on two processes
	cd $(DEMO) && $(BIN)/dream check
	cd $(DEMO) && OMP_NUM_THREADS=1 $(BIN)/torchrun --nproc-per-node=$(NPROC) train.py $(TRAIN)

test: $(VENV)/.dev  ## run every test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy dream_scaffold runtime/dream_trainer

golden: $(VENV)/.dev  ## renew the expected output of the template, to be reviewed in git
	$(BIN)/python tests/templates/permutations.py

docs: $(VENV)/.dev  ## renew the pages that are made from the rules
	$(BIN)/python tests/check/rule_pages.py
	$(BIN)/python tests/check/check_page.py

clean:  ## remove the environment, the demos and every build product
	rm -rf $(VENV) demo build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache

$(DEMO)/train.py: $(VENV)/.train $(SOURCES)
	mkdir -p demo
	$(BIN)/dream new $(DEMO) --recipe lm --parallel $(PARALLEL) --force
	@touch $@

$(VENV)/.train: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) -e ".[train]"
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml constraints.txt
	$(INSTALL) -e ".[dev]"
	@touch $@ $(VENV)/.train

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is missing or older than 3.11." >&2; \
	    echo "help: name a newer one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: $(PYTHON) cannot make environments: venv or ensurepip is missing." >&2; \
	    echo "help: install it (Debian, Ubuntu: apt install python3-venv)." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
