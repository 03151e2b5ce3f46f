PYTHON ?= python3

.PHONY: help demo test lint style types tests bench clean distclean
.DELETE_ON_ERROR:
demo: export SUTURE_CACHE = demo/cache

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

demo: demo/data ## the whole job on generated video, in demo/: check, train, evaluate, report, predict
	.venv/bin/suture check demo/data
	@echo 'Three trainings follow, each on every 10th label.'
	.venv/bin/suture train demo/data --preset demo --set method=supervised --set data.labelling.every=10 -o demo/runs/supervised
	.venv/bin/suture train demo/data --preset demo --set method=pgvcl --set data.labelling.every=10 -o demo/runs/pgvcl
	.venv/bin/suture train demo/data --preset demo --set data.labelling.every=10 -o demo/runs/stitch
	.venv/bin/suture report demo/runs/supervised demo/runs/pgvcl demo/runs/stitch -o demo/report.html
	.venv/bin/suture predict demo/runs/stitch demo/data/videos/case08.mp4 -o demo/predictions --force
	@echo 'Open demo/report.html (three runs side by side) and demo/predictions/case08/overlay.mp4 (a new video, segmented).'
	@echo 'The mIoU of the three runs on test says how well predicted and true areas overlap on new videos, 100 at best: supervised learns from labelled frames alone, pgvcl and stitch from the others too. So few steps of so small a network do not show which is better: README.md has results on real video.'

test: style ## formatting and style, then types beside all tests
	@$(MAKE) --no-print-directory -j2 types tests

lint: style types ## formatting, style and types

style: .venv/.ready
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet .

# On one core, so beside the tests, whose lines it leaves whole: it says all at once what is wrong, or nothing.
types: .venv/.ready
	@said=$$(.venv/bin/mypy 2>&1) || { printf '\n%s\n' "$$said"; exit 1; }

tests: .venv/.ready
	@.venv/bin/python -m pytest -q -n auto --dist loadfile

# Without plot.py, which writes docs/performance.md and its pictures, and without what the benchmarks share.
BENCHMARKS = $(filter-out benchmarks/common.py benchmarks/plot.py benchmarks/stages.py, $(wildcard benchmarks/*.py))
bench: .venv/.ready ## every benchmark, one after the other; figures and page stay as they are
	@set -e; for file in $(sort $(BENCHMARKS)); do echo "$$file"; .venv/bin/python "$$file"; done

clean: ## remove the demo, caches and build outputs
	@rm -rf demo build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	@rm -rf .venv

demo/data: | .venv/.ready
	@.venv/bin/suture synthetic $@ --frames 60

# The stamp is touched last, so an installation that was interrupted is taken up again. Beside pip, which would say
# nothing or hundreds of lines, a loop says every half minute that it goes on; it ends when this shell does.
.venv/.ready: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Suture needs Python 3.11 or newer, $(PYTHON) is older or missing: make PYTHON=/path/to/python3"; exit 2; }
	@echo "installing what Suture needs into .venv (3–5 minutes)"
	@$(PYTHON) -m venv .venv
	@(s=0; while sleep 1 && kill -0 $$$$; do s=$$((s + 1)); \
		[ $$((s % 30)) -gt 0 ] || echo "installing for $$s seconds"; done) 2> /dev/null & \
		.venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
		status=$$?; kill $$! 2> /dev/null; exit $$status
	@touch $@
