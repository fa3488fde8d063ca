# SPDX-License-Identifier: GPL-2.0-only
#
# Front door. CMakeLists.txt is the build; everything lands in build/.
#   FIO=PATH           the fio to build for (default: the one on PATH)
#   FIO_SOURCE_DIR=DIR its source (default: setup/fio-source finds it)
#   SOURCES=DIR...     fio source trees for the matrix (default: those that
#                      setup/fio-source finds)
#   PREFIX= LIBDIR= DESTDIR=   where `make install` puts things
#   FUZZ_SECONDS=N     how long `make fuzz` goes on (default: 600)
#   ARGS=...           further arguments for the demo, the tests, the benchmark

PREFIX ?= /usr/local
LIBDIR ?= lib
# What a target needs from setup/packages.list.
NEEDS := build
BUILD = MAKEFLAGS=--no-print-directory CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc) \
	cmake --build
# With libFuzzer if there is a clang.
FUZZED = $$(command -v clang >/dev/null && echo env CC=clang) \
	cmake -S tests/fuzz -B build/fuzz >/dev/null && $(BUILD) build/fuzz

# Configured each time, so that packages which were installed since are found.
all: ## build the engines and the observer
	@setup/deps $(NEEDS)
	@FIO='$(FIO)' FIO_SOURCE_DIR='$(FIO_SOURCE_DIR)' setup/fio-source
	@cmake -S . -B build >/dev/null
	@$(BUILD) build --target product

demo: NEEDS := build run
demo: all ## measure and compare everything, shortened, in 4 minutes
	@FIO=$(CURDIR)/build/bin/fio exec scripts/durabench demo $(ARGS)

reproduce: NEEDS := build run lab
reproduce: all ## reproduce the published measurements with stock kernels, in guests
	@FIO=$(CURDIR)/build/bin/fio exec scripts/durabench lab reproduce $(ARGS)

test: NEEDS := build run lab test
test: all ## run all tests, with the sanitized build too
	@setup/fio-source another
	@$(BUILD) build
	@cmake -S . -B build/asan -DDURABENCH_SANITIZE=ON \
		-DFIO_SOURCE_DIR="$$(readlink build/fio/source)" >/dev/null
	@$(BUILD) build/asan
	@$(FUZZED)
	@FIO=$(CURDIR)/build/bin/fio tests/run $(ARGS)

test-lab: NEEDS := build run lab test
test-lab: all ## run every strategy on old and new kernels, in guests
	@FIO=$(CURDIR)/build/bin/fio tests/run tests/lab/matrix.py \
		tests/lab/passthrough.py tests/lab/guard.py \
		tests/lab/faults.py tests/load/races.py -n "$$(nproc)" --dist loadgroup $(ARGS)

soak: NEEDS := build run test
soak: all ## have 256 jobs write, sync and verify in all ways, for 20 minutes
	@FIO=$(CURDIR)/build/bin/fio tests/run tests/load/soak.py -s $(ARGS)

fuzz: NEEDS := build lab test
fuzz: ## feed the C parsers with mutants of their inputs, for 10 minutes
	@setup/deps $(NEEDS)
	@$(FUZZED)
	@FUZZ_SECONDS='$(FUZZ_SECONDS)' tests/fuzz/run $(ARGS)

matrix: NEEDS := build test
matrix: all ## build for several releases of fio, load each into each
	@FIO=$(CURDIR)/build/bin/fio COMPILERS='gcc clang' \
		SOURCES="$${SOURCES:-$$(setup/fio-source releases)}" \
		tests/run tests/matrix $(ARGS)

bench: NEEDS := build run bench
bench: all ## compare the engines' overhead with fio's own engines
	@$(BUILD) build --target bench_linear_table
	@FIO=$(CURDIR)/build/bin/fio tests/bench/run $(ARGS)

# What was built is installed, so that `sudo make install` builds for no
# other fio.
build/fio/record:
	@$(MAKE) --no-print-directory all

install: build/fio/record ## install to PREFIX
	@cmake -S . -B build -DCMAKE_INSTALL_PREFIX='$(PREFIX)' \
		-DCMAKE_INSTALL_LIBDIR='$(LIBDIR)' >/dev/null
	@$(BUILD) build --target product
	@DESTDIR='$(DESTDIR)' cmake --install build
	@awk -F= '{ is[$$1] = $$2 } END { if (is["fio"] != is["asked"]) \
		print "Run with FIO=" is["fio"] ": they are not for " \
			is["asked"] }' build/fio/record

deps: ## install the packages that all this needs
	@setup/deps

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p; s/^#   /  /p' $(MAKEFILE_LIST)

.PHONY: all demo reproduce test test-lab soak fuzz matrix bench install deps clean help
