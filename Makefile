# `make help` lists the targets. Variables can be set on the command line: make plan CONFIG=my.yaml
CONFIG ?= config/config.yaml
# Settings that differ from the configuration's: make plan SET="runs.demo.phases.phase1.steps=17 runs.demo.seed=2"
SET ?=
PROFILE ?= profiles/local
SITE ?= site.yaml
PYTHON ?= python3
PORT ?= 5000
# Further pytest options: make test-slurm TESTS="-k preempted"
TESTS ?=
# Of `make faults`: how many times as many random faults as in CI, and the seed of the random numbers.
TIMES ?= 1
SEED ?= 1
# Of `make mine`: the file to write. (Its other variables count on the command line only: LANGUAGE and TIME mean others
# in an environment.)
OUTPUT ?= $(if $(filter command%,$(origin CONFIG)),$(value CONFIG),mine.yaml)
DATASET ?= results/runs/demo/dataset/dataset.json
# As config/config.yaml downloads it.
SQUAD ?= resources/evaluation/ec4160371ee430bf/squad_v1/dev/dev-v1.1.json
VOCABULARY ?= results/runs/demo/export/vocab.txt
# The source of torch. On a machine without a GPU the small build saves gigabytes:
#   make setup TORCH_OPTIONS="--index-url https://download.pytorch.org/whl/cpu"
TORCH_OPTIONS ?=
# The hashes of another build of torch and of what it needs: envs/README.md
TORCH_LOCK ?=
# Of `make sweep`: sequences of the smallest and of the largest micro-batch. PROCESSES=1,2,4 are numbers of processes to
# compare, GPUS=0 (on the command line) is the number of GPUs, OPTIONS="--compile" further options of the training.
FROM ?= 1
TO ?= 64
# Of `make image`: docker or podman, the Dockerfile's target (cpu or cuda), and further options of `build`.
ENGINE ?= docker
TARGET ?= cpu
BUILD_OPTIONS ?=

VENV := .venv
override VENV := $(patsubst ~/%,$(value HOME)/%,$(value VENV))
$(if $(filter-out 1,$(words $(VENV))),$(error error: VENV=$(VENV): give one folder, without spaces in its path))
# The recipes have both in double quotes.
$(foreach sign,$$ ` ",$(if $(findstring $(sign),$(CURDIR)$(VENV)),\
	$(error error: the path of this checkout ($(CURDIR)) or of VENV ($(VENV)) contains $(sign), which a shell would read; move it)))
READY := $(VENV)/ready
VENV_BIN := $(abspath $(VENV))/bin
TOOLS := .venv-release
# Whether the caller's own commands are those of the environment.
ACTIVATED := $(filter $(realpath $(VENV)/bin),$(realpath $(subst :, ,$(value PATH))))
export PATH := $(VENV_BIN):$(value PATH)
# Of `make mine`, on the command line.
OF_MINE := $(foreach name,TIME LANGUAGE ENCODING COLUMN TABLE GPUS,$(if $(filter command%,$(origin $(name))),$(name)))
OUTPUT := $(if $(filter default file,$(origin OUTPUT)),$(OUTPUT),$(value OUTPUT))
SWITCHES := FORCE DELETE PUBLIC PUSH NAMES
# Given to the shell as environment variables, "$$TEXT": nothing in them is a command, of the shell or of make. Without
# quotes, after `set -f`, their words are several arguments. A ~ at the beginning, which zsh leaves to make, is your home.
DATA := CONFIG SET PROFILE SITE PYTHON PORT TESTS TIMES SEED TEXT OUTPUT TIME LANGUAGE ENCODING COLUMN TABLE GPUS RUN REPO TASK \
	RUNS FROM TO PROCESSES OPTIONS FOLLOW DATASET SQUAD VOCABULARY TEXTS MSMARCO TREEBANKS NVIDIA TORCH_OPTIONS TORCH_LOCK ENGINE TARGET \
	BUILD_OPTIONS BERTLINE_TEST_DATA $(SWITCHES)
# Not checked: other names with an underscore, which are for other programs (MLFLOW_TRACKING_URI), and those listed here.
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command%,$(origin $(name))),\
	$(if $(findstring _,$(patsubst BUILD_%,%,$(patsubst TORCH_%,%,$(name)))),,$(name))))
UNKNOWN := $(filter-out $(DATA) VERBOSE VENV CC CXX HOME PATH SHELL TORCH_HOME TORCH_LOGS TORCH_TRACE,$(GIVEN))
$(if $(UNKNOWN),$(error error: $(firstword $(UNKNOWN)) is not a variable of this Makefile; these are: $(DATA)))
$(foreach name,$(filter $(SWITCHES),$(GIVEN)),$(if $(filter-out yes no,$(value $(name))),\
	$(error error: $(name)=$(value $(name)): give $(name)=yes, or leave it out)))
# What each target reads, besides the variables of set-up: others on its command line are refused, as RUN=demo of
# `make prune`, but not within another make, from which they come.
reads = $(foreach target,$(1),$(eval READS_$(target) := $(2)))
OF_SETUP := PYTHON TORCH_OPTIONS TORCH_LOCK
$(call reads,setup,$(OF_SETUP))
$(call reads,demo,SET)
$(call reads,mine,CONFIG SET PROFILE SITE TEXT OUTPUT TIME LANGUAGE ENCODING COLUMN TABLE GPUS FORCE)
$(call reads,plan,CONFIG SET PROFILE SITE)
$(call reads,digests status,CONFIG SET)
$(call reads,targets,CONFIG SET RUN NAMES)
$(call reads,prune,CONFIG SET DELETE)
$(call reads,unlock,CONFIG)
$(call reads,sweep,CONFIG SET RUN FROM TO PROCESSES GPUS OPTIONS)
$(call reads,publish,RUN REPO TASK PUBLIC PUSH)
$(call reads,report,RUNS)
$(call reads,curves,FOLLOW)
$(call reads,ui,PORT)
$(call reads,image,ENGINE TARGET TORCH_OPTIONS BUILD_OPTIONS)
$(call reads,test-containers,ENGINE TARGET TORCH_OPTIONS BUILD_OPTIONS TESTS)
$(call reads,test test-slow test-services test-slurm test-kubernetes e2e rehearse-gpu,TESTS)
$(call reads,faults,TIMES SEED)
$(call reads,bench-train bench-padding bench-precision,DATASET)
$(call reads,bench-finetune,SQUAD VOCABULARY)
$(call reads,bench-features,TEXTS VOCABULARY)
$(call reads,bench-ranking,MSMARCO VOCABULARY)
$(call reads,bench-sentences,TREEBANKS)
$(call reads,bench-export,NVIDIA)
GOALS := $(if $(filter 0,$(MAKELEVEL)),$(filter-out help,$(MAKECMDGOALS)))
READ := $(strip $(foreach goal,$(GOALS),$(READS_$(goal))))
UNREAD := $(if $(GOALS),$(filter-out $(READ) $(if $(filter-out image,$(GOALS)),$(OF_SETUP)),$(filter $(DATA),$(GIVEN))))
$(if $(UNREAD),$(error error: make $(GOALS) does not read $(firstword $(UNREAD)); it reads $(or $(READ),no variable)))
# `mine` reads CONFIG from the command line only.
NEED := $(foreach goal,$(filter-out $(if $(filter CONFIG,$(GIVEN)),,mine),$(GOALS)),$(filter CONFIG,$(READS_$(goal))))
$(if $(NEED),$(if $(strip $(value CONFIG)),,$(error error: CONFIG is empty; name a file, or leave it out)))
DATA := $(foreach name,$(DATA),$(if $(filter undefined,$(origin $(name))),,$(name)))
$(foreach name,$(DATA),$(eval override $(name) := $$(subst ^begin^,,$$(subst ^begin^~/,$$(value HOME)/,^begin^$$(value $(name))))))
export $(DATA)
SETTINGS = $(if $(SET),--set "$$SET")
# --config on a command line replaces that of a profile, which names the site file.
OF_SITE = $(if $(filter-out %/local %/local/,$(PROFILE)),$(if $(SET)$(filter SITE,$(GIVEN)),"site=$$SITE"))
SNAKEMAKE_SETTINGS = $(if $(SET)$(OF_SITE),--config $(if $(SET),"set=$$SET") $(OF_SITE))
# Of the configuration files $(1).
define plan_of
@set -f; python workflow/scripts/plan.py --configfile $(1) $(SETTINGS) $(if $(wildcard $(SITE))$(filter SITE,$(GIVEN)),--site "$$SITE")
@set -f; snakemake --profile "$$PROFILE" --configfile $(1) --dry-run $(SNAKEMAKE_SETTINGS)
endef
# The files that the demo's configuration names, without which its plan lacks the tasks.
OF_DEMO := $(if $(findstring config/demo.yaml,$(CONFIG)),resources/sample/sample.json)
# Their scripts import the bertline of this checkout, in an environment that several share as well.
OF_CHECKOUT := demo resources/sample/sample.json mine sweep curves plan digests targets status prune publish scores report track ui unlock \
	clean faults bench-%
$(OF_CHECKOUT): export PYTHONPATH := $(CURDIR)/src$(if $(value PYTHONPATH),:$(value PYTHONPATH))
# No figure, report or output file may depend on the order of a Python set.
export PYTHONHASHSEED := 0
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: help setup demo test test-slow test-services test-slurm lint e2e bench-data bench-train bench-finetune bench-features bench-ranking
.PHONY: bench-padding bench-precision bench-gpu bench-traffic bench-sentences bench-scale bench-start bench-export rehearse-gpu faults licences audit sbom lock
.PHONY: mine sweep curves plan digests targets status prune publish scores report track ui unlock clean image test-containers test-kubernetes
.DEFAULT_GOAL := help

# What the people who work on bertline need, listed below the others.
OF_DEVELOPERS := (test|bench|rehearse)[a-z-]*|faults|lint|licences|audit|sbom|lock|e2e
LIST = sed -E 's/^([a-z0-9-]+):.*\#\# /\1\t/' | expand -t 17

help: ## list these targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | grep -vE '^($(OF_DEVELOPERS)):' | $(LIST)
	@echo; echo "CONFIG=my.yaml names your configuration: make plan CONFIG=mine.yaml. It is config/config.yaml by default."
	@echo "SET=\"path=value ...\" replaces settings of it, also of the demo. [In brackets: arguments that may be left out.]"
	@echo; echo "To work on bertline itself:"
	@grep -hE '^($(OF_DEVELOPERS)):.*## ' $(MAKEFILE_LIST) | $(LIST)

# The first set-up writes its options into `begun` and, at its end, into `ready`; each later one has them again, unless it is
# given some, perhaps none by TORCH_OPTIONS=. Others are refused once torch is there: pip would keep the build that is installed.
define recall_options
for record in "$(READY)" "$(VENV)/begun"; do [ ! -e "$$record" ] || break; done; \
if [ -e "$$record" ]; then \
	{ IFS= read -r options; IFS= read -r lock; } < "$$record"; \
	if [ -z "$(filter TORCH_OPTIONS TORCH_LOCK,$(GIVEN))$$TORCH_OPTIONS$$TORCH_LOCK" ] \
		|| [ "$$TORCH_OPTIONS|$$TORCH_LOCK" = "$$options|$$lock" ]; then TORCH_OPTIONS=$$options; TORCH_LOCK=$$lock; \
	elif ls -d "$(READY)" "$(VENV)"/lib/python*/site-packages/torch-*.dist-info 2> /dev/null | grep -q .; then \
		echo "error: $(VENV) was set up with other TORCH_OPTIONS or TORCH_LOCK; delete it first" >&2; exit 1; \
	fi; \
fi
endef

# An environment keeps its Python: another one would not find its packages.
define check_python
if [ -e "$(VENV)/pyvenv.cfg" ]; then \
	"$(VENV_BIN)/python" -Ic 'import os, sysconfig; os.stat(sysconfig.get_path("purelib"))' 2> /dev/null \
		|| { echo "error: the Python of $(VENV) was removed, was replaced by another version, or is of another account; delete $(VENV) first, or give another VENV" >&2; exit 1; }; \
	$(if $(filter PYTHON,$(GIVEN)),version() { "$$1" -c 'import sys; print(sys.version)'; }; \
		[ "$$(version "$$PYTHON")" = "$$(version "$(VENV_BIN)/python")" ] \
		|| { echo "error: $(VENV) was set up with another Python than $$PYTHON; delete it first" >&2; exit 1; };) \
fi
endef

setup: $(READY) ## make .venv with pinned dependencies, each file checked by its sha256 [PYTHON=python3.12 VENV=folder TORCH_OPTIONS=... TORCH_LOCK=...: envs/README.md]
	@$(recall_options)
	@$(check_python)
	@"$(VENV_BIN)/python" -Ic 'import platform, sys; from importlib.metadata import distributions as found; \
		[torch, bertline] = [[one.version for one in found(name=name)] for name in ("torch", "bertline")]; \
		torch and bertline or sys.exit(f"error: {sys.argv[1]} lost torch or bertline; delete it first"); \
		print(sys.argv[1], "is ready: Python", platform.python_version(), "with torch", *torch)' "$(VENV)"

# At its real path: venv refuses a link, such as one to a disk with more space.
# In another checkout the environment is for its tests, which would then import this one's bertline.
$(READY): pyproject.toml envs/constraints.txt envs/install.py $(addprefix envs/lock/,build.txt packages.txt torch.txt cuda.txt)
	@$(recall_options)
	@holder=$$(CDPATH= cd -P "$(VENV)" 2>/dev/null && cd -P .. && pwd -P); \
		[ -z "$$holder" ] || [ "$$holder" = "$$(pwd -P)" ] \
		|| ! ls "$$holder/pyproject.toml" "$$holder/envs/install.py" "$$holder/src/bertline/__init__.py" > /dev/null 2>&1 \
		|| { echo "error: $(VENV) is the environment of $$holder, whose bertline this one would replace; remove the link, \
	or give another VENV (see envs/README.md)" >&2; exit 1; }
	@[ -e "$(VENV)/pyvenv.cfg" ] || [ -z "$$(ls -A "$(VENV)/" 2> /dev/null)" ] \
		|| { echo "error: $(VENV) has other files and is no environment of Python's venv; give another VENV (conda: see envs/README.md)" >&2; exit 1; }
	@$(check_python)
	@python=$$PYTHON; [ ! -e "$(VENV)/pyvenv.cfg" ] || python="$(VENV_BIN)/python"; \
		[ "$$("$$python" -c 'import sys, venv, ensurepip; print(sys.version_info >= (3, 11))')" = True ] \
		|| { echo "error: $$python needs version 3.11 or newer with venv (Debian: apt install python3-venv)" >&2; exit 1; }; \
		echo "Setting up $(VENV): about two minutes, download speed aside"; \
		[ -e "$@" ] || [ -e "$(VENV)/begun" ] || \
		"$$python" -m venv "$$("$$python" -c 'import os, sys; print(os.path.realpath(sys.argv[1]))' "$(VENV)")"
	@$(recall_options); [ -e "$@" ] || [ -z "$$TORCH_OPTIONS" ] || echo "TORCH_OPTIONS=$$TORCH_OPTIONS (TORCH_OPTIONS= for none)"; \
		[ -e "$@" ] || printf '%s\n' "$$TORCH_OPTIONS" "$$TORCH_LOCK" > "$(VENV)/begun"; set -f; \
		"$(VENV_BIN)/python" envs/install.py $${TORCH_LOCK:+--torch-lock "$$TORCH_LOCK"} $$TORCH_OPTIONS \
		&& printf '%s\n' "$$TORCH_OPTIONS" "$$TORCH_LOCK" > "$@"
	@echo "For all commands but make, first run, once in each terminal: source $(VENV)/bin/activate"

# The tools of a release have an environment of their own: users need none of them.
$(TOOLS)/ready: envs/install.py envs/lock/release.txt
	"$$PYTHON" -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python envs/install.py --release
	touch $@

demo: $(READY) resources/sample/sample.json ## run the whole graph on a generated sample
	snakemake --profile profiles/local --configfile config/demo.yaml $(if $(SET),--config "set=$$SET")
	python workflow/scripts/predict.py results/runs/demo/glue/cola/model --text "Some horses touch the ancient wall."
	python workflow/scripts/predict.py results/runs/demo/squad_v1/model --question "Who is the spouse of Nujok?" \
		--context "The pet of Nujok is a canary. The spouse of Nujok is Mahen Tadel. Nujok was born in Vitir."

resources/sample/sample.json: | $(READY) # a new environment makes the same sample
	python workflow/scripts/make_demo_data.py --output resources/sample --seed 1

PYTEST := PYTEST_ADDOPTS="$$PYTEST_ADDOPTS $$TESTS" pytest
PARALLEL := OMP_NUM_THREADS=1 $(PYTEST) --maxprocesses 8 --dist loadfile --no-loadscope-reorder --durations 25

test: $(READY) ## run the tests that take seconds: minutes on two cores
	$(PARALLEL) --numprocesses logical tests/workflow tests/unit -m "not slow"

# More processes than cores: these tests wait for schedulers, terminals, signals and hosts.
test-slow: $(READY) ## run the tests of whole graphs, of kills, of large files: longer than all of `make test`
	$(PARALLEL) --numprocesses "$$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2))" \
		$$(grep -l "mark\.slow" tests/workflow/*.py tests/unit/*.py) -m slow

test-slurm: $(READY) ## run the graph on a real Slurm cluster that the tests start (root; packages: tests/slurm/packages.txt)
	$(PYTEST) tests/slurm -rs

# With KUBEBUILDER_ASSETS also on a real API server: docs/kubernetes.md, "What is tested".
test-kubernetes: $(READY) ## test the manifests and the profile for Kubernetes (npm; TESTS="-k evicted" for some)
	@sh tests/kubernetes/get_tools.sh logs/kubernetes-tools || echo "kubectl or its schemas could not be fetched: tests are skipped" >&2
	PATH="$(CURDIR)/logs/kubernetes-tools:$$PATH" PYTHONPATH="$(CURDIR)/logs/kubernetes-tools/schemas" $(PYTEST) tests/kubernetes -rs

faults: $(READY) ## kill, fill, cut off and damage everything at random, and print what held: make faults TIMES=10 SEED=7
	python bench/faults.py --times "$$TIMES" --seed "$$SEED"

lint: $(READY) ## run ruff, snakefmt, snakemake --lint, mypy
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow
	snakemake --lint --configfile config/demo.yaml
	mypy

licences: $(READY) ## compare the licences of all installed packages with envs/licences.toml
	@python envs/licences.py

audit: licences $(TOOLS)/ready ## the licences, and known vulnerabilities of all locked packages (asks PyPI)
	@$(TOOLS)/bin/python envs/audit.py

sbom: $(READY) $(TOOLS)/ready ## write the list of installed packages of a release, dist/bertline-<version>.cdx.json
	@$(TOOLS)/bin/python envs/sbom.py "$(VENV)"

lock: $(TOOLS)/ready ## write envs/lock and envs/bertline.yaml anew, from pyproject.toml and envs/constraints.txt
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" $(TOOLS)/bin/python envs/lock.py
	python envs/generate.py

e2e: $(READY) ## run the whole graph on real files: BERTLINE_TEST_DATA=folder make e2e
	$(PYTEST) tests/e2e

test-services: $(READY) ## test MLflow behind a server and on PostgreSQL, the report in a browser (Debian: postgresql chromium npm)
	@sh tests/services/get_mlflow_2.sh logs/mlflow-2 || echo "MLflow 2.22 could not be installed: its test is skipped" >&2
	$(PYTEST) tests/services

image: ## build the container image bertline:cpu for your user: make image [TARGET=cuda ENGINE=podman TORCH_OPTIONS=... BUILD_OPTIONS=...]
	set -f; $$ENGINE build --file deploy/containers/Dockerfile --target "$$TARGET" --tag "bertline:$$TARGET" \
		--build-arg UID="$$(id -u | sed 's/^0$$/1000/')" --build-arg GID="$$(id -g | sed 's/^0$$/1000/')" \
		--build-arg COMMIT="$$(git rev-parse --verify --quiet HEAD)" \
		$(if $(filter TORCH_OPTIONS,$(GIVEN)),--build-arg TORCH_OPTIONS="$$TORCH_OPTIONS") $$BUILD_OPTIONS .

test-containers: $(READY) image ## build the image, and test it
	BERTLINE_IMAGE="bertline:$$TARGET" $(PYTEST) tests/containers -rs

bench-data: $(READY) resources/sample/sample.json ## measure the data stages one by one; BERTLINE_TEST_DATA=folder for real text
	python bench/encoding.py "$${BERTLINE_TEST_DATA:-resources/sample}"

bench-sentences: $(READY) ## compare sentence splitters on treebanks: make bench-sentences TREEBANKS=folder
	python bench/sentences.py "$${TREEBANKS:?is needed}"

bench-scale: $(READY) resources/sample/sample.json ## measure how the data steps grow with a corpus; BERTLINE_TEST_DATA=folder for real text
	python bench/dry_runs.py
	python bench/scale.py "$${BERTLINE_TEST_DATA:-resources/sample}"

bench-export: $(READY) resources/sample/sample.json ## compare writing NVIDIA's layout with NVIDIA's encoder: make bench-export NVIDIA=folder
	python bench/export.py "$${BERTLINE_TEST_DATA:-resources/sample}" --nvidia "$${NVIDIA:?is needed}"

bench-train: $(READY) ## compare training with transformers: make bench-train DATASET=folder/dataset.json
	python bench/train.py "$$DATASET"

bench-padding: $(READY) ## print how much of training is padding, in rows and packed: make bench-padding DATASET=folder/dataset.json
	python bench/padding.py "$$DATASET"

bench-precision: $(READY) ## compare the losses of trainings in bf16 and fp32: make bench-precision DATASET=folder/dataset.json
	python bench/precision.py "$$DATASET"

bench-start: $(READY) ## measure how long compilation takes when a training starts, as one program and by layer
	python bench/start.py

bench-gpu: $(READY) ## measure everything on a GPU: correctness, speed, a profile, a training with a kill
	python bench/gpu.py

bench-traffic: $(READY) ## count the bytes that a training step moves on a GPU, without one
	python bench/traffic.py

rehearse-gpu: $(READY) ## run bench/gpu.py on a CPU, with the fewest packages, under two versions of PyTorch
	$(PYTEST) tests/bench -rP

bench-finetune: $(READY) ## compare fine-tuning with transformers: make bench-finetune SQUAD=dev-v1.1.json VOCABULARY=vocab.txt
	python bench/finetune.py "$$SQUAD" "$$VOCABULARY"

bench-features: $(READY) ## compare feature extraction with transformers: make bench-features TEXTS=texts.txt VOCABULARY=vocab.txt
	python bench/features.py "$${TEXTS:?is needed}" "$$VOCABULARY"

bench-ranking: $(READY) ## compare ranking with transformers: make bench-ranking MSMARCO=folder VOCABULARY=vocab.txt
	python bench/ranking.py "$${MSMARCO:?is needed}/collection.tsv" "$$MSMARCO/queries.tsv" "$$VOCABULARY"

mine: $(READY) ## write a configuration for your own text, sized to it and to this machine: make mine TEXT=folder [TIME=2h TABLE=reviews.csv COLUMN=text FORCE=yes; all: docs/data.md]
	@python workflow/scripts/mine.py "$$TEXT" --output "$$OUTPUT" $(foreach name,$(OF_MINE),\
		--$(shell echo $(name) | tr A-Z a-z)="$$$(name)") $(if $(filter yes,$(FORCE)),--force)
	$(call plan_of,"$$OUTPUT")
	@echo; echo "Run it:"; $(if $(ACTIVATED),,echo "  source $(VENV)/bin/activate";) sed -n 's/^#     /  /p' -- "$$OUTPUT"

sweep: $(READY) ## time a training by micro-batch sizes and by processes: make sweep CONFIG=my.yaml [RUN=demo/phase1 FROM=1 TO=64 PROCESSES=1,2,4 GPUS=0 OPTIONS="--compile"]
	@set -f; python workflow/scripts/sweep.py "$$RUN" --configfile $$CONFIG $(SETTINGS) --from "$$FROM" --to "$$TO" \
		$(if $(PROCESSES),--processes "$$PROCESSES") $(if $(filter GPUS,$(GIVEN)),--gpus "$$GPUS") $(if $(OPTIONS),--options="$$OPTIONS")

plan: $(READY) $(OF_DEMO) ## show what would run, why, and which finished trainings it concerns [PROFILE=profiles/slurm SITE=site.yaml]
	$(call plan_of,$$CONFIG)

digests: $(READY) ## read the inputs of CONFIG once, for their checksums, as a first start does: for much text, in a job
	@set -f; python workflow/scripts/digests.py --configfile $$CONFIG $(SETTINGS)

targets: $(READY) $(OF_DEMO) ## list what can be asked for by name, with its state, and the stages: make targets RUN=demo/glue; NAMES=yes lists names alone
	@set -f; python workflow/scripts/targets.py --configfile $$CONFIG $(SETTINGS) $(if $(RUN),--run "$$RUN") $(if $(filter yes,$(NAMES)),--names)

status: $(READY) $(OF_DEMO) ## show the progress of each run: step, speed, time left, last checkpoint, jobs
	@set -f; python workflow/scripts/status.py --configfile $$CONFIG $(SETTINGS)

prune: $(READY) ## show what no finished result needs any more, and how much that frees; DELETE=yes deletes it
	@set -f; python workflow/scripts/prune.py --configfile $$CONFIG $(SETTINGS) $(if $(filter yes,$(DELETE)),--delete)

publish: $(READY) ## show what would be sent to a Hub: make publish RUN=demo REPO=user/name [TASK=glue/cola PUBLIC=yes]; PUSH=yes sends it
	@python workflow/scripts/publish.py "$$RUN" "$$REPO" $(if $(TASK),--task "$$TASK") \
		$(if $(filter yes,$(PUBLIC)),--public) $(if $(filter yes,$(PUSH)),--push)

track: $(READY) ## send the journals to MLflow
	@python workflow/scripts/track.py results/runs

scores: $(READY) ## print the scores of all runs, and where their models are
	@python workflow/scripts/scores.py results/runs

report: $(READY) ## compare runs on a page, without running anything: make report RUNS=a,b (all runs by default)
	@python workflow/scripts/report.py "$$RUNS"

curves: $(READY) ## write all runs' curves as CSV and for TensorBoard, to results/curves; FOLLOW=10 repeats that every 10 seconds
	@python workflow/scripts/curves.py results/runs $(if $(FOLLOW),--follow "$$FOLLOW")

ui: $(READY) ## open MLflow on this machine only, and follow live runs (also on the server of MLFLOW_TRACKING_URI) [PORT=5000]
	@python workflow/scripts/ui.py --port "$$PORT"

unlock: $(READY) ## after snakemake was killed: make sure none is running, then clear its lock
	@set -f; python workflow/scripts/unlock.py --configfile $$CONFIG

clean: $(READY) ## remove the sample and the demo's results; your own results stay, also those that they share
	@python workflow/scripts/clean.py --configfile config/demo.yaml
