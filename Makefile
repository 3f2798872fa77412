# make demo: set up and run the main job.   make test: set up and run every test.
UV := $(shell command -v uv || echo build/uv/bin/uv)
RUN := $(UV) run --no-sync

setup: | $(UV)
	$(UV) sync -q --all-extras $(if $(wildcard build/editable/live),,--reinstall-package tuccl)

build/uv/bin/uv:
	python3 -m pip install -q --root-user-action=ignore --target build/uv uv

.PHONY: setup
