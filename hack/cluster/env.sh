# SPDX-License-Identifier: Apache-2.0
# Names, versions and paths of the local cluster; every script beside it sources this file.
# Everything slow to make is kept outside of the checkout, so a fresh clone finds it again.
# A shell that people type in may source it too, so it sets no option of the shell.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/hack/cluster
cache=${ELASTICJOB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticjob}
mkdir -p "$cache/bin"

# kind, helm and Kubernetes' own programs are pinned in programs/go.mod
kubernetes_version=$(grep -o 'k8s.io/kubernetes v[0-9.]*' "$here/programs/go.mod" | cut -d ' ' -f 2)
# KUBERNETES is another version of the cluster, and of the control plane for the tests without nodes. FAMILY is another
# family of its addresses. Such a cluster has a name and files of its own, and is there beside the usual one.
cluster_version=${KUBERNETES:-$kubernetes_version}
family=${FAMILY:-ipv4}
variant=
[ "$family" = ipv4 ] || variant+=-$family
[ "$cluster_version" = "$kubernetes_version" ] || variant+=-${cluster_version//./-}
cluster=elasticjob$variant
export ELASTICJOB_CLUSTER=$cluster # for the tests
node_image=kindest/node:$cluster_version
# Where node images are built here, Debian's containerd is 1.7: it mounts no image as a volume, and kubelets from 1.38 on
# refuse it. The nodes of newer releases have containerd 2. The usual cluster is spared the time of compiling it.
has_containerd_2() { [[ $cluster_version =~ ^v1\.(3[6-9]|[4-9][0-9])\. ]]; }
# those of controllers/, by the module of their name and its version in their go.mod
controller_module() { grep -Eo "[a-z0-9./]*/$1(/v[0-9]+)? v[0-9.]+" "$here/controllers/$1/go.mod"; } # NAME
controller_version() { controller_module "$1" | cut -d ' ' -f 2; } # NAME
chart_of() { echo "$cache/$1-$(controller_version "$1")"; } # NAME; where it is kept
base_image=debian:trixie-slim

# Our images carry the chart's version, so that a plain `helm install` finds them.
version=$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' "$root/charts/elasticjob/Chart.yaml")
image_name() { # NAME
  case $1 in
    operator | sidecar | torch-plugin) echo "elasticjob/$1:$version" ;;
    kueue | prometheus-adapter | jobset | trainer) echo "elasticjob/$1:$(controller_version "$1")" ;;
    *) echo "elasticjob/$1:dev" ;;
  esac
}

# Each torch by the name of its lock, the oldest first. The newest is the demo's.
torch_locks=(torch-2.6 torch-2.10 digits)
oldest_torch=${torch_locks[0]} newest_torch=digits
torch_version() { sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$root/locks/$1.txt"; } # LOCK
sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }
# The path holds the digest of the lock's lines: another lock is another directory, so that nobody ever sees
# one half replaced.
locked_dir() { echo "$cache/$1-$(grep -v '^ *#' "$root/locks/$2.txt" | sha256 | cut -c1-12)"; } # KIND LOCK
checkpoint_dir=$cache/checkpoints$variant

# a kubeconfig of its own: the user's current context is never touched
export KUBECONFIG=$cache/kubeconfig$variant
export PATH=$cache/bin:$PATH
# where the tests without a cluster find etcd and the control plane's programs
control_plane=$cache/kubebuilder
[ "$cluster_version" = "$kubernetes_version" ] || control_plane+=-$cluster_version
if [ -z "${KUBEBUILDER_ASSETS:-}" ] || [ -n "${KUBERNETES:-}" ] || [[ $KUBEBUILDER_ASSETS = "$cache"/kubebuilder* ]]; then
  export KUBEBUILDER_ASSETS=$control_plane
fi
export ELASTICJOB_STARTED=${ELASTICJOB_STARTED:-$(date +%s)}

say() { printf '%4ds  %s\n' "$(($(date +%s) - ELASTICJOB_STARTED))" "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Runs a command silently; shows its output only when it fails.
quietly() {
  local log; log=$(mktemp)
  if "$@" > "$log" 2>&1 < /dev/null; then rm -f "$log"; return; fi
  cat "$log" >&2; rm -f "$log"
  return 1
}

# go build in the working directory, without what only debuggers read. The flags are the same for all modules, so that
# what two of them share is compiled once.
go_build() { # ARGUMENT...
  CGO_ENABLED=0 quietly go build -trimpath -gcflags all=-dwarf=false "$@"
}

# The linker's flags for Kubernetes' programs, which then know their version.
linked() { # v1.35.4
  local package=k8s.io/component-base/version minor=${1#v1.}
  echo "-s -w -X $package.gitVersion=$1 -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
}

# Downloads many modules at once, where go build takes one for each core. Meanwhile the standard library is compiled.
go_download() { # PACKAGE...
  local compiles
  go_build std & compiles=$!
  CGO_ENABLED=0 GOMAXPROCS=16 quietly go list -deps "$@"
  wait $compiles
}

# Builds programs of programs/go.mod. All have their dependencies in Kubernetes' own versions, so that each package is
# compiled once for all of them.
build_programs() { # DIRECTORY PACKAGE...
  local to=$1; shift
  command -v go >/dev/null || fail "Go 1.25 or newer is needed to build $*; install it from go.dev"
  (
    cd "$here/programs" || exit
    go_download "$@"
    mkdir -p "$to"
    go_build -ldflags "$(linked "$kubernetes_version")" -o "$to/" "$@"
  )
}

# Builds programs of another release of Kubernetes, as its own build does it, but that the modules of its staging
# directory are those that were published.
build_kubernetes() { # v1.30.14 DIRECTORY PROGRAM...
  local version=$1 to=$2 module=k8s.io/kubernetes released work; shift 2
  [[ $version =~ ^v1\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$ ]] ||
    fail "KUBERNETES=$version is no release of Kubernetes; give one such as v1.30.14"
  command -v go >/dev/null || fail "Go is needed to build Kubernetes $version; install it from go.dev"
  work=$(mktemp -d)
  (cd "$work" && quietly go mod download "$module@$version") ||
    fail "there is no Kubernetes $version to be had; see go's reason above"
  released=$(cd "$work" && go list -m -f '{{.Dir}}' "$module@$version")
  # the samples are published too, but not of each release
  sed -e "/k8s.io.sample-/d" -e "s|=> ./staging/src/\(.*\)|=> \1 v0.${version#v1.}|" \
    "$released/go.mod" > "$work/go.mod"
  cat "$released/go.sum" > "$work/go.sum" # what is read-only there is written to here
  (
    export GOWORK=off GOFLAGS="${GOFLAGS:-} -mod=mod -modfile=$work/go.mod"
    cd "$released"
    go_download "${@/#/./cmd/}"
    mkdir -p "$to"
    go_build -ldflags "$(linked "$version")" -o "$to/" "${@/#/./cmd/}"
  )
  rm -rf "$work"
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
# whether it came from a registry; those made here have no digest
is_pulled() { [ "$(docker image inspect --format '{{len .RepoDigests}}' "$1" 2>/dev/null)" -gt 0 ] 2>/dev/null; }
image_id() { docker image inspect --format '{{.Id}}' "$1"; }
nodes() { docker ps --all --filter "label=io.x-k8s.kind.cluster=$cluster" --format '{{.Names}}' | sort; }
