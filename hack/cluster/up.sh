#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes all that a target of the Makefile needs and is not there: what can be done at once is done at once.
#   up.sh [cluster | images | install | demo | tests | all-tests]    the cluster when none is named; `tests` is `install`,
#                                                        and what only the cluster's tests use: the oldest torch,
#                                                        Prometheus, Kueue; `all-tests` has its adapter, JobSet, Kubeflow
#                                                        Trainer and the examples' libraries too
# The seconds of the steps below are those of a machine with two cores that makes all of them.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$here/steps.sh"

goal=${1:-cluster}
case $goal in
  cluster | images | install | demo | tests | all-tests) ;;
  *) fail "up.sh makes cluster, images, install, demo, tests or all-tests, not '$goal'" ;;
esac

# one at a time
if command -v flock >/dev/null; then
  exec 9> "$cache/up.lock"
  flock --nonblock 9 || { say "another set-up goes on; waiting for its end"; flock 9; }
  export ELASTICJOB_UP=1
fi

wants() { case " $* " in *" $goal "*) ;; *) return 1 ;; esac; } # GOAL...
torch_is_there() { [ -e "$(locked_dir torch "$1")/.complete" ]; }
examples_are_there() { [ -e "$(locked_dir torch "$newest_torch")/$(basename "$(locked_dir examples examples)")/.complete" ]; }

# what is there can only be asked of an engine that answers; a daemon must not inherit the lock
"$here/engine.sh" 9>&-
"$here/node-image.sh" pull

has_image "$base_image" ||
  step base 30 "" "$base_image, by debootstrap" "$here/node-image.sh" base
if ! has_image "$node_image"; then
  if is_pulled "$base_image"; then
    step node 60 "" "$node_image, pulled" "$here/node-image.sh"
  else
    step programs 300 "" "Kubernetes $cluster_version, compiled" "$here/node-image.sh" programs
    step packages 40 "base" "the nodes' Debian packages" "$here/node-image.sh" packages
    ! has_containerd_2 ||
      step containerd 90 "" "containerd 2, compiled" "$here/node-image.sh" containerd
    step node 30 "programs packages containerd" "$node_image, built" "$here/node-image.sh" node
  fi
fi
# after Kubernetes, with which it shares most of its packages; so does helm
"$here/tools.sh" --check kind ||
  step kind 10 "programs" "kind, compiled" "$here/tools.sh" kind
torch_is_there "$newest_torch" ||
  step torch 100 "base" "torch $(torch_version "$newest_torch") (5.6 GB)" "$here/torch.sh" "$newest_torch"
if wants images install demo tests all-tests; then
  has_image "$(image_name sidecar)" && seconds=5 || seconds=75
  step images "$seconds" "base" "ElasticJob's images" "$here/images.sh" build
fi
if wants tests all-tests; then
  torch_is_there "$oldest_torch" ||
    step oldest-torch 100 "torch" "torch $(torch_version "$oldest_torch") (5.3 GB)" "$here/torch.sh" "$oldest_torch"
  "$here/tools.sh" --check prometheus ||
    step prometheus 20 "base" "Prometheus, from Debian" "$here/tools.sh" prometheus
  "$here/tools.sh" --check kueue ||
    step kueue 240 "programs" "Kueue, compiled" "$here/tools.sh" kueue
fi
if wants all-tests; then
  "$here/tools.sh" --check prometheus-adapter ||
    step adapter 150 "kueue" "Prometheus' adapter, compiled" "$here/tools.sh" prometheus-adapter
  "$here/tools.sh" --check jobset ||
    step jobset 30 "kueue" "JobSet, compiled" "$here/tools.sh" jobset
  "$here/tools.sh" --check trainer ||
    step trainer 30 "jobset" "Kubeflow Trainer, compiled" "$here/tools.sh" trainer
  examples_are_there ||
    step examples 25 "torch" "the examples' libraries" "$here/torch.sh" examples
fi
wants cluster images || "$here/tools.sh" --check helm ||
  step helm 30 "programs kind" "helm, compiled" "$here/tools.sh" helm
"$here/cluster.sh" --check && seconds=5 || seconds=40
step cluster "$seconds" "node kind" "the cluster $cluster" "$here/cluster.sh"
if wants images install demo tests all-tests; then
  step load 15 "cluster images" "images into the nodes" "$here/images.sh" load
fi
if wants install demo tests all-tests; then
  step install 15 "load helm" "ElasticJob in the cluster" "$here/install.sh"
fi

[ "$goal" = demo ] && demo=120 || demo=0
run_steps "$demo"
