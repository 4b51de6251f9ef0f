# Two commands do everything on a fresh machine:
#   make bench   installs into .venv and runs the main job
#   make test    installs into .venv and runs the quick tests; make test-slow and make test-long run the others
# Installs with a Python that works, and says which; make PYTHON=/path/to/python names one.
PYTHON ?=
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
BASE := $(VENV)/.base

# where `make smoke` leaves its two runs; each must be a new folder
SMOKE ?= logs/smoke-$(shell date -u +%Y%m%dT%H%M%S)

.PHONY: bench headline small smoke smoke-training smoke-inference smoke-inductor test test-slow test-long coverage-devices card versions check golden shown regional numerics lint docs format install clean help study-a study-b study-c study-f

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -3

install: $(STAMP)

# Installs again only when what is to be installed has changed. The main job needs the base alone.
$(BASE): pyproject.toml constraints.txt
	python=$$(.ci/python $(PYTHON)) && echo "installing with $$python: $$($$python --version)" && $$python -m venv $(VENV)
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable .
	touch $(BASE)

$(STAMP): $(BASE)
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[huggingface,timm,nvidia,browser,docs,dev]'
	touch $(STAMP)

bench: $(BASE)
	$(RUN) runner.py --suites=tiny_gpt --training --dtypes=bfloat16 --processes=1

# Every curated model of both suites: does it build, run and agree with eager? With one thread each, the two
# halves can run side by side: make -j2 smoke
smoke: smoke-training smoke-inference

smoke-training smoke-inference: smoke-%: $(STAMP)
	$(RUN) runner.py --suites=huggingface,timm_models --$* --accuracy --scale=small --devices=cpu \
		--compilers=aot_eager --threads=1 --output-dir=$(SMOKE)-$*

# Inductor on some of every family, both ways
INDUCTOR := AlbertForMaskedLM,BartForConditionalGeneration,BertForMaskedLM,DebertaV2ForMaskedLM,DistillGPT2,GPTNeoForCausalLM
INDUCTOR := $(INDUCTOR),GoogleFnet,MobileBertForQuestionAnswering,OPTForCausalLM,T5Small,XLNetLMHeadModel,YituTechConvBert
INDUCTOR := $(INDUCTOR),Llama_3_2_1B,Qwen3_0_6B,Gemma3_270M,OLMoE_1B_7B,ModernBERT_base,Mamba2_130M,Whisper_tiny,CLIP_ViT_B32
INDUCTOR := $(INDUCTOR),lcnet_050,ghostnet_100,levit_128,mixer_b16_224,mobilenetv3_large_100,regnety_002,resnet50,tf_efficientnet_b0
INDUCTOR := $(INDUCTOR),vit_base_patch16_224,swin_base_patch4_window7_224,convnextv2_nano,eva02_tiny_patch14_224,hiera_tiny_224
INDUCTOR := $(INDUCTOR),mobilenetv4_conv_small,starnet_s1,mambaout_tiny
smoke-inductor: $(STAMP)
	code=0; for mode in training inference; do \
		$(RUN) runner.py --suites=huggingface,timm_models --$$mode --accuracy --scale=small --devices=cpu \
			--compilers=inductor --threads=1 --only=$(INDUCTOR) --output-dir=$(SMOKE)-inductor-$$mode || code=$$?; \
	done; exit $$code

# 40 whole models with all CPUs as threads, in four parts of ten models (results/headline-whole-cpu), and every curated
# model at small scale with one thread (results/headline-cpu: 13 hours; taskset -c 0 make small). Ctrl-C ends a sitting;
# the same command continues, on the same kind of processor only. Exit code 1 (a model failed) does not end the series
WHOLE := results/headline-whole-cpu/models.csv
PART = $(lastword $(subst -, ,$@))
WHOLE_PLAN = --scale=full --dtypes=$(DTYPES) --batch-size-file=$(WHOLE) \
	--only=$(shell awk -F, 'NR % 4 == $(PART) {print $$1}' $(WHOLE) | paste -sd,)
DTYPES ?= float32,bfloat16
PARTS := 1 2 3 0
INFERENCE := $(PARTS:%=headline-inference-%)
TRAINING := $(PARTS:%=headline-training-%)
.PHONY: $(PARTS:%=headline-%) $(INFERENCE) $(TRAINING)
headline: $(PARTS:%=headline-%)
$(PARTS:%=headline-%): headline-%: headline-inference-% headline-training-%
$(INFERENCE): PLAN = --inference $(WHOLE_PLAN) --compilers='aot_eager,inductor,inductor[freezing=True]'
$(TRAINING): PLAN = --training $(WHOLE_PLAN) --compilers=aot_eager,inductor
small: PLAN = --inference --training --scale=small --processes=1 --dtypes=float32 --compilers=aot_eager,inductor --threads=1
RUN_OR_RESUME = $(RUN) runner.py $(if $(wildcard logs/$@/run.json),--resume=logs/$@,\
	--suites=tiny_gpt,timm_models,huggingface --devices=cpu --output-dir=logs/$@ $(PLAN))
$(INFERENCE) $(TRAINING): $(STAMP)
	$(RUN_OR_RESUME) || test $$? = 1
small: $(STAMP)
	$(RUN_OR_RESUME)

# docs/STUDIES.md; for CI: make study-a STUDY_FLAGS=--quick
study-a: $(STAMP)
	$(RUN) -m studies training-time $(STUDY_FLAGS)

study-b: $(STAMP)
	$(RUN) -m studies implementations $(STUDY_FLAGS)

study-c: $(STAMP)
	$(RUN) -m studies compile-modes $(STUDY_FLAGS)

# The same command goes on where it has stopped
study-f: $(STAMP)
	$(RUN) -m studies one-core --output-dir=logs/study-one-core $(STUDY_FLAGS)

# Tests start many processes. Each would compile all modules again where the environment forbids bytecode (containers)
test test-slow test-long: export PYTHONDONTWRITEBYTECODE :=

# A file's tests stay in one process, with what they share; the heaviest files begin (tests/conftest.py)
SIDE_BY_SIDE := -n logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder --max-worker-restart=1
test: $(STAMP)
	$(RUN) -m pytest $(SIDE_BY_SIDE)

# CI runs these after the quick ones; CONTRIBUTING.md says how long each of the three sets takes
test-slow: $(STAMP)
	$(RUN) -m pytest $(SIDE_BY_SIDE) -m slow

test-long: $(STAMP)
	$(RUN) -m pytest $(SIDE_BY_SIDE) -m long

# Lines that no test reaches, in the files that know devices (KNOWING of tests/unit/test_devices.py); 20 minutes
coverage-devices: $(STAMP)
	$(RUN) -m coverage run --source=harness,torchduet -m pytest -n0 tests/unit tests/worker
	$(RUN) -m coverage report --show-missing --include='harness/devices.py,harness/precision.py,torchduet/caller.py,harness/backends/*,harness/hardware/*'

# Nine minutes on a GPU that end with speedups: docs/GPU.md. make card DEVICES=cpu SECONDS=60 has the CPU stand in;
# where nothing can be installed: make card RUN=python3 STAMP=
DEVICES ?= cuda
SECONDS ?= 540
card: $(STAMP)
	$(RUN) -m tests.gpu.card --seconds=$(SECONDS) --devices=$(DEVICES)

# Every Python and torch that docs/VERSIONS.md names, each in an environment of its own; make versions ONLY=oldest,newest
versions: $(STAMP)
	$(RUN) -m tests.versions $(if $(ONLY),--only=$(ONLY))

# Writes anew what is frozen: the pages that the program writes, golden files, the ceilings of lines. Read the
# difference before you commit it. Numbers of committed records are another thing: tests/unit/test_oracle.py
FROZEN := house.py::test_the_lines_are_at_most_the_ceiling flags.py::test_the_list_of_flags
FROZEN := $(FROZEN) reports.py::test_texts_are_the_golden_ones scenes.py::test_a_scene_is_told_as_before
FROZEN := $(FROZEN) console.py::test_a_run_ends_with_its_answer html_report.py::test_pages_begin_as_before
golden: $(STAMP)
	$(RUN) -m docs.pages
	UPDATE_GOLDEN=1 $(RUN) -m pytest -q -n0 -m "" $(FROZEN:%=tests/unit/test_%)

# Measures the run that README quotes, and puts it in place of results/main-job-auto-cpu
SHOWN ?= logs/shown-$(shell date -u +%Y%m%dT%H%M%S)
shown: $(STAMP)
	$(RUN) runner.py --suites=tiny_gpt --training --dtypes=bfloat16 --output-dir=$(SHOWN)
	$(RUN) -m docs.pages --run $(SHOWN)

# Ten whole models, compiled by their repeated blocks and at once, each from empty caches: the table of docs/RESULTS.md.
# About 25 minutes on two cores, with nothing beside it; then make golden, and paste what python -m docs.numbers prints
REGIONAL ?= logs/regional-$(shell date -u +%Y%m%dT%H%M%S)
BLOCKS := DINOv3_ViT_small,DistilBertForMaskedLM,CLIP_ViT_B32,ConvNeXtV2_tiny,Swin_tiny,MobileBertForMaskedLM
BLOCKS := $(BLOCKS),vit_base_patch16_224,mixer_b16_224,beit_base_patch16_224,eva02_tiny_patch14_224
regional: $(STAMP)
	$(RUN) runner.py --suites=timm_models,huggingface --inference --float32 --devices=cpu --scale=full --batch-size=1 -n12 \
		--processes=1 --compile-runs=1 --phase-timeout=compile=300 --compilers=inductor_regional,inductor --only=$(BLOCKS) --output-dir=$(REGIONAL) || test $$? = 1
	mkdir -p results/regional-cpu
	for name in records.jsonl run.json; do gzip -9nc $(REGIONAL)/$$name > results/regional-cpu/$$name.gz; done

# What bitwise costs on twenty whole models, one text or image a step: the first table of docs/NUMERICS.md; and
# training runs of 300 steps of ten models: the second. An hour on two cores
NUMERICS ?= logs/numerics-$(shell date -u +%Y%m%dT%H%M%S)
CARDS := GPT_150k,NanoGPT_addition,TLTransformer_addition,HuggingFaceGPT_addition,lcnet_050,mobilenetv3_large_100
CARDS := $(CARDS),mnasnet_100,ghostnet_100,regnety_002,mobilevit_s,starnet_s1,efficientvit_b0,DistillGPT2,MiniLM_L6
CARDS := $(CARDS),DistilBertForMaskedLM,ElectraForQuestionAnswering,MobileBertForMaskedLM,GoogleFnet,DINOv3_ViT_small,T5Small
TRAINED := GPT_150k,NanoGPT_addition,TLTransformer_addition,MLP_addition,NanoGPT_shakespeare_64,MLP_shakespeare_16x64
TRAINED := $(TRAINED),lcnet_050,starnet_s1,MiniLM_L6,DistillGPT2
numerics: $(STAMP)
	$(RUN) runner.py --suites=tiny_gpt,timm_models,huggingface --inference --dtypes=bfloat16,float32 --devices=cpu -t1 \
		--scale=full --batch-size=1 -n15 --processes=1 --compilers=inductor_strict,inductor --numerics \
		--only=$(CARDS) --output-dir=$(NUMERICS)/numerics-cpu || test $$? = 1
	$(RUN) runner.py --suites=tiny_gpt,timm_models,huggingface --training --dtypes=float32,bfloat16 --devices=cpu -t1 \
		--scale=tiny --accuracy --compilers=aot_eager,inductor --trajectory=300 \
		--only=$(TRAINED) --output-dir=$(NUMERICS)/training-runs-cpu || test $$? = 1
	for run in numerics-cpu training-runs-cpu; do mkdir -p results/$$run; for name in records.jsonl run.json; do \
		gzip -9nc $(NUMERICS)/$$run/$$name > results/$$run/$$name.gz; done; done

lint: $(STAMP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m mypy --config-file= --strict --follow-imports=silent --ignore-missing-imports -c "$$(cat runner.py)"
	$(VENV)/bin/lint-imports
	$(RUN) -m sphinx --quiet --fail-on-warning --conf-dir docs . docs/_site

# README and docs/ as a site that is read from disk: open docs/_site/index.html
docs: $(STAMP)
	$(RUN) -m sphinx --quiet --fail-on-warning --conf-dir docs . docs/_site

format: $(STAMP)
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

check: lint test test-slow

clean:
	rm -rf $(VENV) build docs/_site *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
