# Every target sets itself up: a virtual environment in .venv, nothing global.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PROTOC := .venv/protoc/.ready
OUT := src
PROTOS := $(wildcard protos/peerloom/v1/*.proto)

# Some environments forbid it, and then each of hundreds of processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: chart docs docs-check simulate-faults bench-watching bench-recovery bench-inference setup demo test test-unit lint types proto check-proto wheel-test check-extras check-own-extras bench experiments-selection bench-report bench-check bench-network bench-sync bench-pipeline bench-quality bench-takeover chaos soak attack ns3 images base-image clean bench-pipeline-recovery bench-staleness bench-ten-thousand bench-gpu bench-pipeline-memory bench-sharded bench-aged bench-accuracy bench-callers bench-choice bench-survey bench-tensor bench-pacing

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Peerloom needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/peerloom demo

# SIDES at once, file by file; those that share the machine's networks and Docker stay on one side. Three on two cores:
# processes that a test has stopped or cut off are waited for. TESTS names some, or has pytest's options.
test: $(READY)
	@$(BIN)/python -m pytest -n $(or $(SIDES),3) --dist loadscope $(TESTS)

test-unit: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadscope tests/unit

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/buf lint protos

types: $(READY)
	@$(BIN)/mypy
	@$(BIN)/mypy tests/gpu benchmarks # which CI runs little of, or nothing

$(PROTOC): protos/requirements.txt
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r protos/requirements.txt
	@touch $@

# Regenerates the code in OUT (src/peerloom/v1) from protos/, without marks for a linter that isn't used here.
proto: $(READY) $(PROTOC)
	@mkdir -p $(OUT)
	@$(dir $(PROTOC))bin/python -m grpc_tools.protoc -I protos --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc \
	  --python_out=$(OUT) --mypy_out=quiet:$(OUT) --grpc_python_out=$(OUT) --mypy_grpc_out=quiet:$(OUT) $(PROTOS)
	@# mypy-protobuf marks its aliases for flake8-pyi, which nobody runs here.
	@sed -i.bak 's/  # noqa: Y015$$//' $(OUT)/peerloom/v1/*.pyi && rm $(OUT)/peerloom/v1/*.pyi.bak
	@touch $(OUT)/peerloom/v1/__init__.py

check-proto: $(READY)
	@fresh=$$(mktemp -d) && trap 'rm -rf '$$fresh EXIT && $(MAKE) --no-print-directory proto OUT=$$fresh && \
	  diff -r --exclude=__pycache__ $$fresh/peerloom/v1 src/peerloom/v1 || { echo "src/peerloom/v1 isn't what protos/ gives: run make proto"; exit 1; }

# The docs site, build/docs/site/index.html, from the Markdown files as they are; nothing is fetched.
docs: $(READY)
	@$(BIN)/python docs/build_site.py build/docs

# Fails where a link or an anchor leads nowhere, a page isn't in the navigation, or something comes from another place.
docs-check: docs
	@$(BIN)/python docs/check_site.py build/docs

# Builds the wheel, installs it into an empty environment and starts each service from there.
wheel-test: $(READY)
	@$(BIN)/python -m pytest tests/integration/test_wheel.py

# Whether pip finds versions that suit Peerloom and Ray, MLflow, Prefect or Flower at once; installs nothing.
check-extras: $(READY)
	@$(BIN)/python deploy/beside_others.py

# The Helm chart: rendered in all its ways, linted, validated for Kubernetes 1.30 to 1.37; no cluster is asked.
chart: $(READY)
	@$(BIN)/python -m pytest tests/integration/test_chart.py tests/integration/test_chart_pods.py tests/integration/test_chart_reach.py

# Whether all of Peerloom's own parts resolve together, in the versions of constraints.txt: half a minute; CI does it.
check-own-extras: $(READY)
	@$(BIN)/python deploy/beside_others.py own

# Each benchmark writes benchmarks/results/NAME.json, from a clean tree. NAMES="selection" runs some, QUICK=1 a small
# size for trying; WHY="..." says why a result replaces the one that there is.
bench: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" $(NAMES)

# What each selection policy is worth, over 30 seeds; the same seeds give the same figures.
experiments-selection: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" policies

# What the emulated networks carry; needs root, ns-3 (make ns3) and iperf3, and make images for containers.
bench-network: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" network

# A batch by each way to synchronise, over slow emulated links; needs root and ns-3 (make ns3). Some 13 minutes.
bench-sync: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" sync

# A batch whose connections share links evenly, and as TCP's Cubic shares them; needs root and ns-3 (make ns3). Half an
# hour. Where the kernel lets hosts use no Cubic it takes Reno.
bench-pacing: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" pacing

# A step of a pipeline beside torch's own schedules, on loopback and over slow emulated links; needs root and ns-3 (make
# ns3). Some 25 minutes.
bench-pipeline: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" pipeline

# Training over NCCL beside torchrun, and kills there; needs an NVIDIA GPU. Some 4 minutes.
bench-gpu: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" gpu gpu_recovery

# What is lost by sending less, beside the bytes: MNIST=DIR names a folder of its files. Nothing is timed. Some 40 minutes.
bench-quality: $(READY)
	@MNIST="$(MNIST)" $(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" quality_mnist quality_text

# Time to accuracy over slow links while workers are killed, beside torchrun, torchft and hivemind: MNIST=DIR names a folder
# of its files (text-50 needs none); needs root and ns-3 (make ns3). An hour and more a cell; CELLS="mnist-10" runs one.
bench-accuracy: $(READY)
	@MNIST="$(MNIST)" $(BIN)/python -m benchmarks.accuracy $(if $(QUICK),--quick) --why "$(WHY)"

# What metrics and traces cost the registry, beside itself without them; two cores, 6 minutes on a quiet machine.
bench-watching: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" watching

# What a question to a trained model costs in each of the three ways, and after a stage was killed.
bench-inference: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" inference

# A thousand clients at once through auto: none lost, or told when to come again. Some 8 minutes.
bench-callers: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" callers

# From a fault to the next committed step, beside torchrun elastic and torchft; some 20 minutes. PARTS="kill freeze"
# runs some; PARTS=patience, 10 minutes more, counts false alarms on busy cores, and PARTS=methods, a quarter of an hour, kills
# workers under each way to synchronise. Cutting nodes off needs root.
bench-recovery: $(READY)
	@$(BIN)/python -m benchmarks.recovery $(if $(QUICK),--quick) --why "$(WHY)"

# How soon a pipeline goes on after a stage's worker was killed, and what shadows cost. Some 15 minutes.
bench-pipeline-recovery: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" pipeline_recovery

# Calls after a year of a thousand nodes beside a day's, on SQLite and PostgreSQL, which it needs. Some 7 minutes.
bench-aged: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" aged

# A step of a model in shards beside torch's FSDP, over ns-3; needs root and ns-3. Some 11 minutes.
bench-sharded: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" sharded_step

# A transformer of 100 million parameters on slots of 512 MiB, by data and as a pipeline. Some 3 minutes, and 4 GiB.
bench-pipeline-memory: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" pipeline_memory

# One worker of four at a third of the speed: BSP, SSP, ASP and backup workers, throughput and accuracy. A quarter of
# an hour.
bench-staleness: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" staleness

# Whether auto takes the fastest way to synchronise, cell by cell; needs root and ns-3 (make ns3). Two minutes a cell, and
# hours for all; CHOICE_MINUTES=40 takes as many as that, and the next run goes on from there.
bench-choice: $(READY)
	@CHOICE_MINUTES="$(CHOICE_MINUTES)" $(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" choice

# A step of a model with layers in pieces beside torch's tensor parallelism; needs root and ns-3. Some 5 minutes.
bench-tensor: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" tensor_step

# The survey's seven methods over real links, at small scale; needs root and ns-3 (make ns3). A quarter of an hour.
bench-survey: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" survey_live

# From the loss of leading coordinators until a worker killed at that moment is replaced; PEERLOOM_TEST_DATABASE names
# a PostgreSQL; a cut network needs root. A quarter of an hour.
bench-takeover: $(READY)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" takeover

# 10,000 real agents at one registry: a storm of joins, half lost, restarts. Two cores, some 9 minutes; ulimit -Hn
# must allow 14,196 open files. QUICK=1 NODES=1000 tries it.
bench-ten-thousand: $(READY)
	@NODES="$(NODES)" $(BIN)/python -m benchmarks $(if $(QUICK),--quick) --why "$(WHY)" ten_thousand

# Turns all results into docs/benchmarks.md and its pictures.
bench-report: $(READY)
	@$(BIN)/python -m benchmarks.report

# Whether the results and their page say what the samples say; runs no benchmark.
bench-check: $(READY)
	@$(BIN)/python -m benchmarks.check

# Random faults against a training job, then the promises are checked; CHAOS_SEED, CHAOS_SECONDS.
chaos: $(READY)
	@$(BIN)/python -m benchmarks.chaos

# The whole system under faults, jobs and questions for SOAK_MINUTES (default: 480): does anything grow? SOAK_SEED
# chooses the faults, SOAK_KEEP=1 keeps the result; with PEERLOOM_TEST_DATABASE coordinators have standbys.
soak: $(READY)
	@WHY="$(WHY)" $(BIN)/python -m benchmarks.soak

# A closed system is attacked by a stranger, a node, a user and a job's code; fails if one of them gains anything.
# QUICK=1: strangers and nodes only, without the same attacks on a plain system; JSON=FILE keeps the table.
attack: $(READY)
	@GRPC_VERBOSITY=NONE $(BIN)/python -m benchmarks.attack $(if $(QUICK),--quick) $(if $(JSON),--json $(JSON))

# Histories of the control plane on virtual time, with faults drawn by seed; a failing one prints itself.
# HISTORIES says how many; SEED tells one.
simulate-faults: $(READY)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--histories $(or $(HISTORIES),10000))

# The network emulator (C++); needs Debian's ns-3: ns3/install.sh.
ns3:
	@cmake -S ns3 -B ns3/build >/dev/null && cmake --build ns3/build --parallel

# The images of registry, selector, trainer and node, from wheels collected here and a base image made by debootstrap;
# deploy/build.sh tells its settings.
images: $(READY)
	@deploy/build.sh

base-image:
	@deploy/build.sh base

clean:
	rm -rf .venv build ns3/build dist src/*.egg-info
