# Commands. `make` alone lists them. They install into .venv/, var/ and static/vendor/; missing programs come from the system's
# packages.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
RUN := $(BIN)/python
STATE := var/state
ARGS ?=
# Dozens of processes start here: compiling everything in each of them anew takes more than what they are there for.
export PYTHONDONTWRITEBYTECODE :=

MESSAGES := locale/ja/LC_MESSAGES/django.mo
PARTS := $(STATE)/venv $(STATE)/kafka $(STATE)/spark $(STATE)/assets $(STATE)/archive $(MESSAGES)

.PHONY: help setup demo dev test test-fast pictures check fix messages bench chaos clients docs audit sbom image-digests part-hashes clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(PARTS) $(STATE)/kafka-3.9.1 $(STATE)/programs-test ## Install everything that demo and tests need; nothing twice

demo: $(PARTS) $(STATE)/programs-demo ## Run the whole product on real data; ARGS=--once ends after the report
	@$(RUN) -m devcluster.demo $(ARGS)

dev: $(PARTS) $(STATE)/programs-demo ## Run the demo with auto-reload, for development
	@$(RUN) -m devcluster.demo --reload $(ARGS)

test: setup $(if $(KAFKA),$(STATE)/kafka-$(KAFKA)) ## Run every test against real Kafka, Spark, Redis and a browser; ARGS go to pytest, KAFKA=4.4.0
	@KAFKA_VERSION=$(KAFKA) $(RUN) -m pytest $(ARGS)

test-fast: $(STATE)/venv $(MESSAGES) ## Run the unit tests: no other program, sockets blocked; ARGS go to pytest
	@mkdir -p staticfiles # where an image build collects; WhiteNoise warns if it is missing, and warnings are errors
	@$(RUN) -m pytest -m unit -n logical $(ARGS)

pictures: $(PARTS) $(STATE)/programs-test ## Take screenshots of the main pages, light, dark and on a phone: var/pictures/
	@$(RUN) -m pytest -q -n 0 tests/browser/pictures.py
	@ls var/pictures/*.png

# settings that nothing connects with: the checks only need the project to load
check docs messages: export CLUSTERLINK_SECRET_KEY := check
check docs messages: export CLUSTERLINK_CREDENTIALS_KEY := MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=
check docs messages: export CLUSTERLINK_DATABASE_URL := sqlite:///:memory:
check docs messages: export CLUSTERLINK_REDIS_URL := redis://127.0.0.1:1/0
check docs messages: export CLUSTERLINK_SPARK_URL := sc://127.0.0.1:1
check docs messages: export CLUSTERLINK_ALLOWED_HOSTS := localhost

check: $(STATE)/venv ## Run formatter, linters and type checker; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/djlint --lint --quiet templates
	$(RUN) manage.py makemigrations --check --dry-run
	$(RUN) manage.py render_docs --check

fix: $(STATE)/venv ## Apply the automatic fixes of linter and formatter
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(PARTS) $(STATE)/programs-demo ## Measure the copier against MirrorMaker 2; writes docs/benchmarks.md; ARGS: words of a row's name
	@$(RUN) -m bench $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

chaos: $(PARTS) $(STATE)/programs-demo ## Break one thing after another for MINUTES=10 by SEED=1, then compare; status 0 or 1
	@$(RUN) -m chaos --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(ARGS)

clients: $(PARTS) $(STATE)/programs-demo ## Test with Confluent's SDK and Terraform, and with Go and Node clients that read mirrors; needs all of them
	@$(RUN) -m clients $(ARGS)

messages: $(STATE)/venv | $(STATE)/gettext ## Enter new texts of pages into the catalog in locale/, for translation
	$(RUN) manage.py makemessages --locale ja --no-location --no-wrap --no-obsolete $(addprefix --ignore=,.venv* bench docs static* tests var)

docs: $(STATE)/venv ## Regenerate documents
	$(RUN) manage.py render_docs

audit: $(STATE)/venv ## Check for known vulnerabilities and unpinned dependencies; status 2 if the database is unreachable
	@$(RUN) -m scripts.audit $(ARGS)

sbom: $(STATE)/venv $(STATE)/spark $(STATE)/webjars ## Write the bill of materials, var/sbom.cdx.json (CycloneDX)
	@$(RUN) -m scripts.sbom

image-digests: ## Write the current digests of the base images into Dockerfile and docker-compose.yml; needs docker
	@$(PYTHON) -m scripts.image_digests

part-hashes: ## Record the hashes of the Java parts after a change of devcluster/pom.xml
	@$(PYTHON) -m scripts.check_parts --write kafka kafka-3.9.1 kafka-4.4.0 spark webjars

clean: ## Remove everything that was installed or generated
	rm -rf .venv var static/vendor staticfiles $(MESSAGES) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# --- parts; each state file says "done for the present inputs" ---------------------------------------------------

# uv first, then uv installs the rest: several times faster. It does not read pip's settings, so the index that
# pip would use is passed to it; where uv cannot reach it, pip does the work.
$(STATE)/tools: scripts/check_tools.py
	@$(PYTHON) -m scripts.check_tools
	@mkdir -p $(STATE) && touch $@

$(STATE)/venv: requirements.txt | $(STATE)/tools
	@echo "Python packages ..."
	@test -x $(RUN) || $(PYTHON) -m venv .venv
	@mkdir -p $(STATE)
	@awk '/^uv==/ {on = 1} on {print} on && !/\\$$/ {exit}' requirements.txt > $(STATE)/uv.txt
	@test -x $(BIN)/uv || $(RUN) -m pip install -q --disable-pip-version-check --require-hashes -r $(STATE)/uv.txt
	@index=$$($(RUN) -m pip config get global.index-url 2>/dev/null || true); \
	  export UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$index}}"; \
	  [ -n "$$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX; \
	  $(BIN)/uv pip install -q --compile-bytecode --python $(RUN) --require-hashes -r requirements.txt \
	  || $(RUN) -m pip install -q --disable-pip-version-check --require-hashes -r requirements.txt
	@touch $@

$(STATE)/kafka $(STATE)/kafka-3.9.1 $(STATE)/kafka-4.4.0 $(STATE)/spark $(STATE)/webjars: $(STATE)/%: devcluster/pom.xml | $(STATE)/tools devcluster/parts.sha256
	@echo "Java parts: $* ..."
	@rm -rf var/parts/$*.new
	@mvn -q -B -f devcluster/pom.xml -P$* dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/var/parts/$*.new
	@$(PYTHON) -m scripts.check_parts $*
	@rm -rf var/parts/$* && mv var/parts/$*.new var/parts/$*
	@mkdir -p $(STATE) && touch $@

$(STATE)/archive: $(STATE)/kafka $(STATE)/spark $(STATE)/venv
	@echo "Class archives, for quick starts ..."
	@$(RUN) -m devcluster.archive
	@touch $@

$(STATE)/assets: $(STATE)/webjars static/icons.txt scripts/unpack_assets.py
	@$(PYTHON) -m scripts.unpack_assets
	@mkdir -p staticfiles # where an image build collects; must exist
	@touch $@

$(STATE)/gettext: scripts/ensure_programs.py
	@$(PYTHON) -m scripts.ensure_programs gettext
	@mkdir -p $(STATE) && touch $@

$(MESSAGES): %.mo: %.po | $(STATE)/gettext
	@msgfmt --check-format -o $@ $<

$(STATE)/programs-demo: scripts/ensure_programs.py
	@$(PYTHON) -m scripts.ensure_programs redis-server
	@mkdir -p $(STATE) && touch $@

$(STATE)/programs-test: scripts/ensure_programs.py
	@$(PYTHON) -m scripts.ensure_programs redis-server chromium-headless-shell postgresql
	@mkdir -p $(STATE) && touch $@
