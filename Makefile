# Two commands for newcomers: `make demo` and `make test`. Both install what is missing first.
PRESET ?= release
ifeq ($(PRESET),release)
BUILD := build
else
BUILD := build-$(PRESET)
endif
JOBS ?= $(shell nproc)

.PHONY: help demo test quick build examples setup setup-tests check fuzz reliability docs install clean

help:
	@echo "make demo     train LeNet on Fashion-MNIST with two workers and write a report"
	@echo "make test     build and run every test"
	@echo "make quick    after a change: what it touches, under two minutes (BASE=main: since then)"
	@echo "make build    build/yoke            (PRESET=dev|tsan|cuda for the others)"
	@echo "make examples build/example_*       the programs of examples/"
	@echo "make fuzz     a short run of every fuzz target"
	@echo "make reliability  faults in real jobs: what the user sees, how long, what is lost; docs/reliability.md"
	@echo "make docs     the documentation as a site: build/site/html/index.html"
	@echo "make install  cmake --install       (PREFIX=/usr/local)"

setup:
	@tools/setup

setup-tests:
	@tools/setup --tests

build: setup
	@cmake --preset $(PRESET) $(CMAKE_FLAGS) > $(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@grep -h -E '^-- (LibTorch|CUDA parts)' $(BUILD).configure.log | sed 's/^-- //' || true
	@cmake --build --preset $(PRESET) -j $(JOBS) --target yoke yoke-torch

examples: build
	@cmake --build --preset $(PRESET) -j $(JOBS) --target yoke_examples

# Two workers, then one for comparison, with a thread each: what the second worker brings.
demo: build
	@build/yoke train configs/lenet_fashion.toml --nproc 2 --train.threads 1 --out.dir runs/demo --resume never
	@build/yoke train configs/lenet_fashion.toml --train.threads 1 --steps 300 --train.evaluate false \
	  --out.dir runs/demo_one --resume never -q > /dev/null
	@build/yoke report runs/demo --baseline runs/demo_one
	@echo "Open runs/demo/report.html in a browser."

test:
	@tools/run_tests $(PRESET)

quick:
	@tools/quick $(BASE)

check:
	@tools/check_layers
	@tools/format --check
	@tools/check_words
	@tools/check_links

docs:
	@tools/setup --docs
	@tools/make_site

fuzz: setup-tests
	@tools/run_fuzzers $(SECONDS)

reliability: build
	@cmake --build --preset $(PRESET) -j $(JOBS) --target yoke_rank_program
	@YOKE_BIN=$(CURDIR)/$(BUILD)/yoke tools/reliability --write

install: build
	@cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

clean:
	rm -rf build build-* *.configure.log
