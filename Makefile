PYTHON ?= python3
BIN := .venv/bin
FLEX_BIN := .venv-flex/bin
FLOWER_BIN := .venv-flower/bin

# uv takes seconds instead of minutes, and the environments share its downloads. It uses the sources of pip's variables.
UV := .venv/bin/uv
INSTALL = .ci/install
export UV_SYSTEM_CERTS ?= true
export UV_HTTP_TIMEOUT ?= $(or $(PIP_DEFAULT_TIMEOUT),180)
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

# Some images set it. Then every pytest (15 s), command and Ray worker (0.5 s) compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Files with long tests come first (see tests/conftest.py), so that no core waits for another at the end.
ALL_CORES = --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: help demo docs test test-slow test-both test-main test-flex test-flower test-torch test-oldest-ray test-newest test-phone test-browsers lint-phone test-cluster test-all fuzz torture check benchmarks clean

demo: .venv/.demo-installed  ## compare four strategies over 20 devices
	$(BIN)/python experiments/compare.py

test: .venv/.dev-installed  ## run the fast tests on all cores: every feature, in about five minutes
	$(BIN)/pytest $(ALL_CORES) -m "not slow and not phone"

test-slow: .venv/.dev-installed  ## run the slow tests: kills, clusters, fuzzing, every shipped model
	$(BIN)/pytest $(ALL_CORES) -m "slow and not phone"

test-both: .venv/.dev-installed  ## run the fast and the slow tests at once, so that TensorFlow, Ray and pytest start once
	$(BIN)/pytest $(ALL_CORES) -m "not phone"

test-main: .venv/.all-installed tests/phone/node_modules/.installed  ## run all tests of .venv at once: all except flex and flower
	$(BIN)/pytest $(ALL_CORES)

test-all: test-main test-flex test-flower test-oldest-ray lint-phone  ## run all tests

fuzz: .venv/.dev-installed  ## fuzz with 2,000 damaged models, 500 checkpoints, 500 configurations: some minutes
	FUZZ=long $(BIN)/pytest tests/fuzz

torture: .venv/.dev-installed  ## kill runs of 30 rounds 85 times each, remove nodes, 2,000 rounds, 50 jobs: half an hour
	TORTURE=long $(BIN)/pytest -s tests/torture

test-flex: .venv-flex/.installed  ## run the tests of the Flex flavour, with TensorFlow 2.19
	$(FLEX_BIN)/pytest tests/flex

test-flower: .venv-flower/.installed  ## run the tests with Flower, Hugging Face's datasets and Hydra's Ray launcher
	FLWR_TELEMETRY_ENABLED=0 RAY_ADDRESS=local $(FLOWER_BIN)/pytest tests/flower $(wildcard tests/data/test_hugging_face.py tests/cli/test_ray_launcher.py)

test-torch: .venv/.all-installed  ## run the tests of PyTorch models
	$(BIN)/pytest --numprocesses auto tests/pytorch

test-oldest-ray: .venv/.dev-installed  ## run short tests on the oldest Ray that pyproject.toml allows; all other tests use the newest
	.ci/ray_versions

test-newest: .venv/.dev-installed  ## run short tests on the newest releases that pyproject.toml allows, without constraints.txt
	PYTHON=$(PYTHON) .ci/newest

lint-phone: tests/phone/node_modules/.installed  ## lint the phone's page and check its types
	tests/phone/node_modules/.bin/eslint --config tests/phone/eslint.config.js --max-warnings 0 odt_sim/phone/page odt_sim/watch/page tests/phone
	tests/phone/node_modules/.bin/tsc --project tests/phone

test-phone: .venv/.dev-installed lint-phone  ## drive the phone's page in Chromium
	$(BIN)/pytest $(ALL_CORES) tests/phone

test-browsers: .venv/.dev-installed tests/phone/node_modules/.installed  ## train a device in Firefox and in WebKit, the engine of iPhones
	.ci/browser firefox-esr webkit2gtk-driver xvfb
	$(BIN)/pytest tests/phone/test_other_browsers.py

test-cluster: .venv/.all-installed  ## run the tests of ray job submit, S3 and the trackers, with their packages
	$(BIN)/pytest $(ALL_CORES) tests/cluster tests/trackers

check: .venv/.dev-installed  ## run the linters, the format check and the type check
	$(BIN)/ruff check
	$(BIN)/lint-imports --no-cache
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: .venv/.dev-installed  ## build the documentation site into build/site, offline
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

benchmarks: .venv/.dev-installed  ## run two benchmarks; see benchmarks/README.md
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/coordination.py

$(UV): constraints.txt
	@$(PYTHON) -c 'import sys; found = sys.version_info[:2]; (3, 11) <= found < (3, 14) or sys.exit("expected Python 3.11 to 3.13, found %d.%d; choose another: make PYTHON=python3.13 TARGET" % found)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt uv
	touch $@

.venv/.demo-installed: pyproject.toml constraints.txt $(UV)
	$(INSTALL) $(BIN)/python --constraint constraints.txt --editable '.[export]'
	touch $@

.venv/.dev-installed: pyproject.toml constraints.txt $(UV)
	$(INSTALL) $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	touch $@ .venv/.demo-installed

.venv/.all-installed: .venv/.dev-installed
	$(INSTALL) $(BIN)/python --constraint constraints.txt --editable '.[dev,torch,cluster,wandb]' 'moto[s3,server]' s3fs transformers
	touch $@

.venv-flex/.installed: pyproject.toml constraints-flex.txt $(UV)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv-flex
	$(INSTALL) .venv-flex/bin/python --constraint constraints-flex.txt --editable '.[flex]' hypothesis pytest
	touch $@

.venv-flower/.installed: pyproject.toml constraints-flower.txt $(UV)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv-flower
	$(INSTALL) .venv-flower/bin/python --constraint constraints-flower.txt --editable '.[audio,export,flower]' datasets hydra-ray-launcher hypothesis pytest
	touch $@

.PHONY: browser
browser:
	@.ci/browser

tests/phone/node_modules/.installed: tests/phone/package.json | browser
	npm install --prefix tests/phone --silent --no-package-lock --no-audit --no-fund
	touch $@

clean:  ## remove the environments, build folders and caches
	rm -rf .venv .venv-flex .venv-flower tests/phone/node_modules build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1	/p' Makefile | expand -t 16
