# Set-up, tests and everyday commands; `make` lists them.
.DEFAULT_GOAL := help
.PHONY: help run compose check apart test test-foreign test-cluster test-kubernetes agents versions lock lint bench soak chaos cluster cluster-down stop down clean openapi docs wheels deb release test-deb vendor venv dev engine image compose-tool compiler browser node runtimes issuer filesystems foreign conformance crun postgres prometheus emulator hosts prerequisites javascript

python := .venv/bin/python
# Python keeps what it has compiled, whatever the environment says: compiling the tests takes each
# worker 10 s.
unexport PYTHONDONTWRITEBYTECODE
# Tests without an engine share nothing: `make check` runs two of them for each core, as they wait
# now and then. `make test` runs one for each core beside the others. Those share the engine and wait
# for it: four files run at once, the tests of one file in turn, the longest files first.
apart := --dist worksteal tests/unit tests/api
workers := $(shell nproc)
together := -n 4 --dist loadfile --no-loadscope-reorder --short tests/cluster tests/integration tests/security tests/tools tests/browser

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

run: image ## set everything up, start the control plane, run the example
	@$(python) -m scripts.service start
	@env -u PADDOCK_URL $(python) examples/governed_package.py
	@$(python) -m scripts.service where

compose: image ## run the control plane as a container instead; see docs/deployment.md
	@scripts/deploy.sh

check: ## lint, types, and the tests that need no engine and little time
	@$(MAKE) --no-print-directory -j2 lint apart

apart: dev
	@$(python) -m pytest -q --hypothesis-profile quick -m "not slow" -n $$((2 * $(workers))) $(apart)

test: dev image compose-tool compiler browser runtimes issuer filesystems foreign crun postgres prometheus ## all tests, of clusters the short ones; ARGS= replaces the arguments of pytest
ifdef ARGS
	@$(python) -m pytest $(ARGS)
else
	@scripts/parts.sh "-n $(workers) $(apart)" "$(together)"
endif

test-cluster: dev image postgres ## the tests of more than one machine, all of them
	@$(python) -m pytest -q tests/cluster $(ARGS)

test-kubernetes: dev image postgres ## deploy/kubernetes on a real one, which it builds first, on Debian 12
	@scripts/kubernetes.sh
	@$(python) -m pytest -q tests/kubernetes $(ARGS)

test-foreign: dev image conformance ## clients of other projects, with these projects' own tests, from PyPI and npm
	@$(python) -m pytest -q tests/foreign --keep-results $(ARGS)
	@$(python) -m scripts.docs

agents: dev image ## build the images of all coding agents, and run each one's program
	@$(python) -m pytest -q tests/agents

versions: dev ## the unit and API tests on every other supported Python that is installed
	@scripts/versions.sh $(ARGS)

openapi: dev ## regenerate docs/openapi.json, and from it the JavaScript client's types
	@$(python) -m paddock openapi --output docs/openapi.json
	@$(python) -m scripts.typescript

docs: dev ## regenerate the generated parts of docs/
	@$(python) -m scripts.docs

lock: dev ## regenerate the lock files; ARGS=--upgrade takes newer versions
	@scripts/lock.sh $(ARGS)

vendor: ## fetch the console's libraries anew, from npm
	@scripts/vendor.sh

wheels: dev ## build the wheels of client and server into dist/
	@$(python) -m scripts.wheels

javascript: dev node ## build the JavaScript client's package into dist/
	@$(python) -m scripts.npm_package

deb: dev ## build the Debian packages, for Debian 12 and 13, into dist/
	@$(python) -m scripts.packaging.deb

test-deb: dev image ## install, upgrade, remove and purge them on Debian 12 and 13, with the package manager
	@$(python) -m pytest -q tests/debian $(ARGS)

release: dev image node ## everything of a release into dist/: packages, images, list of parts, checksums
	@$(python) -m scripts.packaging.release

lint: dev ## style, format and types
	@$(python) -m ruff check
	@$(python) -m ruff format --check
	@$(python) -m mypy

bench: dev image ## measure, beside peers too, and print the ratios; ARGS=--help lists options
	@$(python) -m tests.bench $(ARGS)

soak: dev image ## use sessions at random for an hour, and check that nothing grows; ARGS="--minutes 5"
	@$(python) -m tests.soak $(ARGS)

chaos: dev image ## kill the control plane at every step of everything, and check what is left; ARGS=--help
	@$(python) -m tests.chaos $(ARGS)

hosts: dev emulator ## boot stock systems in virtual machines and test there; ARGS=--help lists options
	@$(python) -m scripts.hosts $(ARGS)

cluster: dev image postgres ## machines with an engine each, and PostgreSQL, on this host; ARGS=2: how many
	@$(python) -m scripts.cluster up $(ARGS)

cluster-down: ## end and remove what `make cluster` started
	@if [ -e .venv ]; then $(python) -m scripts.cluster down; fi

stop: ## stop the control plane; sandboxes keep running
	@if [ -e .venv ]; then $(python) -m scripts.service stop; fi

down: ## stop what `make compose` started; sandboxes keep running
	@scripts/compose.sh down

clean: ## stop and remove everything: sandboxes, workspaces, images, .venv
	@if [ -e .cluster ] || [ -e /var/cache/paddock-cluster ]; then \
		scripts/venv.sh && $(python) -m scripts.cluster down --images; fi
	@if [ -e .venv ] || [ -e data ]; then scripts/venv.sh && $(python) -m scripts.clean; fi
	@rm -rf /var/cache/paddock-kubernetes /var/cache/paddock-prometheus /var/cache/paddock-debian
	@rm -rf .venv .venv-3.* .venv-bench *.egg-info dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

venv:
	@scripts/venv.sh run

dev:
	@scripts/venv.sh dev

prerequisites:
	@scripts/prerequisites.sh

engine: prerequisites venv
	@scripts/engine.sh

image: engine
	@$(python) -m images build

compose-tool: venv
	@scripts/compose.sh

compiler:
	@scripts/compiler.sh

browser:
	@scripts/browser.sh

node:
	@scripts/node.sh

runtimes: node
	@scripts/runtimes.sh

filesystems:
	@scripts/filesystems.sh

foreign:
	@scripts/foreign.sh

issuer: node
	@scripts/issuer.sh

conformance: node
	@scripts/conformance.sh

crun: engine
	@scripts/crun.sh

postgres:
	@scripts/postgres.sh

prometheus:
	@scripts/prometheus.sh

emulator:
	@scripts/emulator.sh
