# make demo: set up and run the main job.   make test: set up and run every test.
# make cuda: the interpreter for GPUs, where nvcc is.   make gpu: all checks and figures that need a GPU.
# make mpi: Open MPI and MPICH, and what joins tuccl to them.   make torch: PyTorch for the tests.
# make docs: the documentation site.   make check-install: a short check of the installation.
# make ci: all that CI runs.   make check: format, lint, types, figures' age.   make figures: the pages of results/.   make soak, make fuzz: the slow ones.   make wheel: build a wheel (wheel-test: and try it).
export UV_PYTHON_PREFERENCE := only-system
export UV_PYTHON_DOWNLOADS := never
UV := $(shell command -v uv || echo build/uv/bin/uv)
RUN := $(UV) run --no-sync
PYTHON_FOLDERS := topology sketches synth runtime groups emulation torch_backend training tuning eval cli tests benchmarks msccl_ext/python
CPP_FILES = $(shell git ls-files 'msccl_ext/*.cpp' 'msccl_ext/*.h' 'msccl_ext/*.cu')
SANITIZED := build/cpp
THREADED := build/tsan
# What is fuzzed, and the folder of its corpus in msccl_ext/fuzz.
FUZZED := program=corpus plan=plans table=tables learned=learned agreement=words
FUZZ_SECONDS := 60
define newline


endef
fuzz = @mkdir -p build/fuzz-$1 && build/fuzz/fuzz_$1 -max_total_time=$(FUZZ_SECONDS) -max_len=65536 build/fuzz-$1 msccl_ext/fuzz/$2

demo: setup
	sh examples/demo.sh build/demo

# Stage by stage, each with its seconds.
ci:
	@for stage in check docs wheel-test test; do \
	  start=$$(date +%s); $(MAKE) $$stage || exit; echo "make $$stage: $$(($$(date +%s) - start)) s"; done

test: setup cpp mpi cells torch postgresql browser
	ctest --test-dir $(SANITIZED) -j 2 --output-on-failure --timeout 300
	ctest --test-dir $(THREADED) -j 2 --output-on-failure --timeout 300
	$(RUN) pytest -n 3 --dist worksteal --durations 25 --durations-min 10

check: setup
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	@$(RUN) clang-format --dry-run --Werror $(CPP_FILES)
	$(RUN) mypy
	$(RUN) mypy --config-file benchmarks/mypy.ini benchmarks/*.py
	$(RUN) python benchmarks/figures.py --check

# The pages of results/ that this machine can make, from a commit. ARGS: --list, --stale, --only NAME, --minutes N.
figures: setup
	$(RUN) python benchmarks/figures.py $(ARGS)

format: setup
	$(RUN) ruff check --fix . && $(RUN) ruff format .
	$(RUN) clang-format -i $(CPP_FILES)

soak: setup cpp mpi
	$(RUN) pytest -n 2 --dist worksteal -m slow --hypothesis-profile=explore
	$(SANITIZED)/cuda_model_test soak
	TUCCL_SOAK_S=120 $(SANITIZED)/plugin_agreement_test soak
	$(SANITIZED)/plugin_job_test soak
	TUCCL_SOAK_S=120 $(THREADED)/plugin_agreement_test soak

# Coverage-guided, with Debian's clang; `make test` replays and mutates the same corpus under g++.
fuzz:
	cmake -S msccl_ext -B build/fuzz -DCMAKE_CXX_COMPILER=clang++ -DTUCCL_LIBFUZZER=ON -DTUCCL_SANITIZE=address,undefined
	cmake --build build/fuzz -j 2 --target $(foreach f,$(FUZZED),fuzz_$(firstword $(subst =, ,$f)))
	$(foreach f,$(FUZZED),$(call fuzz,$(firstword $(subst =, ,$f)),$(lastword $(subst =, ,$f)))$(newline))

wheel: setup
	rm -rf dist
	$(UV) build -q --wheel --no-build-isolation --out-dir dist

# The wheel holds the native library and the data files, and works in an environment of its own.
wheel-test: wheel
	rm -rf build/wheel-env && $(UV) venv -q build/wheel-env
	$(UV) pip install -q --python build/wheel-env/bin/python dist/tuccl-*.whl
	sh scripts/check-install build/wheel-env/bin/tuccl
	cd build && set -e; for example in ../examples/*.py; do wheel-env/bin/python -W error $$example; done
	test -x build/wheel-env/lib/python3.*/site-packages/tuccl/worker/tuccl-worker

check-install: setup
	sh scripts/check-install .venv/bin/tuccl

# The pages of docs/ and results/, the help of every verb and the docstrings of the public names. Warnings are errors.
docs: setup
	$(UV) sync -q --inexact --all-extras --group docs
	$(RUN) sphinx-build -q -W --keep-going -c docs -d build/docs/trees . build/docs/html
	@echo "build/docs/html/index.html"

setup: | $(UV)
	@sh scripts/system-packages
	$(if $(wildcard build/native/live),,@echo "building the native library: about five minutes on two cores, the first time")
	$(UV) sync -q --inexact --all-extras $(if $(wildcard build/native/live),,--reinstall-package tuccl)

# Both MPIs for the tests, from Debian or, without its packages, from PyPI into .venv.
mpi: setup
	@sh scripts/mpi-packages $(UV)
	$(RUN) python -c "from tuccl.runtime.executors import find_mpis, glue_library; print(*map(glue_library, find_mpis()))"

# PyTorch (CPU) into .venv; `setup` leaves there what it did not put there.
torch: setup
	@sh scripts/torch-packages

# What the tests make containers and virtual machines by.
cells: setup
	@sh scripts/cell-packages

# A server for the tests of shared studies.
postgresql: setup
	@sh scripts/postgresql-packages

# The browser that the tests open reports in.
browser: setup
	@sh scripts/browser-packages

cpp: | $(UV)
	cmake -S msccl_ext -B $(SANITIZED) -DTUCCL_SANITIZE=address,undefined
	cmake --build $(SANITIZED) -j 2
	cmake -S msccl_ext -B $(THREADED) -DTUCCL_SANITIZE=thread
	cmake --build $(THREADED) -j 2

# libtuccl-cuda.so beside the native module; ARCHITECTURES=native is quicker where the GPU is.
ARCHITECTURES := all-major
cuda: setup
	@command -v nvcc >/dev/null || { echo "nvcc is missing: install the CUDA toolkit (12.8 or later)" >&2; exit 1; }
	cmake -S msccl_ext -B build/cuda -DCMAKE_BUILD_TYPE=Release -DTUCCL_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=$(ARCHITECTURES)
	cmake --build build/cuda -j 2 --target tuccl-cuda nccl-tuccl
	mkdir -p build/native/live/tuccl/cuda && cp build/cuda/libtuccl-cuda.so build/cuda/libnccl-tuccl.so build/native/live/tuccl/cuda/

gpu:
	$(MAKE) cuda ARCHITECTURES=native
	cmake --build build/cuda -j 2 --target comm_gpu_test raw-baselines && build/cuda/comm_gpu_test
	$(RUN) pytest -m gpu tests/gpu
	$(RUN) python benchmarks/gpu.py --write

build/uv/bin/uv:
	@sh scripts/system-packages
	python3 -m pip install -q --root-user-action=ignore --target build/uv uv

clean:
	rm -rf build dist .venv

.PHONY: ci demo figures test mpi cells cuda gpu torch postgresql browser check format soak fuzz wheel wheel-test check-install docs setup cpp clean
