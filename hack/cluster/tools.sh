#!/usr/bin/env bash
# kind, helm and kubectl: those on PATH where their versions suit, else pinned ones in the cache; and etcd with
# kube-apiserver, for tests without a cluster.
#   tools.sh [kind] [helm] [kubectl] [apiserver]     the first three when none is named
set -euo pipefail
. "$(dirname "$0")/env.sh"

(($#)) || set -- kind helm kubectl

# at least MINOR of the same major version, read as "vMAJOR.MINOR" from the first version-like word
suits() { # MAJOR MINOR TEXT
  [[ $3 =~ v?([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] == $1 && BASH_REMATCH[2] >= $2))
}

install_go_program() { # NAME MODULE@VERSION
  need_go "$1"
  say "tools: building $1 (${2##*@})"
  GOBIN=$cache/bin CGO_ENABLED=0 quietly go install -trimpath -ldflags "-s -w" "$2"
}

need_kind() {
  local at_hand; at_hand=$(kind version 2>/dev/null || true)
  suits 0 31 "${at_hand#kind }" || install_go_program kind "sigs.k8s.io/kind@$kind_version"
}

need_helm() {
  local at_hand; at_hand=$(helm version --short 2>/dev/null || true)
  suits 3 17 "$at_hand" || suits 4 0 "$at_hand" || install_go_program helm "helm.sh/helm/v3/cmd/helm@$helm_version"
}

# kubectl may be one minor version away from the server; the node image holds the server's own
need_kubectl() {
  local minor container
  minor=$(kubectl version --client --output yaml 2>/dev/null | sed -n 's/^ *minor: "\{0,1\}\([0-9]*\).*/\1/p')
  ((${minor:-0} >= 34 && minor <= 36)) && return
  [ "$(uname -s)" = Linux ] || fail "kubectl 1.34, 1.35 or 1.36 is needed on PATH; install $kubernetes_version"
  "$here/node-image.sh"
  say "tools: kubectl ($kubernetes_version, from the node image)"
  container=$(docker create "$node_image")
  quietly docker cp "$container:/usr/bin/kubectl" "$cache/bin/kubectl"
  quietly docker rm "$container"
}

# etcd and kube-apiserver of a control plane without nodes, into $KUBEBUILDER_ASSETS
need_apiserver() {
  [ -x "$KUBEBUILDER_ASSETS/etcd" ] && [ -x "$KUBEBUILDER_ASSETS/kube-apiserver" ] && return
  [ "$KUBEBUILDER_ASSETS" = "$cache/kubebuilder" ] ||
    fail "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has no etcd and kube-apiserver; unset it, or put them there"
  [ "$(uname -s)" = Linux ] || fail "etcd and kube-apiserver are needed; install them with" \
    "'go run sigs.k8s.io/controller-runtime/tools/setup-envtest@latest use' and set KUBEBUILDER_ASSETS"
  "$here/engine.sh"
  "$here/node-image.sh"
  say "tools: etcd and kube-apiserver ($kubernetes_version, from the node image)"
  local new=$KUBEBUILDER_ASSETS.new
  mkdir -p "$KUBEBUILDER_ASSETS" "$new"
  # the node image keeps the control plane's images as containerd's blobs; their layers are tar archives
  quietly bash -o pipefail -c 'docker run --rm --network none --entrypoint bash "$0" -c "$1" | tar -xC "$2"' \
    "$node_image" '
      cd "$(mktemp -d)"
      programs="usr/local/bin/etcd usr/local/bin/kube-apiserver"
      for blob in /var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/*; do
        tar -xf "$blob" $programs 2>/dev/null
      done
      tar -cC usr/local/bin etcd kube-apiserver' "$new"
  mv "$new"/* "$KUBEBUILDER_ASSETS/"  # never half a program
  rmdir "$new"
}

for tool in "$@"; do "need_$tool"; done
