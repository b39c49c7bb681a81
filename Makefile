# Every task on one screen: make help.

VENV     := .venv
BIN      := $(VENV)/bin
COMPILED := build/compiled

# What the stamps hold against: a step runs again when one of these is newer.
# Folders count, so that a removed file is seen too.
SOURCES  := $(shell find src/rillet -name '*.py' -o -name '*.pxd' -o -name '*.txt' -o -type d ! -name __pycache__) setup.py \
            tools/declarations.py tools/translator.py

# Both speeds by the folder that Python finds first. JAVA_HOME is what setup found or fetched, and Spark's workers run
# the same Python as its driver.
interpreted = PYTHONPATH="$(CURDIR)/src" RILLET_EXPECT=interpreted RILLET_NO_CYTHON=1
compiled    = PYTHONPATH="$(CURDIR)/$(COMPILED)" RILLET_EXPECT=compiled \
              JAVA_HOME="$$(cat $(VENV)/java-home)" PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python"
pytest      = $(BIN)/python -m pytest --timeout=600 -q $(ARGS)
# A worker that has no tests left takes some of another. WORKERS=0 is one process.
CORES      := $(shell getconf _NPROCESSORS_ONLN)
WORKERS     = $(CORES)
spread      = -n $(WORKERS) --dist worksteal
# The time of every test goes into build/; the slowest are printed.
timed       = --durations=30 --durations-min=1 --junit-xml=build/times-$(1).xml
# ARGS may select tests; a run to which none of them belongs (pytest exits with 5) is no failure then.
SELECTED    = $(filter-out -%,$(ARGS))
or-none     = $(if $(ARGS),|| [ $$? = 5 ])
MINUTES     = 30

# Hundreds of processes start in a run of the tests: each would compile the same modules again without .pyc files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo inspect serve test test-fast test-interpreted test-spark test-compiled test-long wheel bench lint aio docs
.PHONY: test-frameworks test-servers

help:
	@echo 'make setup      a virtual environment in .venv for tests and lint, the compiled build, a Java if there is none'
	@echo 'make demo       a year of flights through a stream, consumer groups and Spark, to tables and a chart'
	@echo 'make inspect    the inspector, a web page, on the flights of the demo; ARGS="--write" allows actions'
	@echo 'make serve      a server on port 6379; another: make serve ARGS="--port 7000 --appendonly yes"'
	@echo 'make test       everything on the compiled build, and a part interpreted (src)'
	@echo 'make test-fast  a minute, interpreted; one folder: make test-fast ARGS=tests/structs'
	@echo 'make test-long  fuzzers, kills and crash points for 30 minutes: MINUTES=480 for a night'
	@echo 'make test-servers  the tests that need newer servers; tools/servers builds these'
	@echo 'make test-frameworks  rq, celery, BullMQ and more, unmodified, on rillet; in an environment of their own'
	@echo 'make bench      speed against redis-server, as ratios: a table, and JSON in build/'
	@echo 'make lint       ruff, mypy, import-linter, codespell'
	@echo 'make aio        write the asyncio API again, after a change of the synchronous one'
	@echo 'make wheel      a compiled wheel and an sdist in dist/, tried in a new environment'
	@echo 'make docs       run every example in docs/ and README.md, and build the site in build/site'
	@echo
	@echo 'demo, inspect, serve, test and bench call setup when it is due, so each works on a fresh clone by itself.'

# ---- setup: steps, each with a stamp. Those of a task run side by side -------------------------------------------------

# The environment of the demo is a part of that for development.
DEMO     := $(VENV)/$(if $(wildcard $(VENV)/packages.stamp),packages,demo).stamp
BUILT    := $(COMPILED)/.stamp $(VENV)/java-home
beside   = @$(MAKE) --no-print-directory -j3

setup:
	$(beside) $(VENV)/packages.stamp $(BUILT)
	@echo "rillet is set up: $$($(BIN)/rillet --version)"

$(VENV)/bin/python:
	@tools/setup venv

$(VENV)/demo.stamp: pyproject.toml tools/constraints.txt | $(VENV)/bin/python
	@tools/setup packages demo
	@touch $@

$(VENV)/packages.stamp: pyproject.toml tools/constraints.txt | $(VENV)/bin/python
	@tools/setup packages dev
	@touch $@

$(VENV)/docs.stamp: pyproject.toml tools/constraints.txt | $(VENV)/packages.stamp
	@tools/setup packages docs
	@touch $@

$(COMPILED)/.stamp: $(SOURCES) | $(VENV)/bin/python
	@tools/setup compile
	@mkdir -p $(COMPILED) && touch $@

$(VENV)/java-home: | $(VENV)/bin/python
	@tools/setup java

# ---- tasks -----------------------------------------------------------------------------------------------------------

demo:
	$(beside) $(DEMO) $(BUILT)
	@$(compiled) $(BIN)/python -m examples.flights $(ARGS)

inspect: setup
	@$(compiled) $(BIN)/python -m examples.flights.inspected build/inspect/flights.rillet $(ARGS)

serve:
	$(beside) $(DEMO) $(COMPILED)/.stamp
	@PYTHONPATH="$(CURDIR)/$(COMPILED)" $(BIN)/python -m rillet serve $(ARGS)

# Spark's tests share one JVM, so they are one process beside the others.
test: setup
	@$(MAKE) --no-print-directory -j2 test-interpreted $(if $(ARGS),,$(REWRITTEN))
	@$(MAKE) --no-print-directory -j2 test-compiled test-spark
	@echo 'rillet: all tests passed at both speeds'

# pytest rewrites the assertions of each test module at its first import, and keeps the result. On a fresh clone one
# process does it for all: the workers begin at the same time, and each would do it for itself.
REWRITTEN := build/tests.stamp

$(REWRITTEN): | $(VENV)/packages.stamp
	@mkdir -p $(@D)
	@$(interpreted) $(BIN)/python -m pytest -q --collect-only >$@.txt || { cat $@.txt; exit 1; }
	@mv $@.txt $@

test-interpreted: $(VENV)/packages.stamp
	@echo '== interpreted: src, with Cython out of the way'
	@$(interpreted) $(pytest) $(spread) -m 'both and not long' $(call timed,interpreted) $(or-none)

# Three workers for two cores: tests of servers and processes wait, and each worker collects all tests, in 13 s of CPU.
test-compiled: WORKERS = $(shell expr '(' 3 '*' $(CORES) + 1 ')' / 2)
test-compiled: setup
	@echo '== compiled: $(COMPILED)'
	@$(compiled) $(pytest) $(spread) -m 'not spark and not long' $(call timed,compiled) $(or-none)

test-spark: setup
	@echo '== Spark, on the compiled build'
	@$(compiled) $(pytest) -m 'spark and not long' $(call timed,spark) $(if $(SELECTED),,tests/spark) $(or-none)

# The tests that `make test` leaves out where their servers and suites are absent: tools/servers builds them.
test-servers: setup
	@$(compiled) $(pytest) $(spread) -m '(peer or environment) and not long' $(call timed,servers) $(or-none)

test-long: setup
	@JAVA_HOME="$$(cat $(VENV)/java-home)" $(BIN)/python tools/test_long.py --minutes $(MINUTES) $(ARGS)

# Software that is written for Redis, in its own environment: it must not change the versions of the main one. Without npm,
# the scripts for Node are left out.
FRAMEWORKS  := build/frameworks-venv
NODE        := build/frameworks-node

test-frameworks: $(COMPILED)/.stamp $(FRAMEWORKS)/.stamp $(NODE)/.stamp
	@PYTHONPATH="$(CURDIR)/$(COMPILED)" RILLET_EXPECT=compiled RILLET_FRAMEWORKS=$(or $(RILLET_FRAMEWORKS),rillet) \
	    $(if $(wildcard $(NODE)/node_modules),RILLET_NODE_MODULES="$(CURDIR)/$(NODE)/node_modules") \
	    $(if $(RILLET_SUITE_REDIS_PY),RILLET_SUITE_REDIS_PY="$(RILLET_SUITE_REDIS_PY)") \
	    $(FRAMEWORKS)/bin/python -m pytest --timeout=300 -W default -p no:cacheprovider -q $(if $(SELECTED),,tests/frameworks) $(ARGS)

$(FRAMEWORKS)/.stamp: pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --upgrade pip setuptools
	@$(BIN)/python tools/extra.py server redis | \
	    $(FRAMEWORKS)/bin/python -m pip install --quiet --group frameworks --requirement /dev/stdin
	@touch $@

$(NODE)/.stamp:
	@mkdir -p $(NODE)
	@if command -v npm >/dev/null; then \
	    npm install --prefix $(NODE) --no-audit --no-fund --ignore-scripts --loglevel error bullmq ioredis redis; fi
	@touch $@

test-fast: $(VENV)/packages.stamp
	@$(interpreted) $(pytest) $(spread) -m '$(if $(SELECTED),,both and )not slow and not long and not spark' $(or-none)

# A wheel and an sdist in dist/; the wheel is tried in a new environment.
wheel: $(VENV)/packages.stamp
	@RILLET_REQUIRE_EXTENSIONS=1 $(BIN)/python -m build --outdir dist .
	@$(BIN)/python tools/try_wheel.py dist

bench: setup
	@$(compiled) $(BIN)/python -m benchmarks $(ARGS)

lint: $(VENV)/packages.stamp
	@$(BIN)/ruff check .
	@$(BIN)/mypy src tests tools setup.py $(sort $(dir $(wildcard benchmarks/*.py examples/*.py)))
	@PYTHONPATH=src $(BIN)/lint-imports --no-cache
	@$(BIN)/codespell
	@$(BIN)/python -m tools.tree
	@$(BIN)/python -m tools.make_aio --check
	@echo 'rillet: lint is clean'

# The asyncio classes are made from the synchronous ones. A test compares the files with what this writes.
aio: $(VENV)/packages.stamp
	@$(BIN)/python -m tools.make_aio

# Three steps: run every example, build the site in strict mode, and search it in a browser if Chromium is installed.
docs: $(COMPILED)/.stamp $(VENV)/docs.stamp
	@$(compiled) $(pytest) docs README.md $(addprefix tests/package/test_,docs.py lists.py published.py)
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true PYTHONPATH=src $(BIN)/python -m mkdocs build --quiet
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then \
	    PYTHONPATH=src $(BIN)/python tools/check_site.py build/site; \
	else echo 'rillet: the search was not tried in a browser (Debian: apt-get install chromium chromium-driver)'; fi
	@echo 'rillet: the site is in build/site: open build/site/index.html'
