# make         the program, build/temper
# make demo    builds it and trains a small model to add: a short supervised warm-up, then GRPO
# make test    builds, and runs the unit tests and the short end-to-end tests
# make test-long runs the long tests, which take as long as these; make test-all: both
# make install installs the program and what programs of your own build on, under PREFIX (/usr/local)
# make wheel   dist/temper_llm-*.whl, which takes torch from pip; make tarball: dist/temper-*.tar.gz, with all libraries
#              (make test-packages installs and runs both; with ARM=1 it only reads them)
# make format  formats the sources
# make docs    writes the tables of docs/ that `temper list` prints
# make bench   compares with TRL, Hugging Face and llama.cpp (make bench-setup installs them into .deps/)
#
# make ARM=1   the same for aarch64, in build-arm64/, on another machine with Debian: program, wheel and tarball, no tests.
# make CUDA=1  the same with a LibTorch that has CUDA (several GB into .deps/torch-cuda), in build-cuda/; needs no CUDA
# compiler
ifdef CUDA
BUILD ?= build-cuda
export TEMPER_CUDA = 1
endif
ifdef ARM
BUILD ?= build-arm64
export TEMPER_ARM = 1
CROSS = -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DTEMPER_TESTS=OFF
endif
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# Many tests wait for processes that they started.
TEST_JOBS ?= $(shell expr $(JOBS) + 1)

.PHONY: all demo test test-long test-all install wheel tarball test-packages format docs bench bench-setup setup clean
all: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target temper_main temper_plugins -j $(JOBS)

# Without the plugins, which it does not use: Parquet and grammars.
demo: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target temper_main -j $(JOBS)
	@$(BUILD)/temper demo --output demo

test: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS)
	@cd $(BUILD) && ctest -LE long --output-on-failure --timeout 300 -j $(TEST_JOBS)

test-long: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS)
	@cd $(BUILD) && ctest -L long --output-on-failure --timeout 300 -j $(TEST_JOBS)

test-all:
	@$(MAKE) test
	@$(MAKE) test-long

wheel tarball: all
	@python3 tools/package.py $@ --build $(BUILD)

ifdef ARM
test-packages: all
	@python3 tools/package.py wheel --build $(BUILD)
	@python3 tools/package.py tarball --build $(BUILD)
	@python3 tests/install/composition.py aarch64 dist/*aarch64.whl dist/*aarch64.tar.gz
else
test-packages: all
	@cmake --build $(BUILD) -j $(JOBS)
	@cd $(BUILD) && ctest -C packages -R install/packages --output-on-failure
endif

install: all
	@cmake --build $(BUILD) -j $(JOBS)
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@tools/format.sh

docs: all
	@tools/update_docs.py $(BUILD)/temper

bench: all
	@for part in sft preference distill storage generate speculative serve grpo; do echo "== $$part"; python3 bench/$$part.py; done

bench-setup:
	@python3 -c "import sys; sys.path.insert(0, 'bench'); import peers; peers.setup()"

setup:
	@tools/setup.sh

$(BUILD)/build.ninja: CMakeLists.txt $(wildcard cmake/*.cmake) tools/setup.sh tools/setup_arm.sh
	@tools/setup.sh
	@cmake -S . -B $(BUILD) -G Ninja -DTORCH_ROOT="$$(tools/setup.sh --torch-root)" $(CROSS) $(CMAKE_FLAGS)

clean:
	rm -rf $(BUILD)
