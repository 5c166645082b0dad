#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kind, helm and kubectl: those on PATH where their versions suit, else pinned ones in the cache; and etcd with
# kube-apiserver, kube-controller-manager and kube-scheduler, for tests without nodes; Prometheus and its adapter, for
# those of metrics and autoscaling; Kueue, for those of quotas; JobSet and Kubeflow Trainer, for those of the plug-in in
# others' jobs, and their charts alone, for the tests without nodes.
#   tools.sh [--check] [kind] [helm] [kubectl] [apiserver] [prometheus] [prometheus-adapter] [kueue] [jobset] [trainer]
#            [jobset-chart] [trainer-chart]
#                                                                             the first three when none is named
# With --check it makes none, and says by its exit code whether they are there. With KUBERNETES=v1.30.14 the control
# plane without nodes is compiled from that release; etcd stays the cluster's.
set -euo pipefail
. "$(dirname "$0")/env.sh"

# at least MINOR of the same major version, read as "vMAJOR.MINOR" from the first version-like word
suits() { # MAJOR MINOR TEXT
  [[ $3 =~ v?([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] == $1 && BASH_REMATCH[2] >= $2))
}

# for `make lint`; not one of the three
has_actionlint() { suits 1 7 "$(actionlint --version 2>/dev/null || true)"; }
# older ones write no configuration for kubeadm 1.36
has_kind() { local found; found=$(kind version 2>/dev/null || true); suits 0 33 "${found#kind }"; }
has_helm() { local found; found=$(helm version --short 2>/dev/null || true); suits 3 17 "$found" || suits 4 0 "$found"; }
# kubectl may be one minor version away from the server
has_kubectl() {
  local minor
  minor=$(kubectl version --client --output yaml 2>/dev/null | sed -n 's/^ *minor: "\{0,1\}\([0-9]*\).*/\1/p')
  ((${minor:-0} >= 34 && minor <= 36))
}
has_prometheus() { has_image "$(image_name prometheus)"; }
# one that was made with the program elsewhere does not count
has_controller() { [ "$(docker image inspect --format '{{.Config.Entrypoint}}' "$(image_name "$1")" 2>/dev/null)" = "[/manager]" ]; }
has_prometheus-adapter() { has_controller prometheus-adapter; }
has_kueue() { has_controller kueue && [ -d "$(chart_of kueue)" ]; }
has_jobset() { has_controller jobset && has_jobset-chart; }
has_jobset-chart() { [ -d "$(chart_of jobset)" ]; }
has_trainer() { has_controller trainer && has_trainer-chart; }
has_trainer-chart() { [ -d "$(chart_of trainer)" ]; }
of_control_plane=(kube-apiserver kube-controller-manager kube-scheduler)
has_apiserver() {
  local program
  for program in etcd "${of_control_plane[@]}"; do [ -x "$KUBEBUILDER_ASSETS/$program" ] || return 1; done
}

make_actionlint() { say "tools: building actionlint"; build_programs "$cache/bin" github.com/rhysd/actionlint/cmd/actionlint; }
make_kind() { say "tools: building kind"; build_programs "$cache/bin" sigs.k8s.io/kind; }
make_helm() { say "tools: building helm"; build_programs "$cache/bin" helm.sh/helm/v3/cmd/helm; }

make_kubectl() { # the node image holds the server's own
  local container
  # where another release has no node image, as for the control plane without nodes, none is built for kubectl alone
  if [ "$cluster_version" != "$kubernetes_version" ] && ! has_image "$node_image"; then
    env -u KUBERNETES "$0" kubectl
    return
  fi
  [ "$(uname -s)" = Linux ] || fail "kubectl 1.34, 1.35 or 1.36 is needed on PATH; install $kubernetes_version"
  "$here/node-image.sh"
  say "tools: kubectl ($cluster_version, from the node image)"
  container=$(docker create "$node_image")
  quietly docker cp "$container:/usr/bin/kubectl" "$cache/bin/kubectl"
  quietly docker rm "$container"
}

# The programs of a control plane without nodes, into $KUBEBUILDER_ASSETS
make_apiserver() {
  [ "$KUBEBUILDER_ASSETS" = "$control_plane" ] || fail "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS has not all of etcd," \
    "${of_control_plane[*]} of Kubernetes $cluster_version; unset it, or put them there"
  [ "$(uname -s)" = Linux ] || fail "etcd, ${of_control_plane[*]} are needed; build them from Kubernetes' source and" \
    "set KUBEBUILDER_ASSETS to their directory"
  if [ "$cluster_version" = "$kubernetes_version" ]; then take_control_plane; else compile_control_plane; fi
}

take_control_plane() {
  "$here/engine.sh"
  "$here/node-image.sh"
  say "tools: etcd, ${of_control_plane[*]} ($kubernetes_version, from the node image)"
  local new=$KUBEBUILDER_ASSETS.new
  mkdir -p "$KUBEBUILDER_ASSETS" "$new"
  # the node image keeps the control plane's images as containerd's blobs; their layers are tar archives
  quietly bash -o pipefail -c 'docker run --rm --network none --entrypoint bash "$0" -c "$1" - "${@:3}" | tar -xC "$2"' \
    "$node_image" '
      cd "$(mktemp -d)"
      for blob in /var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/*; do
        tar -xf "$blob" "${@/#/usr/local/bin/}" 2>/dev/null
      done
      tar -cC usr/local/bin .' "$new" etcd "${of_control_plane[@]}" kubernetes # to which they link if it was made here
  mv "$new"/* "$KUBEBUILDER_ASSETS/"  # never half a program
  rmdir "$new"
}

compile_control_plane() {
  [ -x "$cache/kubebuilder/etcd" ] || env -u KUBERNETES -u KUBEBUILDER_ASSETS "$0" apiserver
  say "tools: building ${of_control_plane[*]} ($cluster_version, some minutes)"
  local new=$KUBEBUILDER_ASSETS.new
  build_kubernetes "$cluster_version" "$new" "${of_control_plane[@]}"
  cp "$cache/kubebuilder/etcd" "$new/"
  rm -rf "$KUBEBUILDER_ASSETS"
  mv "$new" "$KUBEBUILDER_ASSETS"
}

# Debian's, in an image: its programs run wherever Docker does
make_prometheus() {
  "$here/engine.sh"
  "$here/node-image.sh" base
  say "tools: Prometheus and promtool (Debian's)"
  local context; context=$(mktemp -d)
  build_image --tag "$(image_name prometheus)" --file "$here/prometheus.Dockerfile" "$context"
  rmdir "$context"
}

# an image of it, from its Go module
make_controller() { # NAME PACKAGE
  command -v go >/dev/null || fail "Go 1.26 or newer is needed to build $1; install it from go.dev"
  "$here/engine.sh"
  say "tools: building $1"
  local context; context=$(mktemp -d)
  (
    cd "$here/controllers/$1" || exit
    # nothing is inlined: they are compiled in less time, and fast enough for tests
    go_build -gcflags "all=-dwarf=false -l" -gcflags std=-dwarf=false -ldflags "-s -w" -o "$context/controller" "$2"
  )
  build_image --tag "$(image_name "$1")" --file "$here/controllers/Dockerfile" "$context"
  rm -r "$context"
}

# A controller's chart, which is in its module. It calls the program as controllers/Dockerfile does.
take_chart() { # NAME PATH
  local module to; module=$(controller_module "$1") to=$(chart_of "$1")
  command -v go >/dev/null || fail "Go is needed for the chart of $1; install it from go.dev"
  module=$(cd "$here/controllers/$1" && go mod download "${module% *}" && go list -m -f '{{.Dir}}' "${module% *}")
  rm -rf "$to" "$to.new"  # what is there, or was left half-way: cp and mv would go into it
  cp -r "$module/charts/$2" "$to.new"
  chmod -R u+w "$to.new"  # the module's files are read-only
  grep -rq -- '- /manager$' "$to.new/templates" ||
    fail "the chart of $1 calls its program otherwise than controllers/Dockerfile does"
  mv "$to.new" "$to"
}

make_kueue() {
  make_controller kueue sigs.k8s.io/kueue/cmd/kueue
  take_chart kueue kueue
}

make_jobset() {
  make_controller jobset sigs.k8s.io/jobset
  make_jobset-chart
}
make_jobset-chart() { take_chart jobset jobset; }

make_trainer() {
  make_controller trainer github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager
  make_trainer-chart
}
make_trainer-chart() {
  take_chart trainer kubeflow-trainer
  # helm asks for the charts on which this one depends, also where they are not wanted; JobSet is installed by itself
  local file; file=$(chart_of trainer)/Chart.yaml
  sed '/^dependencies:/,/^[a-z]*:$/{/^dependencies:/d;/^[- ]/d;}' "$file" > "$file.new"
  mv "$file.new" "$file"
}

make_prometheus-adapter() { make_controller prometheus-adapter sigs.k8s.io/prometheus-adapter/cmd/adapter; }

check=; [ "${1:-}" != --check ] || { check=yes; shift; }
(($#)) || set -- kind helm kubectl
for tool in "$@"; do
  if "has_$tool"; then continue; fi
  [ -z "$check" ] || exit 1
  "make_$tool"
done
