# Commands for working on the project; `make help` lists them. All but `clean`, `fresh`, `gpu` and `help` first run
# scripts/bootstrap.sh, which installs what is missing.

BIN := .venv/bin
ARGS ?=
PARTS ?=
SEEDS ?= 1000
KEEP ?=

# Keep compiled modules even if the shell says otherwise: tests start many processes that import them.
export PYTHONDONTWRITEBYTECODE :=

# The system's Python first: Debian builds it with optimizations, pyenv builds it without, and the tests then take
# half as long again. Without one, scripts/bootstrap.sh searches PATH.
ifndef PYTHON
export PYTHON := $(shell /usr/bin/python3 -c 'import ensurepip; print("/usr/bin/python3")' 2> /dev/null)
endif

.DEFAULT_GOAL := help
.PHONY: help setup setup-systems demo demo-replicas demo-kubernetes first-image first-job test test-systems test-all fresh release-check gpu coverage check lint types all-types contracts programs pytest fuzz chaos chaos-bugs mutants pages dashboards screenshots format clean

help: ## List these commands.
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1  \t\2/p' Makefile | expand -t 20

setup: ## Set up .venv.
	@scripts/bootstrap.sh

setup-systems:
	@scripts/bootstrap.sh systems

demo: ## Replay one push against a simulated GitHub and EC2 on this host. KEEP=1 stays up, with the console.
	@echo '==> demo'
	@scripts/bootstrap.sh demo
	@$(BIN)/python -m lab $(if $(KEEP),--stay) $(ARGS)

demo-replicas: ## Replay the push with three replicas on PostgreSQL. One that leads is killed, another one is suspended.
	@echo '==> demo-replicas'
	@scripts/bootstrap.sh demo
	@$(BIN)/python -m lab --replicas $(if $(KEEP),--stay) $(ARGS)

demo-kubernetes: ## Replay the push with its ROCm jobs in pods of a real Kubernetes API server.
	@echo '==> demo-kubernetes'
	@scripts/bootstrap.sh demo
	@$(BIN)/python -m lab --kubernetes $(if $(KEEP),--stay) $(ARGS)

first-image: setup-systems ## Bake a machine image in an empty account of the lab's EC2 (as root). Prints its stages.
	@echo '==> first-image'
	@$(BIN)/python -m tests.ami image $(ARGS)

first-job: setup-systems ## Run a job on a machine with the image of `make first-image` (as root). Prints its stages.
	@echo '==> first-job'
	@$(BIN)/python -m tests.ami job $(ARGS)

test: setup ## Run what needs only Python packages: lint, types, contracts, tests. PARTS='core lint' runs some parts.
	@$(BIN)/python -m tests.suites everyone $(PARTS)

test-systems: setup-systems ## As root, run the rest: Kubernetes, Terraform, Windows, images, browser. PARTS=cluster runs one part.
	@$(BIN)/python -m tests.suites systems $(PARTS)

test-all: ## Run both suites, as root.
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-systems

fresh: ## Run both commands of the README on a fresh Debian (as root; before each release).
	@scripts/fresh.sh $(ARGS)

release-check: setup-systems ## Build a release of this commit as root, and inspect it; ARGS='chart' runs one stage.
	@echo '==> release-check'
	@$(BIN)/python -m tests.release $(ARGS)

gpu: ## Run the agent's checks on this host's NVIDIA GPUs (needs only their driver and Python).
	@python3 -m unittest -v tests.agent.real_gpu

coverage: setup ## Measure the branch coverage of the pure rooms and controller/; fails if it falls.
	@echo '==> pytest, with coverage'
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -p no:cacheprovider tests/model tests/ledger tests/planner tests/controller
	@$(BIN)/coverage report

check: lint types contracts ## Run all checks that run no test: lint, types, import contracts.

AMI_SCRIPTS := $(shell find ami -name '*.sh') ami/linux/files/mount-instance-store ami/linux/files/test-image

lint: setup ## Run Ruff (rules and format), ShellCheck and codespell.
	@echo '==> ruff check'
	@$(BIN)/ruff check --quiet .
	@echo '==> ruff format'
	@$(BIN)/ruff format --check --quiet .
	@echo '==> shellcheck'
	@$(BIN)/shellcheck -x scripts/*.sh actions/*/*.sh .ci/run $(AMI_SCRIPTS)
	@echo '==> codespell'
	@$(BIN)/codespell

# Types of the product alone are a part of `make test`, and the others of `make test-systems`.
types: setup ## Run mypy in strict mode on the product.
	@echo '==> mypy, the product'
	@nice $(BIN)/python -m mypy --no-error-summary -p autoscaler

all-types: setup ## Run mypy in strict mode on tests, lab, benchmarks and the recipes of machine images, too.
	@echo '==> mypy, everything'
	@nice $(BIN)/python -m mypy --no-error-summary
	@nice $(BIN)/python -m mypy --no-error-summary --strict --config-file= --cache-dir .mypy_cache/host \
		terraform/modules/controller/host/host.py ami/linux/files/check_gpus.py
	@cd ami/windows && nice ../../$(BIN)/python -m mypy --no-error-summary --strict --platform win32 \
		--python-version 3.13 --config-file= --cache-dir ../../.mypy_cache/windows \
		provision.py library.py steps files/test-image.py

contracts: setup ## Check which packages import which others.
	@echo '==> import contracts'
	@$(BIN)/lint-imports --no-logo

programs: setup-systems ## Build the Kubernetes cluster and Helm for the tests: once for all clones on a host, 15 minutes.
	@nice $(BIN)/python -m lab.kubernetes.build

pytest: setup ## Run all tests; ARGS='-k name' selects some.
	@echo '==> pytest'
	@$(BIN)/python -m pytest -q $(ARGS)

fuzz: setup ## Run each fuzzer a million times; ARGS='--seed N' repeats a run.
	@$(BIN)/python -m tests.fuzz $(ARGS)

chaos: setup ## Simulate SEEDS=1000 fleets with faults; ARGS='--replay FILE' repeats one.
	@$(BIN)/python -m tests.chaos --seeds $(SEEDS) $(ARGS)

chaos-bugs: setup ## Plant known bugs one by one and check that each is found; ARGS=no_dedupe for one.
	@$(BIN)/python -m tests.chaos.bugs $(ARGS)

mutants: setup ## Run mutation tests on planner/ and ledger/ (hours); ARGS=planner.shares for one.
	@$(BIN)/python scripts/mutants.py $(ARGS)

pages: setup ## Write the tables of docs/cases.md and of the Terraform modules, and the man page in share/.
	@$(BIN)/python -m tests.cases
	@$(BIN)/python scripts/module_docs.py
	@$(BIN)/python scripts/reason_docs.py
	@$(BIN)/python scripts/shell_files.py

dashboards: setup ## Write the Grafana dashboards of deploy/grafana.
	@$(BIN)/python -m dashboards

screenshots: setup-systems ## Write the screenshots of docs/console, in a headless Chromium.
	@$(BIN)/python -m tests.console.screenshots

format: setup ## Format the code and apply ruff's automatic fixes.
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

clean: ## Remove .venv, caches and everything else that the commands created.
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
