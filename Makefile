# Every target sets up what it needs on a fresh machine: a virtual environment, packages, Java for Spark.
PY := .venv/bin/python
JOBS ?= 2

.PHONY: demo test test-wheel simulate check docs bench bench-commits evidence evidence-check evidence-render conformance conformance-ci constraints generate clean

demo: venv java          ## a broker, usage events through it, a lakehouse table from them, and a picture
	$(PY) -m odradek demo $(ARGS)

test: venv java          ## all tests, and those of the wire again without uvloop, sendfile, RWF_NOWAIT
	$(PY) -m pytest -n $(JOBS) $(ARGS)
	ODRADEK_FORCE_FALLBACKS=1 $(PY) -m pytest -n $(JOBS) tests/broker tests/cli tests/net $(ARGS)

test-wheel: venv         ## the built wheel, installed without a compiler on Python 3.11 and 3.13
	@scripts/ensure-python 3.13
	$(PY) -m pytest tests/packaging $(ARGS)

simulate: venv           ## simulated clusters with fresh seeds for three minutes; fails if a kind of fault or event did not occur
	$(PY) -m tests.simulation --brokers 3 --minutes 3 $(ARGS)

check: venv              ## lint, format, types, layers, circles, sizes, generated code
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m pytest -q -p no:randomly tests/test_tidy.py
	$(PY) -m odradek.protocol.generate --check
	$(PY) -m benchmarks.evidence check

docs: venv docs-packages  ## the documentation as a site in build/site; fails on a dead link or a warning
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

docs-serve: venv docs-packages  ## the same on http://127.0.0.1:8000, built again when a page changes
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve --strict

bench: evidence-first-table   ## the first table of docs/benchmarks.md: compare with Apache Kafka (needs Maven)

evidence: venv java conformance-packages   ## every experiment without a record of this src/ (docs/evidence.md)
	$(PY) -m benchmarks.evidence run $(ARGS)

evidence-check: venv     ## the age of each record; tables that differ from their records
	$(PY) -m benchmarks.evidence check

evidence-render: venv    ## tables of the pages, from the records
	$(PY) -m benchmarks.evidence render

evidence-%: venv java    ## one experiment, at most 60 minutes; continues where it stopped
	$(PY) -m benchmarks.evidence run $* $(ARGS)

bench-commits: venv      ## the rows of `bench` at two commits: make bench-commits BASE=commit [HEAD=commit]
	$(PY) -m benchmarks.commits_compared $(BASE) $(HEAD) $(ARGS)

conformance: venv java conformance-packages   ## the foreign suites and single requests against Odradek and Apache Kafka, for hours, part by part (needs Maven and kcat)
	$(PY) -m conformance $(if $(ARGS),run $(ARGS),all)
	$(if $(ARGS),,$(PY) -m conformance.differential --report docs/differential.md)

conformance-%: venv java conformance-packages   ## one part of `conformance`, at most 60 minutes: `python -m conformance parts` lists them
	$(PY) -m conformance run --part $* $(ARGS)

conformance-ci: venv java conformance-packages
	$(PY) -m conformance run --subset ci $(ARGS)

generate: venv           ## message classes from their definitions
	$(PY) -m odradek.protocol.generate

constraints: venv        ## pin and hash the packages of pyproject.toml
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-emit-find-links --no-header -q --upgrade --extra registry --extra spark --extra dev -o constraints/all.txt pyproject.toml
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-emit-find-links --no-header -q -c constraints/all.txt -o constraints/base.txt pyproject.toml
	.venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-emit-find-links --no-header -q --upgrade -c constraints/all.txt --extra docs -o constraints/docs.txt pyproject.toml

.PHONY: venv java conformance-packages docs-packages docs-serve
docs-packages: venv
	@scripts/ensure-mermaid
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints/docs.txt
conformance-packages: venv
	@scripts/ensure-kcat
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r conformance/requirements.txt
venv:
	@scripts/setup-venv
java:
	@scripts/ensure-java

clean:
	rm -rf .venv .cache build dist
