PYTHON ?= python3

.PHONY: help demo test test-fast test-extras lint style types tests bench clean distclean
.DELETE_ON_ERROR:
demo: export SUTURE_CACHE = demo/cache

help: ## list the goals
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

demo: demo/data demo/new.mp4 ## the whole job on generated video, in demo/: check, train, evaluate, report, predict
	.venv/bin/suture check demo/data
	@echo 'Three trainings follow, each on every 10th label.'
	.venv/bin/suture train demo/data --preset demo --set method=supervised --set data.labelling.every=10 -o demo/runs/supervised
	.venv/bin/suture train demo/data --preset demo --set method=pgvcl --set data.labelling.every=10 -o demo/runs/pgvcl
	.venv/bin/suture train demo/data --preset demo --set data.labelling.every=10 -o demo/runs/stitch
	.venv/bin/suture report demo/runs/supervised demo/runs/pgvcl demo/runs/stitch --videos demo/new.mp4 -o demo/report.html
	.venv/bin/suture predict demo/runs/stitch demo/new.mp4 -o demo/predictions --force
	@echo 'Open demo/report.html (three runs side by side) and demo/predictions/new/overlay.mp4 (a new video, segmented).'
	@echo 'The demo shows the steps, not which method is better: its network and trainings are tiny. README.md has results on real video.'

test: style ## style, types and all tests: about 16 minutes on two cores
	@$(MAKE) --no-print-directory -j2 types tests

test-fast: .venv/.ready ## unit tests alone: about 2.5 minutes
	@.venv/bin/python -m pytest -q -n auto --dist loadfile -m 'not slow and not extras'

test-extras: .venv/.extras ## tests with heavy third parties
	@output=$$(.venv/bin/python -m pytest -q -m extras 2>&1) || { printf '%s\n' "$$output"; exit 1; }

lint: style types ## formatting, style and types

style: .venv/.ready
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet .

types: .venv/.ready
	@output=$$(.venv/bin/mypy 2>&1) || { printf '\n%s\n' "$$output"; exit 1; }

tests: .venv/.ready
	@.venv/bin/python -m pytest -q -n auto --dist loadfile -m 'not extras'

# common.py, plot.py, stages.py and size.py are no benchmarks, and selection.py trains for hours.
BENCHMARKS = $(filter-out $(addprefix benchmarks/,common.py plot.py stages.py size.py selection.py), $(wildcard benchmarks/*.py))
bench: .venv/.ready ## every benchmark, one after the other
	@set -e; for file in $(sort $(BENCHMARKS)); do echo "$$file"; .venv/bin/python "$$file"; done

clean: ## remove the demo, caches and build outputs
	@rm -rf demo build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	@rm -rf .venv

demo/data: | .venv/.ready
	@.venv/bin/suture synthetic $@ --frames 60

demo/new.mp4: | .venv/.ready
	@.venv/bin/suture synthetic demo/new --cases 1 --frames 125 --size 512x512 --fps 25 --seed 1
	@mv demo/new/videos/case01a.mp4 $@

# The stamp is touched last, so make repeats an interrupted installation.
.venv/.ready: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Suture needs Python 3.11 or newer, $(PYTHON) is older or missing: make PYTHON=/path/to/python3"; exit 2; }
	@echo "Installing into .venv (3–5 minutes)"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

.venv/.extras: .venv/.ready
	@.venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[extras]'
	@touch $@
