# SPDX-License-Identifier: Apache-2.0
# Every target makes what it needs on a fresh machine. Slow things are kept in ~/.cache/elasticjob (ELASTICJOB_CACHE).
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

unexport PYTHONDONTWRITEBYTECODE # else each process compiles all it imports
export ELASTICJOB_STARTED := $(shell date +%s)
export PYTHONPATH := $(CURDIR)/core:$(CURDIR)/operator:$(CURDIR)/sidecar:$(CURDIR)/trainer:$(CURDIR)/cli

# `source` sets KUBECONFIG and PATH; `venv` puts the development environment first on PATH
cluster := source hack/cluster/env.sh;
venv := PATH="$$(hack/venv.sh)/bin:$$PATH";
select = $(if $(K),-k '$(K)')

# `##` says what a target does, `##*` marks those of every day, and each line `##@` begins a group of targets, or goes on
# with one.
.PHONY: help
help:  # the targets of every day and the names of the others (ALL=1 says what each does)
	@awk -v all='$(ALL)' -f hack/help.awk $(MAKEFILE_LIST)

##@ cluster
.PHONY: setup venv
setup: venv cluster  ##* the development environment and the cluster
venv:  ## the development environment (Python, from locks/dev.txt)
	@hack/venv.sh

.PHONY: cluster images install install-for-tests install-for-all-tests demo
cluster:  ## the local kind cluster: 1 control plane, 2 workers (KUBERNETES=v1.37.2, FAMILY=ipv6 or dual: another beside it, for each target of a cluster)
	@hack/cluster/up.sh cluster
images:  ## the cluster; build the images and load the changed ones into it
	@hack/cluster/up.sh images
install:  ## the same, and install or upgrade ElasticJob
	@hack/cluster/up.sh install
install-for-tests:  ## the same, and what only the cluster's tests use: the oldest torch, Prometheus, Kueue
	@hack/cluster/up.sh tests
install-for-all-tests:  ## the same, and what only make e2e-all uses: Prometheus' adapter, the examples' libraries
	@hack/cluster/up.sh all-tests
demo:  ##* train on the cluster, scale it, kill a worker, and watch
	@hack/cluster/up.sh demo
	@$(cluster) hack/demo/demo.sh

##@ tests
.PHONY: check coverage test flakes unit fuzz api plane contract overload explore explore-quick simulate simulate-quick mutants
.PHONY: e2e e2e-all faults faults-c10d
.PHONY: soak soak-silences upgrade-test guards lint bench bench-profile bench-c10d-cluster bench-restart bench-steady
.PHONY: bench-fleet bench-silence bench-joins bench-jobset bench-torchft bench-store bench-ranks bench-quick
.PHONY: lint-workflows lint-style lint-format lint-types lint-types-trainer lint-imports lint-crds lint-docs
.PHONY: lint-chart-readme lint-chart lint-manifest lint-licences
check:  ##* ruff, mypy and the unit tests of what changed, in a minute (SINCE=a commit, else the upstream; SECONDS=60, 0 is no limit)
	@$(venv) python -m hack.check --seconds $(or $(SECONDS),60) $(if $(SINCE),--since '$(SINCE)')
coverage:  ## unit tests under coverage.py; writes build/coverage.json, and for make check which test runs which function
	@$(venv) python -m hack.check.measure
test:  ##* everything that CI runs
	@hack/test.sh
unit:  ##* unit tests (K=expression selects)
	@$(venv) pytest tests/unit $(if $(K),$(select),-n 3)
fuzz:  ## new inputs for all that reads what others wrote, EXAMPLES=2000 of each kind (K=expression selects)
	@$(venv) EXAMPLES=$(or $(EXAMPLES),2000) pytest $$(find tests/unit -name 'test_fuzz_*.py') --hypothesis-profile=fuzz $(select)
api:  ## tests against an API server without a cluster (K=expression selects, KUBERNETES=v1.30.14 is another version of it)
	@hack/cluster/tools.sh kubectl helm apiserver jobset-chart trainer-chart
	@$(cluster) $(venv) pytest tests/api $(if $(K),$(select),-n 4 --dist loadfile)
contract:  ## what torch promises, with the oldest, a middle and the newest torch (TORCH="2.6.0 2.10.0" takes these; K=expression)
	@hack/contract.sh $(select)
overload:  ## seven torchruns of the kubernetes backend with 0.4 and then 0.12 CPUs together: nobody is lost (RUNS=3, STALLS="0.4:60 0.12:90" is CPUs:SECONDS)
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests python -m contract.overload --runs $(or $(RUNS),3) $(if $(STALLS),--stalls '$(STALLS)')
explore:  ## every state of two models of the rendezvous, deep; a quarter of an hour or more
	@$(venv) PYTHONPATH=$$PYTHONPATH:tests python -m model.explore
explore-quick:  ## the same to a depth that takes some seconds
	@$(venv) PYTHONPATH=$$PYTHONPATH:tests python -m model.explore --quick
simulate:  ## lives of jobs over a simulated cluster, for SECONDS=60 (FROM=0 is the first seed; SEED=7 shows that one)
	@$(venv) PYTHONPATH=$$PYTHONPATH:tests python -m simulation $(if $(SEED),--seed $(SEED) --verbose,--seconds $(or $(SECONDS),60) --from $(or $(FROM),0))
simulate-quick:  ## the first 120 of them, in which everything that can go wrong has to happen
	@$(venv) PYTHONHASHSEED=0 PYTHONPATH=$$PYTHONPATH:tests python -m simulation --seeds 120 --complete
mutants:  ## seeded mistakes in the rendezvous and in what carries it out, each of which must be caught (K=words of their sentences)
	@$(venv) PYTHONPATH=$$PYTHONPATH:tests python -m model.mutants $(K)
plane:  ##* the cluster's tests on a control plane with stand-in kubelets, without a cluster (K=expression selects among all, PROCESSES=4)
	@hack/cluster/tools.sh kubectl helm apiserver
	@$(cluster) $(venv) ELASTICJOB_PART=plane pytest tests/e2e --stand-in -n $(or $(PROCESSES),4) --dist loadgroup --no-loadscope-reorder \
	$(or $(select),-m 'not extended')
on_the_cluster = $(cluster) $(venv) pytest tests/e2e -n $(or $(PROCESSES),3) --dist loadgroup --no-loadscope-reorder \
	$(if $(RECORD),--record-durations) $(select)
e2e: $(if $(K),install-for-all-tests,install-for-tests)  ##* of each feature that needs a cluster the test that proves it (K=expression selects among all, PROCESSES=3)
	@$(on_the_cluster) $(if $(K),,-m 'real and not extended')
e2e-all: install-for-all-tests  ## all tests on the cluster: variants, faults, examples, Kueue, Prometheus (RECORD=1 notes what each takes)
	@$(on_the_cluster)
flakes:  ## tests N=10 times beside two busy processes: which failed, how often, where (LEVEL=unit, K=expression, LATE=seed: late at random)
	@$(venv) $(if $(LATE),ELASTICJOB_LATE='$(LATE)') PYTHONPATH=$$PYTHONPATH:tests python -m support.flakes $(or $(LEVEL),unit) $(or $(N),10) $(if $(K),'$(K)')
faults: install  ## each fault at its full length, told in time; writes build/faults.json (K=expression selects)
	@$(cluster) $(venv) pytest tests/e2e/faults --whole --faults-json build/faults.json $(select)
soak: install  ## random faults for SECONDS=600, then the history's invariants and the memory (SEED=0)
	@$(cluster) $(venv) pytest tests/e2e/soak.py --capture=no --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0)
soak-silences: install  ## stops, cut links and an API server that is away for SECONDS=600: nobody may be lost by them (SEED=0)
	@$(cluster) $(venv) pytest tests/e2e/soak_silences.py --capture=no --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0)
upgrade-test:  ## an older version, upgraded, rolled back and removed under a job that trains (FROM=a git ref; else the newest tag)
	@$(venv) hack/upgrade-test.sh $(FROM)
faults-c10d: images  ## some of the faults for plain torchrun with c10d (K=part of an event's name)
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests python bench/faults_c10d.py $(if $(K),-k '$(K)')
##@ benchmarks
# what stands for other machines takes no time from the API server and the operator
with_torch := CLUSTER=1 hack/with-torch.sh digits
rounds := BESIDE='python -m rounds.starter' $(with_torch) python -m rounds
bench: install  ## a round's seconds beside torch's c10d and the API server's floor (SIZES="2 8", RUNS=3, SHARES=equal: nothing gives way)
	@$(if $(filter-out equal,$(SHARES)),$(error SHARES=$(SHARES) is unknown; give SHARES=equal or leave it out))
	@$(if $(SHARES),$(with_torch) python -m rounds --equal-shares,$(rounds)) --runs $(or $(RUNS),3) $(if $(SIZES),--sizes $(SIZES))
bench-profile: install  ## where the time of a round goes, step by step (SIZES="8 128")
	@$(rounds).profile $(if $(SIZES),--sizes $(SIZES))
bench-steady: install  ## what jobs cost while nothing happens: requests, CPU, memory; writes build/bench-steady.json (SIZES="8 128")
	@$(rounds).steady $(if $(SIZES),--sizes $(SIZES))
	@$(venv) PYTHONPATH=$$PYTHONPATH:tests python bench/lines.py
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests python bench/sidecar_container.py
bench-fleet:  ## one operator with up to 20,000 workers: memory, take-overs, requests; no cluster; writes build/bench-fleet.json (SIZES="50x20", SAMPLES=1: what each part of the operator takes at rest)
	@hack/cluster/tools.sh apiserver
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests:bench python -m fleet $(if $(SIZES),--sizes $(SIZES)) $(if $(SAMPLES),--samples)
bench-silence: install  ## until all are told of a worker that stands still, by size (SIZES="8 1024", RUNS=3)
	@$(rounds).silence --runs $(or $(RUNS),3) $(if $(SIZES),--sizes $(SIZES))
bench-c10d-cluster: install  ## digits as an ElasticJob and with c10d, from kubectl to the new group's training; an hour (RUNS=3, K=part of an event's name)
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests:bench python -m cluster_rounds --runs $(or $(RUNS),3) $(if $(K),-k '$(K)')
bench-restart: install  ## digits, and examples of frameworks, from a change of the group to its first step: live, warm, fresh, with c10d (RUNS=5, C10D_RUNS=1, SIDES="live warm", K=part of "side cause")
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests:bench python -m restarts --runs $(or $(RUNS),5) --c10d-runs $(or $(C10D_RUNS),1) $(if $(SIDES),--sides $(SIDES)) $(if $(K),-k '$(K)')
bench-torchft:  ## torchft on this machine: a replica killed, and another in its place; writes build/bench-torchft.json (RUNS=3)
	@$(venv) python -m pip install --quiet --upgrade --target build/torchft --python-version 3.13 --only-binary=:all: --no-deps --requirement bench/torchft_requirements.txt
	@hack/with-torch.sh digits sh -c 'PYTHONPATH=$$PWD/build/torchft:$$PWD/examples/digits:$$PYTHONPATH RUST_LOG=error exec python bench/torchft_kill.py --runs $(or $(RUNS),3)'
bench-jobset: images  ## a JobSet that loses its first pod: with c10d and with the kubernetes backend; writes build/bench-jobset.json (DEADLINE=240)
	@hack/cluster/tools.sh helm jobset
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests:bench python bench/jobset.py --deadline $(or $(DEADLINE),240)
bench-joins:  ## what a join costs the API server, by how it is written; no cluster
	@hack/cluster/tools.sh apiserver
	@$(cluster) $(venv) PYTHONPATH=$$PYTHONPATH:tests:bench python bench/joins.py
bench-ranks:  ## ring neighbours in other racks after losses, with and without rankOrder; no cluster (WORKERS=1024, LOSSES=300)
	@$(venv) PYTHONPATH=$$PYTHONPATH:bench python bench/ranks.py --workers $(or $(WORKERS),1024) --losses $(or $(LOSSES),300)
bench-store:  ## calls of the round's store through the tunnel beside a direct TCPStore; writes build/bench-store.json
	@hack/with-torch.sh digits python bench/store.py --json build/bench-store.json
bench-quick:  ## each of them at its smallest, one run: whether it still starts and ends (K="fleet store": words of their names)
	@hack/bench-quick.sh $(K)
##@ tests
# each of its checks is a target that a test breaks on purpose: tests/guards
lint: lint-workflows lint-style lint-format lint-types lint-types-trainer lint-imports  ##* style, types, import rules, chart, generated files, workflows
lint: lint-crds lint-docs lint-chart-readme site lint-chart lint-manifest lint-licences
lint-workflows:
	@hack/cluster/tools.sh actionlint
	@$(cluster) actionlint -shellcheck= -pyflakes= .github/workflows/*
lint-style:
	@$(venv) ruff check .
lint-format:
	@$(venv) ruff format --check .
lint-types:
	@$(venv) mypy core operator sidecar cli
lint-types-trainer:  # in other people's images there may be an older Python, or a newer one
	@$(venv) mypy --python-version 3.10 trainer
	@$(venv) mypy --python-version 3.14 trainer
lint-imports:
	@$(venv) lint-imports --no-logo
lint-crds:
	@$(venv) python hack/crds.py --check
lint-docs:
	@$(venv) PYTHONPATH=$$PYTHONPATH:tests python hack/docs.py --check
lint-chart-readme:
	@$(venv) python hack/chart_readme.py --check
lint-chart:
	@hack/cluster/tools.sh helm
	@$(cluster) helm lint --strict --quiet --kube-version $$kubernetes_version charts/elasticjob
lint-licences:
	@$(venv) python hack/spdx.py --check
lint-manifest:
	@hack/cluster/tools.sh helm
	@$(cluster) $(venv) python hack/plain_manifest.py --check
guards:  ## each step of lint and release, and the site, with what it guards broken on purpose (K=expression selects)
	@hack/cluster/tools.sh actionlint helm
	@$(venv) pytest tests/guards -n 2 $(select)

##@ documents
.PHONY: crds manifest docs site format licences lock
crds:  ## write crds/ from the API types
	@$(venv) python hack/crds.py
manifest:  ## write config/, which installs without Helm, from the chart
	@hack/cluster/tools.sh helm
	@$(cluster) $(venv) python hack/plain_manifest.py
docs:  ##* write what pages of docs/ and the chart's README repeat from code and values.yaml
	@$(venv) PYTHONPATH=$$PYTHONPATH:tests python hack/docs.py
	@$(venv) python hack/chart_readme.py
site:  ## docs/ as a site in build/site; fails on a link that leads nowhere, and on a page that the navigation lacks
	@$(cluster) venv=$$(hack/venv.sh docs); NO_MKDOCS_2_WARNING=1 quietly "$$venv/bin/mkdocs" build
##@ tests
format:  ##* reformat the Python sources
	@$(venv) ruff check --fix --exit-zero --quiet .; ruff format .
licences:  ## the licence's line at the head of each source file
	@$(venv) python hack/spdx.py
##@ release
lock:  ## write locks/ anew (UPGRADE=1 takes the newest versions)
	@hack/lock.sh $(if $(UPGRADE),--upgrade)

.PHONY: release release-check release-wheels release-krew release-chart release-sbom release-site
release: release-check release-wheels release-krew release-chart release-sbom release-site  ## what a release is made of, into build/release, each tried; publishes nothing
release-check:  ## whether all files name the same version, CHANGELOG.md has notes (TAG=v0.1.0 is that of the release), and pages name the Kubernetes, torch and Python that are tested
	@$(venv) python hack/release/check_version.py $(TAG)
	@$(venv) python hack/release/check_tested.py
release-wheels:  ## the wheels, each installed into a clean environment and called
	@hack/release/wheels.sh build/release/wheels
	@$(venv) python hack/release/try_wheels.py build/release/wheels
release-krew: release-wheels  ## the command line tool's archives for krew and their manifest; this machine's is called
	@hack/release/krew.sh build/release/krew build/release/wheels
release-chart:  ## the chart's package, pushed to a registry and pulled (docker-registry and skopeo, Debian's)
	@hack/release/chart.sh build/release/chart
	@hack/release/try_chart.sh build/release/chart/elasticjob-*.tgz build/release/chart-layout
release-sbom:  ## SBOMs of what the images install from locks/
	@hack/release/sbom.sh build/release/sbom
release-site:  ## the site of a release beside those of others, published in a copy of the checkout
	@hack/release/try_site.sh

##@ cluster
.PHONY: clean-cluster clean-all
clean-cluster:  ## delete the cluster and its checkpoints; what is slow to make stays
	@hack/cluster/down.sh
clean-all:  ## delete the caches and images too (making them again takes minutes)
	@hack/cluster/down.sh all
