#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a container of the pods' base image, with one torch and the development environment in
# one interpreter: what the contract tests and the benchmarks need, whatever Python this machine has.
#   with-torch.sh LOCK COMMAND...     LOCK: digits, torch-2.6, ...
#
# It has its own loopback and no other network; with CLUSTER=1 it has the host's, and the local cluster's kubeconfig.
# Names are not looked up anywhere: torch asks for the name of each address that it connects to, and a name server that
# does not answer would cost it 10 seconds.
# With BESIDE, a command, a second container like it runs that command, and has the least share of the processors. The two
# share process ids and /tmp. The command in it has to end when the other one does.
# The checkout is at its own path.
# ELASTICJOB_DEV_PYTHON is an interpreter without torch, for processes that stand for the cluster's side.
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

lock=$1; shift
"$here/engine.sh"
"$here/tools.sh" apiserver
"$here/torch.sh" dev "$lock"
build_image --target venv -t elasticjob/torch-builder:dev -f "$here/digits.Dockerfile" "$root"

dev=$(locked_dir dev dev)
path=$root/core:$root/operator:$root/sidecar:$root/trainer:$root/tests:$root/bench
path+=$(cd "$dev" && printf ':/opt/dev/%s' lib/python3*/site-packages)
mkdir -p "$root/build"
reach=(--network none --hostname pod --add-host pod:127.0.0.7) # as in a pod, its own address is not the store's
if [ -n "${CLUSTER:-}" ]; then
  # at its node's own address: the engine's proxy on this machine's loopback ends at a few thousand connections
  field=.IPAddress
  [ "$family" != ipv6 ] || field='printf "[%s]" .GlobalIPv6Address'
  address=$(docker inspect --format "{{with .NetworkSettings.Networks.kind}}{{$field}}{{end}}" "$cluster-control-plane")
  direct=$KUBECONFIG.direct
  (umask 077; sed "s|server: .*|server: https://$address:6443|" "$KUBECONFIG" > "$direct")
  reach=(--network host --dns 127.0.0.1 --volume "$direct:/opt/kubeconfig:ro" --env KUBECONFIG=/opt/kubeconfig)
fi
as=(--rm --workdir "$root" "${reach[@]}" --user "$(id -u):$(id -g)"
  --env USER=elasticjob --env HOME=/tmp --env TMPDIR=/tmp
  --volume "$root:$root" --volume "$(locked_dir torch "$lock"):/opt/torch:ro" --volume "$dev:/opt/dev:ro"
  --volume "$KUBEBUILDER_ASSETS:/opt/kubebuilder:ro" --env KUBEBUILDER_ASSETS=/opt/kubebuilder
  --env PATH="/opt/torch/bin:/usr/local/bin:/usr/bin:/bin" --env PYTHONPATH="$path"
  --env ELASTICJOB_DEV_PYTHON=/opt/dev/bin/python
  --env ELASTICJOB_FLAKY --env ELASTICJOB_REPORTS)
init=(--init)
if [ -n "${BESIDE:-}" ]; then
  read -ra command <<< "$BESIDE"
  beside=$(docker run --detach --init --cpu-shares 2 --volume /tmp "${as[@]}" elasticjob/torch-builder:dev "${command[@]}")
  init=(--pid "container:$beside" --volumes-from "$beside")
fi
exec docker run "${init[@]}" "${as[@]}" elasticjob/torch-builder:dev "$@"
