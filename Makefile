# Commands for working on the project; `make help` lists them. All but `clean`, `fresh`, `gpu` and `help` first run
# scripts/bootstrap.sh, which installs what is missing.

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q -p no:cacheprovider
ARGS ?=
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
.PHONY: help setup demo demo-kubernetes first-image first-job test quick quick-planner quick-others fresh gpu coverage check lint types contracts crowds laboratory services kills worlds rooms edges project images windows terraform programs cluster pods pytest fuzz chaos chaos-bugs mutants pages dashboards screenshots format clean

help: ## List these commands.
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1  \t\2/p' Makefile | expand -t 20

setup: ## Set up .venv and the Debian packages that the tests need.
	@scripts/bootstrap.sh

demo: ## Replay one push against a simulated GitHub and EC2 on this host. KEEP=1 stays up, with the console.
	@echo '==> demo'
	@scripts/bootstrap.sh demo
	@$(BIN)/python -m lab $(if $(KEEP),--stay) $(ARGS)

demo-kubernetes: ## Replay the push with its ROCm jobs in pods of a real Kubernetes API server.
	@echo '==> demo-kubernetes'
	@scripts/bootstrap.sh demo
	@$(BIN)/python -m lab --kubernetes $(if $(KEEP),--stay) $(ARGS)

first-image: setup ## Bake a machine image in an empty account of the lab's EC2 (as root). Prints its stages.
	@echo '==> first-image'
	@$(BIN)/python -m tests.ami image $(ARGS)

first-job: setup ## Run a job on a machine with the image of `make first-image` (as root). Prints its stages.
	@echo '==> first-job'
	@$(BIN)/python -m tests.ami job $(ARGS)

test: setup ## Run all checks: lint, types, import contracts, tests. A summary names what failed.
	@scripts/test.sh

quick: setup ## Run the tests of the pure packages and the configuration, in less than a minute.
	@echo '==> pytest, the pure packages'
	@$(MAKE) --no-print-directory -j2 quick-planner quick-others

quick-planner:
	@$(PYTEST) tests/planner

quick-others:
	@$(PYTEST) tests/model tests/ledger tests/views tests/config tests/test_docs.py tests/test_cases.py tests/test_words.py

fresh: ## Run both commands of the README on a fresh Debian (as root; before each release).
	@scripts/fresh.sh $(ARGS)

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
	@$(BIN)/shellcheck -x scripts/*.sh .ci/run $(AMI_SCRIPTS)
	@echo '==> codespell'
	@$(BIN)/codespell

types: setup ## Run mypy in strict mode on the product, the lab, the benchmarks, the tests, the controller's host, and the image recipes.
	@echo '==> mypy'
	@nice $(BIN)/python -m mypy --no-error-summary
	@nice $(BIN)/python -m mypy --no-error-summary --strict --config-file= --cache-dir .mypy_cache/host \
		terraform/modules/controller/host/host.py ami/linux/files/check_gpus.py
	@cd ami/windows && nice ../../$(BIN)/python -m mypy --no-error-summary --strict --platform win32 \
		--python-version 3.13 --config-file= --cache-dir ../../.mypy_cache/windows \
		provision.py library.py steps files/test-image.py

contracts: setup ## Check which packages import which others.
	@echo '==> import contracts'
	@$(BIN)/lint-imports --no-logo

crowds: setup
	@echo '==> pytest -m whole_host'
	@$(PYTEST) -m whole_host tests/lab

# Folders and files that take half of the time of the tests outside tests/lab and tests/chaos. A process of
# its own runs them, so that both cores are used to the end.
EDGES := tests/agent tests/app tests/benchmarks tests/console tests/providers tests/server tests/store
PROJECT := tests/ami $(wildcard tests/test_*.py)

# The tests of the laboratory mostly wait for processes. The others compute, so they run under `nice`.
laboratory: setup
	@echo '==> pytest tests/lab/system without test_kill_points.py'
	@$(PYTEST) -m 'not whole_host' --ignore=tests/lab/system/test_kill_points.py tests/lab/system

services: setup
	@echo '==> pytest tests/lab without tests/lab/system'
	@$(PYTEST) --ignore=tests/lab/system tests/lab

kills: setup
	@echo '==> pytest tests/lab/system/test_kill_points.py'
	@$(PYTEST) tests/lab/system/test_kill_points.py

worlds: setup
	@echo '==> pytest tests/chaos'
	@nice $(PYTEST) tests/chaos

rooms: setup
	@echo '==> pytest without the edges, and the folders of the other parts'
	@nice $(PYTEST) --ignore=tests/lab --ignore=tests/chaos --ignore=tests/cluster --ignore=tests/docker_images --ignore=tests/terraform --ignore=tests/windows $(EDGES:%=--ignore=%) $(PROJECT:%=--ignore=%) tests

edges: setup
	@echo '==> pytest, the edges'
	@nice $(PYTEST) $(EDGES)

project: setup
	@echo '==> pytest, machine images and the project itself'
	@nice $(PYTEST) $(PROJECT)

windows: setup ## Run the Windows machines of the lab under Wine.
	@nice $(BIN)/python -m lab.windows.build
	@echo '==> pytest tests/windows'
	@$(PYTEST) tests/windows

terraform: setup ## Apply the Terraform modules with the real AWS provider against a simulated AWS.
	@nice $(BIN)/python -m lab.terraform.build
	@echo '==> pytest tests/terraform'
	@$(PYTEST) tests/terraform

images: setup ## Build container images from their Dockerfiles and run them (as root).
	@echo '==> pytest tests/docker_images'
	@nice $(PYTEST) tests/docker_images

programs: setup ## Build the Kubernetes cluster and Helm for the tests: once for all clones on a host, 15 minutes.
	@nice $(BIN)/python -m lab.kubernetes.build

# Those tests of the cluster that run `autoscaler serve`, or kill the API server. They take half of the time, and
# get a cluster of their own. Like those of the laboratory, they mostly wait for processes.
PODS := $(addprefix tests/cluster/test_,demo_kubernetes.py jobs_in_pods.py restarted_api_server.py troubled_api_server.py)

cluster: programs
	@echo '==> pytest tests/cluster without jobs in pods'
	@nice $(PYTEST) $(PODS:%=--ignore=%) tests/cluster

pods: programs
	@echo '==> pytest, jobs in pods'
	@$(PYTEST) $(PODS)

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

pages: setup ## Write the tables of docs/cases.md and of the Terraform modules.
	@$(BIN)/python -m tests.cases
	@$(BIN)/python scripts/module_docs.py

dashboards: setup ## Write the Grafana dashboards of deploy/grafana.
	@$(BIN)/python -m dashboards

screenshots: setup ## Write the screenshots of docs/console, in a headless Chromium.
	@$(BIN)/python -m tests.console.screenshots

format: setup ## Format the code and apply ruff's automatic fixes.
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

clean: ## Remove .venv, caches and everything else that the commands created.
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
