PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# Tools that look at an environment from outside; ENVIRONMENT is the one that they look at.
AUDIT := .venv/audit
ENVIRONMENT ?= .venv

.PHONY: demo setup serve test check lint audit sbom

demo: $(INSTALLED)
	$(BIN)/python -m examples.demo

setup: $(INSTALLED)

serve: $(INSTALLED)
	$(BIN)/fpet serve

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lint: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

audit: $(INSTALLED) $(AUDIT)/.installed
	$(AUDIT)/bin/pip-audit --vulnerability-service osv --skip-editable --path $(ENVIRONMENT)/lib/python3*/site-packages

sbom: $(INSTALLED) $(AUDIT)/.installed
	mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-format JSON --output-file dist/sbom.json $(ENVIRONMENT)/bin/python

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

$(AUDIT)/.installed: constraints.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip-audit cyclonedx-bom
	touch $@
