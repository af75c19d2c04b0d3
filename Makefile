# Everything runs in VENV, which the stamps below fill: `make report` never installs what only tests need.
VENV ?= .venv
SPEC ?= specs/70b.yaml
TESTS ?= tests
PAGES ?= reports/*.html
THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

bin := $(VENV)/bin
python := $(VENV)/bin/python
runnable := $(VENV)/.report
testable := $(VENV)/.test
schemas := ledger/spec/schemas/plan.schema.json
# Tests lie beside each other as in their files, and a worker that is done takes some from another.
workers := --numprocesses $(or $(WORKERS),auto) --maxprocesses 8 --dist worksteal
.DELETE_ON_ERROR:
.PHONY: help report lecture test test-long fuzz laws crossing test-times lint check verify verify-all accuracy calibration serving neighbours coverage constants worth fix schema bench-compile bench-report bench-sweep bench-ci bench-cpu pages hostile-pages pictures house lock wheel wheel-test gallery version audit clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

report: $(runnable) $(schemas) $(VENV)/.pango ## write the report of SPEC=specs/70b.yaml to reports/
	@$(bin)/ledger report "$(SPEC)"

lecture: $(runnable) $(VENV)/.pango ## write the questions of the course notes with the compiler's answers to reports/lecture.*
	@$(bin)/ledger report specs/lecture/lecture.yaml

test: $(testable) $(schemas) $(VENV)/.pango ## run the tests, in minutes (TESTS=tests/spec for a part, WORKERS=0 for one process)
	$(python) -m pytest $(workers) $(TESTS)

test-long: $(testable) $(schemas) $(VENV)/.pango ## run those that take longer: in full what `make test` samples
	$(python) -m pytest $(workers) -m long $(TESTS)

fuzz: $(testable) $(schemas) ## run hostile inputs over every verb: SECONDS=600 MUTANTS=100000 SEED=1 COLD=2000; what it finds becomes a test
	$(python) -m tests.fuzz --seconds $(or $(SECONDS),600) --mutants $(or $(MUTANTS),100000) --seed $(or $(SEED),1) --cold $(or $(COLD),2000)

laws: $(testable) ## hold PLANS=2000 random plans to the laws that every plan keeps, ROWS=10000 rows of searches to what the compiler says; SEED=1
	$(python) -m tests.laws --plans $(or $(PLANS),2000) --seed $(or $(SEED),1)
	$(python) -m tests.laws --rows $(or $(ROWS),10000) --seed $(or $(SEED),1)

crossing: $(testable) $(schemas) $(VENV)/.pango ## run every verb of every plan of the library on every stack that may run it (hours; PLAN=, STACK=, VERB=, SECONDS=)
	$(python) -m tests.crossing $(if $(PLAN),--plan $(PLAN)) $(if $(STACK),--stack $(STACK)) $(if $(VERB),--verb $(VERB)) $(if $(SECONDS),--seconds $(SECONDS))

test-times: $(testable) $(schemas) $(VENV)/.pango ## run the tests, and print the seconds of each folder
	$(python) benchmarks/suite.py $(workers) $(TESTS)

lint: $(testable) $(schemas) ## check formatting, lint and types
	$(python) -m ruff format --check
	$(python) -m ruff check
	$(python) -m mypy

check: lint test ## formatting, lint, types, tests: what a change must pass

verify: $(testable) ## let PyTorch, Megatron-Core, DeepSpeed and torchtitan judge a subset of specs/verify on fake tensors (minutes)
	$(bin)/ledger verify specs/verify/pytorch.yaml --quick
	$(bin)/ledger verify specs/verify/megatron.yaml --quick
	$(bin)/ledger verify specs/verify/deepspeed.yaml --quick
	$(bin)/ledger verify specs/verify/torchtitan.yaml --quick

verify-all: $(testable) ## all of it, and keep the verdicts in specs/evidence/derivations
	$(bin)/ledger verify specs/verify/pytorch.yaml --record
	$(bin)/ledger verify specs/verify/megatron.yaml --record
	$(bin)/ledger verify specs/verify/deepspeed.yaml --record
	$(bin)/ledger verify specs/verify/torchtitan.yaml --record

accuracy: $(runnable) ## write the table of verified plans into docs/accuracy.md, from their records
	@$(python) -m ledger.lab.verification docs/accuracy.md

neighbours: $(runnable) ## write what the compiler says today of the published runs that the library carries
	@$(python) -m ledger.lab.score predicted

coverage: $(runnable) ## print how often measured steps lie within the interval, of the library's runs or of RUNS=FILE...
	@$(python) -m ledger.lab.score coverage $(RUNS)

constants: $(runnable) ## fit the constants of stacks on half of the publications (or of RUNS=FILE...), print their error on the rest
	@$(python) -m ledger.lab.score constants $(RUNS)

worth: $(runnable) ## print the error on the published runs that the library carries, without each mechanism in turn
	@$(python) -m ledger.lab.score worth

serving: $(runnable) ## write how near published serving results are predicted into docs/serving-accuracy.md (a minute)
	@$(python) -m ledger.lab.score serving docs/serving-accuracy.md

calibration: $(runnable) ## print the error of every fit of specs/evidence, and write it and the price forms into docs
	@$(python) -m ledger.lab.calibration docs/accuracy.md docs/measuring.md
	@$(bin)/ledger calibrate --table specs/evidence/*.yaml

fix: $(testable) ## format, and mend what lint can mend
	$(python) -m ruff format
	$(python) -m ruff check --fix

schema: $(schemas) ## say which JSON Schemas there are; `ledger schema KIND` prints one
	@$(bin)/ledger schema

bench-compile: $(runnable) ## time the compiler: a cold process, a warm recompile, the command line's start; AGAINST=DIR beside another checkout
	@$(python) benchmarks/compile.py "$(SPEC)" $(if $(SCORE),--score "$(SCORE)") $(if $(AGAINST),--against "$(AGAINST)")

bench-report: $(runnable) $(VENV)/.pango ## time the report of SPEC, HTML alone and with PDF, in seconds and in turns of a fixed loop; AGAINST=DIR too
	@$(python) benchmarks/compile.py "$(SPEC)" --only report $(if $(AGAINST),--against "$(AGAINST)")

bench-sweep: $(runnable) ## layouts a second that `ledger sweep` prices, for three whole spaces (minutes; WORKERS=2)
	@$(python) benchmarks/sweep.py $(if $(WORKERS),--workers $(WORKERS))

bench-ci: $(runnable) ## time `ledger ci` on a repository of thirty plans: five changes, and one of every plan
	@$(python) benchmarks/ci.py

bench-cpu: $(testable) ## predict training steps on this CPU from its kernels, then run them; RUNS=10 THREADS=1 (an hour on a busy machine)
	@$(python) benchmarks/cpu.py $(or $(RUNS),10) $(THREADS)

browser := $(VENV)/browser
pages: $(browser)/node_modules ## open PAGES=reports/*.html in Chromium, wide and narrow, light and dark, under axe-core
	@NODE_PATH=$(abspath $<) scripts/pages $(PAGES)

hostile-pages: $(runnable) $(browser)/node_modules ## open pages and comments made of hostile inputs in Chromium, and count what runs, loads or leaves
	@rm -rf build/hostile && mkdir -p build/hostile && $(python) benchmarks/hostile_pages.py build/hostile >/dev/null
	@NODE_PATH=$(abspath $(browser)/node_modules) scripts/hostile-pages build/hostile/*.html

pictures: $(runnable) $(VENV)/.pango $(VENV)/.pictures $(browser)/node_modules ## draw the pictures of README.md in docs/pictures with Chromium, and write what they show
	@NODE_PATH=$(abspath $(browser)/node_modules) $(python) scripts/pictures.py

house: $(runnable) ## print how this tree is kept: lines by room, names, cycles, lengths; AGAINST=DIR beside another
	@$(python) benchmarks/house.py $(AGAINST) .

wheel: $(runnable) ## build dist/training_plan_ledger-*.whl, which works outside a checkout
	@scripts/wheel $(python) dist

wheel-test: wheel ## install that wheel in an empty environment and run every verb that needs no PyTorch in an empty folder
	@scripts/try-wheel dist

gallery: $(runnable) $(VENV)/.pango ## write the report of every plan of specs/ to dist/gallery and its archive; SEARCH=1 with other layouts (hours)
	@scripts/gallery $(bin)/ledger dist $(SEARCH)

version: $(runnable) ## say whether TAG=v1.2.3 is the package's version
	@$(bin)/ledger --version | grep -q "^ledger $(patsubst v%,%,$(TAG))," || { echo "the tag $(TAG) is not the version of the package" >&2; exit 1; }

lock: ## resolve the dependencies anew and pin them with their digests in requirements/ (KEEP=1 for the versions as they are)
	@KEEP=$(KEEP) scripts/lock requirements

audit: ## compare what is pinned with the published vulnerabilities
	@scripts/audit requirements

clean: ## remove the virtual environment, caches and generated reports
	rm -rf $(VENV) $(VENV).lock .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find reports -mindepth 1 ! -name .gitkeep -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What all makes of this folder share is made by one of them at a time: another one waits, and finds it made.
shared := $(python) $(runnable) $(testable) $(schemas) $(browser)/node_modules $(VENV)/.pictures $(VENV)/.pango

ifndef ALONE
$(shared): FORCE
	@scripts/alone $(VENV).lock $(MAKE) --silent ALONE=1 $@

FORCE:
else
# A make that was killed may have left an environment without pip.
ifeq ($(wildcard $(runnable)),)
$(shell [ ! -e $(python) ] || $(python) -m pip --version >/dev/null 2>&1 || rm -rf $(VENV))
endif

# A stamp is younger than what it was made from. Every file that is installed has its digest in requirements/, and
# nothing is fetched but these: what is built is built with what requirements/build.txt has.
install = $(python) -m pip install --quiet --require-hashes $(patsubst %,--requirement requirements/%.txt,$1)

$(python):
	@interpreter=$$(scripts/python) && "$$interpreter" -m venv $(VENV)

$(runnable): pyproject.toml requirements/build.txt requirements/report.txt | $(python)
	@echo "installing ledger into $(VENV)" >&2
	@$(call install,build report)
	@$(python) -m pip install --quiet --no-deps --no-index --no-build-isolation --editable .
	@touch $@

$(testable): requirements/test.txt requirements/torch.txt requirements/torch-cpu.txt requirements/judges.txt $(runnable)
	@echo "installing the test tools, PyTorch and the frameworks that judge plans into $(VENV)" >&2
	@$(call install,test torch-cpu) || { echo "no index here has PyTorch's CPU build: taking PyPI's" >&2; $(call install,test torch); }
	@$(call install,judges) --no-deps --no-build-isolation
	@touch $@

# For editors, which find them by the first line of a spec; they list the names that there are.
$(schemas): $(wildcard ledger/spec/*.py ledger/course/*.py specs/*/*.yaml) | $(runnable)
	@$(bin)/ledger schema --out $(@D)
	@touch $@

$(browser)/node_modules: scripts/browser/package.json scripts/browser/package-lock.json | $(python)
	@mkdir -p $(browser) && cp $^ $(browser)/
	@npm ci --silent --ignore-scripts --prefix $(browser)
	@touch $@

$(VENV)/.pictures: requirements/pictures.txt $(runnable)
	@$(call install,pictures)
	@touch $@

$(VENV)/.pango: scripts/pango $(runnable)
	@scripts/pango $(python)
	@touch $@
endif
