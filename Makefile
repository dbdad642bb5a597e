# `make demo` and `make test` set everything up on a fresh machine. A Python that already has torch (a GPU
# machine, possibly without a network) is used as it is, and only missing packages are installed; otherwise a
# .venv is made. Choose another Python with `make test PYTHON=python3.12`.

# The only place that names the torch to install if there is none.
TORCH ?= torch==2.13.0
PYTHON ?= python3

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test test-gpu sanitize sanitize-cpu gpu-status bench readme-figures lint wheel cuda emulate upstream clean setup fuzz help

# More than 8 processes share a GPU badly. Processes steal tests from slow ones, because the durations of
# tests differ a thousandfold.
GPUS := $(words $(shell nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null || true))
IN_PARALLEL := --numprocesses=auto --maxprocesses=$(shell echo $$(( 8 * ($(GPUS) > 1 ? $(GPUS) : 1) ))) --dist=worksteal

HAS_TORCH := $(shell $(PYTHON) -c 'import importlib.util as u; print(int(u.find_spec("torch") is not None))' 2>/dev/null)
ifeq ($(HAS_TORCH),1)
  PY := $(PYTHON)
else
  PY := .venv/bin/python
endif

# Stamps are per interpreter, so that another Python is set up separately.
STAMPS := .stamps/$(subst /,_,$(shell $(PYTHON) -c 'import sys; print(sys.prefix + "-" + sys.version.split()[0])' 2>/dev/null))
SOURCES := $(shell find csrc include cmake CMakeLists.txt pyproject.toml -type f 2>/dev/null)

help:
	@echo "make setup     install what is missing and compile the kernels, which the other commands do by themselves"
	@echo "make demo      compare real photographs with JPEG copies, then train a small net"
	@echo "make test      all tests on this machine's devices"
	@echo "make test-gpu  all tests; fails without a GPU; writes tests/gpu_verified.json"
	@echo "make sanitize  every CUDA kernel under compute-sanitizer: memory errors, then races in shared memory"
	@echo "make sanitize-cpu  the CPU kernels under the address and undefined-behavior sanitizers"
	@echo "make gpu-status  the sources that have changed since the last recorded run on a GPU"
	@echo "make fuzz      the tests that draw their inputs, with many more of them"
	@echo "make bench     our figures beside every peer's"
	@echo "make readme-figures  tables and plots of README and docs/figures.md, from benchmarks/results"
	@echo "make lint      formatting, types and spelling"
	@echo "make cuda      the CUDA libraries for every supported GPU, also without one"
	@echo "make emulate   tests of the CUDA kernels on this CPU (tools/cuda_on_cpu)"
	@echo "make upstream  TorchMetrics' own tests with our names: CHECKOUT=a clone of it"
	@echo "make wheel     a wheel in dist/"
	@echo "make clean     remove what these commands made"

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$@ -m pip install --quiet --upgrade pip

$(STAMPS)/torch: $(if $(filter .venv/bin/python,$(PY)),.venv/bin/python)
	$(PY) -c 'import torch' 2>/dev/null || $(PY) -m pip install '$(TORCH)'
	@mkdir -p $(@D) && touch $@

# Installs a target's requirements only if some are missing, so that otherwise no network is needed.
$(STAMPS)/needs-%: tools/needs.py pyproject.toml $(STAMPS)/torch
	$(PY) tools/needs.py $*
	@mkdir -p $(@D) && touch $@

$(STAMPS)/installed: $(SOURCES) $(STAMPS)/needs-build
	@echo "compiling the kernels, which takes some minutes"
	$(PY) -m pip install --quiet --no-build-isolation --no-deps --editable .
	@mkdir -p $(@D) && touch $@

setup: $(STAMPS)/installed

demo: $(STAMPS)/installed $(STAMPS)/needs-demo
	$(PY) examples/demo.py

test: $(STAMPS)/installed $(STAMPS)/needs-test
	$(PY) -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)

test-gpu: $(STAMPS)/installed $(STAMPS)/needs-test
	SYNCFREE_REQUIRE_CUDA=1 $(PY) -m pytest $(IN_PARALLEL) --gpu-record=tests/gpu_verified.json $(PYTEST_ARGS)

# Every kernel, at few sizes, because the sanitizers take a hundred times as long.
SANITIZED := tests/test_calls.py::test_cuda_agrees_with_cpu tests/test_accuracy_errors.py \
  $(addprefix tests/test_accuracy_states.py::,test_many_classes test_many_samples) \
  tests/test_ssim_laws_of_large_images.py::test_bits_do_not_depend_on_company_in_a_crowd \
  $(addprefix tests/test_gradients.py::,test_value test_map_and_value test_volumes) \
  $(addprefix tests/test_gradients_of_frames.py::,test_equal_frames_have_none test_a_bad_pixel_spoils_its_surroundings_only) \
  tests/test_losses_of_frames.py::test_a_bad_pixel_spoils_the_value tests/test_scale.py::test_factors_of_any_type \
  tests/test_psnr_gradients.py tests/test_ms_ssim_gradients.py::test_value -k cuda

SANITIZERS ?= memcheck racecheck

# Without torch's caching allocator, in whose blocks an access past a tensor's end would go unnoticed; but
# the tests of early launches with it, because returning memory to the driver waits for the GPU.
sanitize: $(STAMPS)/installed $(STAMPS)/needs-test
	set -e; for tool in $(SANITIZERS); do \
	  export SYNCFREE_REQUIRE_CUDA=1; \
	  sanitized="compute-sanitizer --tool $$tool --error-exitcode 9 $(PY) -m pytest -p no:cacheprovider"; \
	  PYTORCH_NO_CUDA_MEMORY_CACHING=1 $$sanitized $(SANITIZED) $(PYTEST_ARGS); \
	  $$sanitized tests/test_early_launches.py $(PYTEST_ARGS); \
	done

# Tests of values and arguments; not those that start processes or measure memory. ASan has to be loaded
# before Python, and so does the C++ library, whose exceptions it intercepts.
sanitize-cpu: PYTEST_ARGS ?= -k "not instruction_set" $(wildcard $(addprefix tests/test_,psnr*.py ssim*.py ms_ssim*.py accuracy*.py image_quality*.py gradient*.py losses*.py)) \
  $(addprefix tests/test_,fuzz.py safe_divide.py scale.py presets.py)
sanitize-cpu: $(STAMPS)/installed $(STAMPS)/needs-test
	$(PY) -m cmake -S . -B build/sanitize -G Ninja -DSYNCFREE_CUDA=OFF -DCMAKE_BUILD_TYPE=Release \
	  -DPython_EXECUTABLE=$$($(PY) -c 'import sys; print(sys.executable)') -Dpybind11_DIR=$$($(PY) -m pybind11 --cmakedir) \
	  -DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -g1"
	$(PY) -m cmake --build build/sanitize --target syncfree_ops_cpu
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	  REPLACED_OPS=build/sanitize/libsyncfree_ops_cpu.so PYTHONPATH=tools$${PYTHONPATH:+:$$PYTHONPATH} \
	  $(PY) -m pytest -p replaced_ops $(IN_PARALLEL) $(PYTEST_ARGS)

# 2,500 random inputs for each of the tests that draw their inputs.
fuzz: $(STAMPS)/installed $(STAMPS)/needs-test
	$(PY) -m pytest $(IN_PARALLEL) -m fuzz --hypothesis-profile=fuzz $(PYTEST_ARGS)

gpu-status:
	@$(PYTHON) tools/gpu_status.py

bench: $(STAMPS)/installed $(STAMPS)/needs-test
	$(PY) -m pytest benchmarks $(PYTEST_ARGS)

readme-figures: $(STAMPS)/installed $(STAMPS)/needs-demo
	$(PY) tools/readme_figures.py

lint: $(STAMPS)/needs-lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("scripts"))')/clang-format --dry-run --Werror $$(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')
	$(PY) -m mypy
	$(PY) -m codespell_lib

cuda: $(STAMPS)/needs-build
	$(PY) -m cmake -S . -B build/cuda -G Ninja -DSYNCFREE_CUDA=ON -DPython_EXECUTABLE=$$($(PY) -c 'import sys; print(sys.executable)') \
	  -Dpybind11_DIR=$$($(PY) -m pybind11 --cmakedir)
	$(PY) -m cmake --build build/cuda --target syncfree_ops_cuda syncfree_core

# A selection that takes a minute or two: emulated, the whole suite takes hours. The tests of instruction
# sets are left out, because they run the CPU kernels in processes of their own.
emulate: PYTEST_ARGS ?= -k "not instruction_set" tests/test_safe_divide.py tests/test_psnr.py tests/test_psnr_from_errors.py tests/test_psnr_gradients.py \
  tests/test_accuracy_ops.py tests/test_ms_ssim.py::test_mixed_dtypes $(addprefix tests/test_gradients.py::test_,value contrast) \
  $(addprefix tests/test_ssim.py::test_,windows mixed_dtypes pixels_far_outside_the_range)
emulate: $(STAMPS)/installed $(STAMPS)/needs-test
	$(PY) -m cmake -S tools/cuda_on_cpu -B build/emulate -G Ninja -DPython_EXECUTABLE=$$($(PY) -c 'import sys; print(sys.executable)')
	$(PY) -m cmake --build build/emulate --parallel 1
	CUDA_ON_CPU=1 REPLACED_OPS=build/emulate/libsyncfree_ops_cpu.so PYTHONPATH=tools$${PYTHONPATH:+:$$PYTHONPATH} \
	  $(PY) -m pytest -p replaced_ops $(PYTEST_ARGS)

upstream: $(STAMPS)/installed $(STAMPS)/needs-test
	$(PY) tools/upstream.py $(CHECKOUT) $(PYTEST_ARGS)

wheel: $(STAMPS)/needs-build
	$(PY) -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .

clean:
	rm -rf .venv .stamps build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
