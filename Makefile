# Commands for working on the project; `make help` lists them. All but `clean` and `help` first set
# up what they need (scripts/bootstrap.sh), which takes a moment when nothing has changed.

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q -p no:cacheprovider
ARGS ?=
SEEDS ?= 1000

# What Python compiles is kept, whatever the shell says: tests start dozens of processes that import the same.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick quick-planner quick-others fresh check lint types contracts crowds laboratory services kills worlds rooms pytest fuzz chaos chaos-bugs mutants format clean

help: ## List these commands.
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1  \t\2/p' Makefile | expand -t 20

setup: ## Set up .venv and the Debian packages that the tests need.
	@scripts/bootstrap.sh

demo: ## Replay a push against a GitHub and an EC2 on this host.
	@echo '==> demo'
	@scripts/bootstrap.sh demo
	@$(BIN)/python -m lab $(ARGS)

test: setup ## Everything that must hold: lint, types, contracts, tests. The summary names what failed.
	@scripts/test.sh

quick: setup ## The tests of the pure rooms and the configuration, in less than a minute.
	@echo '==> pytest, the pure rooms'
	@$(MAKE) --no-print-directory -j2 quick-planner quick-others

quick-planner:
	@$(PYTEST) tests/planner

quick-others:
	@$(PYTEST) tests/model tests/ledger tests/config tests/test_docs.py tests/test_cases.py tests/test_words.py

fresh: ## Run both commands of the README on a fresh Debian (as root; before each release).
	@scripts/fresh.sh $(ARGS)

check: lint types contracts ## What holds without running anything.

lint: setup ## Ruff (rules and format), ShellCheck and codespell.
	@echo '==> ruff check'
	@$(BIN)/ruff check --quiet .
	@echo '==> ruff format'
	@$(BIN)/ruff format --check --quiet .
	@echo '==> shellcheck'
	@$(BIN)/shellcheck scripts/*.sh .ci/run
	@echo '==> codespell'
	@$(BIN)/codespell

types: setup ## Mypy, strict: package and tests.
	@echo '==> mypy'
	@nice $(BIN)/python -m mypy --no-error-summary

contracts: setup ## The rooms and who may import whom.
	@echo '==> import contracts'
	@$(BIN)/lint-imports --no-logo

crowds: setup
	@echo '==> pytest -m whole_host'
	@$(PYTEST) -m whole_host tests/lab

# Those of whole laboratories, and of the services in them, wait for processes most of the time. The
# others compute: they step back.
laboratory: setup
	@echo '==> pytest tests/lab/system, but for test_kill_points.py'
	@$(PYTEST) -m 'not whole_host' --ignore=tests/lab/system/test_kill_points.py tests/lab/system

services: setup
	@echo '==> pytest tests/lab, but for tests/lab/system'
	@$(PYTEST) --ignore=tests/lab/system tests/lab

kills: setup
	@echo '==> pytest tests/lab/system/test_kill_points.py'
	@$(PYTEST) tests/lab/system/test_kill_points.py

worlds: setup
	@echo '==> pytest tests/chaos'
	@nice $(PYTEST) tests/chaos

rooms: setup
	@echo '==> pytest, but for tests/lab and tests/chaos'
	@nice $(PYTEST) --ignore=tests/lab --ignore=tests/chaos

pytest: setup ## The tests; ARGS='-k name' runs some.
	@echo '==> pytest'
	@$(BIN)/python -m pytest -q $(ARGS)

fuzz: setup ## A million tries of each fuzzer; ARGS='--seed N' repeats a run.
	@$(BIN)/python -m tests.fuzz $(ARGS)

chaos: setup ## Play SEEDS=1000 worlds full of faults; ARGS='--replay FILE' plays one again.
	@$(BIN)/python -m tests.chaos --seeds $(SEEDS) $(ARGS)

chaos-bugs: setup ## Plant known bugs, one by one, and see each found; ARGS=no_dedupe: one.
	@$(BIN)/python -m tests.chaos.bugs $(ARGS)

mutants: setup ## Break planner/ and ledger/ bit by bit (an hour); ARGS=planner.grants: one.
	@$(BIN)/python scripts/mutants.py $(ARGS)

format: setup ## Format the code and mend what ruff can mend.
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

clean: ## Remove .venv and everything that was made here.
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
