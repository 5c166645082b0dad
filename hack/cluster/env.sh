# Names, versions and paths of the local cluster; every script beside it sources this file.
# Everything slow to make is kept outside of the checkout, so a fresh clone finds it again.
# A shell that people type in may source it too, so it sets no option of the shell.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/hack/cluster
cache=${ELASTICJOB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticjob}
mkdir -p "$cache/bin"

cluster=elasticjob
kubernetes_version=v1.35.4
kind_version=v0.33.0
helm_version=v3.22.0
node_image=kindest/node:$kubernetes_version
base_image=debian:trixie-slim

# Operator and sidecar carry the chart's version, so that a plain `helm install` finds them.
version=$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' "$root/charts/elasticjob/Chart.yaml")
image_name() { case $1 in operator | sidecar) echo "elasticjob/$1:$version" ;; *) echo "elasticjob/$1:dev" ;; esac; }

# Each torch by the name of its lock, the oldest first. The newest is the demo's.
torch_locks=(torch-2.6 torch-2.10 digits)
oldest_torch=${torch_locks[0]} newest_torch=digits
torch_version() { sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$root/locks/$1.txt"; } # LOCK
sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }
# The path holds the digest of the lock's lines: another lock is another directory, so that nobody ever sees
# one half replaced.
locked_dir() { echo "$cache/$1-$(grep -v '^ *#' "$root/locks/$2.txt" | sha256 | cut -c1-12)"; } # KIND LOCK
checkpoint_dir=$cache/checkpoints

# a kubeconfig of its own: the user's current context is never touched
export KUBECONFIG=$cache/kubeconfig
export PATH=$cache/bin:$PATH
# where the tests without a cluster find etcd and kube-apiserver
export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$cache/kubebuilder}
export ELASTICJOB_STARTED=${ELASTICJOB_STARTED:-$(date +%s)}

say() { printf '%4ds  %s\n' "$(($(date +%s) - ELASTICJOB_STARTED))" "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Runs a command silently; shows the end of its output only when it fails.
quietly() {
  local log; log=$(mktemp)
  if "$@" > "$log" 2>&1 < /dev/null; then rm -f "$log"; return; fi
  tail -30 "$log" >&2; rm -f "$log"
  return 1
}

need_go() {
  command -v go >/dev/null || fail "Go 1.25 or newer is needed to build $1; install it from go.dev, or put $1 on PATH"
}

# Builds an image. Engines without buildx use the classic builder, whose steps need the host's network
# where the bridge has no way out.
build_image() {
  if docker buildx version >/dev/null 2>&1; then
    quietly docker build "$@"
  else
    DOCKER_BUILDKIT=0 quietly docker build --network host "$@"
  fi
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }
image_id() { docker image inspect --format '{{.Id}}' "$1"; }
nodes() { docker ps --all --filter "label=io.x-k8s.kind.cluster=$cluster" --format '{{.Names}}' | sort; }
