# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test proof bench studies lint browser clean wheel

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --upgrade pip setuptools wheel
	$(BIN)/pip install -qq -e .
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/pip install -qq -e '.[test]'
	touch $@

# The table of specs/table1.plait, a small character model on the built-in corpus, a sample from it.
demo: $(VENV)/.installed
	$(BIN)/plait table specs/table1.plait
	rm -rf runs/demo
	$(BIN)/plait train specs/demo.plait --out runs/demo
	$(BIN)/plait sample runs/demo --prompt "The " --length 300 --temperature 0.8

# mypy reads an installed copy, from outside the root: there ./plait shadows the package, and an editable install is a hook it cannot follow
lint: $(VENV)/.tested
	$(BIN)/ruff check .
	rm -rf $(VENV)/typed build
	$(BIN)/pip install -qq --no-deps --no-build-isolation --target $(VENV)/typed .
	cd / && MYPYPATH=$(abspath $(VENV))/typed $(abspath $(BIN))/mypy --config-file $(abspath pyproject.toml) --cache-dir $(abspath .mypy_cache) -p plait

# A process a core, each with one thread: the tests are many and small.
SIDE_BY_SIDE := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

test: lint browser
	$(SIDE_BY_SIDE)

# The tests of `plait report` look at its page in a browser. Where there is none, and none can be installed without asking, they are skipped.
browser:
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome; do "$$name" --version >/dev/null 2>&1 && exit; done; \
	export DEBIAN_FRONTEND=noninteractive; \
	{ test "$$(id -u)" = 0 && { apt-get install -qq -y chromium || apt-get update -qq && apt-get install -qq -y chromium; } \
	  && chromium --version; } </dev/null >/dev/null 2>&1 || echo "no browser: its tests are skipped (apt-get install chromium)"

# What takes longer: the training bars. PLAIT_DATA names the folder of the corpora; a bar without its corpus is skipped and says so.
proof: $(VENV)/.tested
	$(SIDE_BY_SIDE) -v -rPs proof --override-ini testpaths=proof --basetemp $(VENV)/proof

# Speed and memory beside the best peers, into docs/benchmarks.md. Nothing else may run meanwhile.
bench: $(VENV)/.tested
	$(BIN)/pip install -qq -e '.[peers]'
	$(BIN)/python -m benchmarks

# The studies of examples/ in their short forms. Their long forms, each some minutes to an hour, are `python examples/NAME/study.py`.
studies: $(VENV)/.tested
	for study in examples/*/study.py; do echo "$$study"; $(BIN)/python "$$study" --short || exit 1; done

wheel: $(VENV)/.tested
	rm -rf build dist
	$(BIN)/python -m build --wheel --outdir dist

clean:
	rm -rf build dist runs $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
