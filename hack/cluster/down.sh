#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Deletes the cluster and its checkpoints. What is slow to make again stays: the node image, the torch
# directory, the tools, the virtual environment. `down.sh all` removes those as well.
set -euo pipefail
. "$(dirname "$0")/env.sh"

if docker info >/dev/null 2>&1; then
  # pods wrote the checkpoints as users of their own; a node is root over them
  docker exec "$cluster-control-plane" find /var/lib/elasticjob/checkpoints -mindepth 1 -delete 2>/dev/null || true
  [ -z "$(nodes)" ] || quietly kind delete cluster --name "$cluster"
  if [ "${1:-}" = all ]; then
    for name in operator sidecar torch-plugin digits torch-builder prometheus prometheus-adapter kueue jobset trainer; do
      quietly docker rmi --force "$(image_name "$name")" || true
    done
    for image in "$node_image" elasticjob/{operator,sidecar}:previous; do
      ! has_image "$image" || quietly docker rmi --force "$image" || true
    done
  fi
fi
rm -rf "$checkpoint_dir" "$cache/kind$variant.yaml" "$KUBECONFIG"
say "cluster: $cluster is deleted"
[ "${1:-}" != all ] || { rm -rf "$cache"; say "cache: deleted $cache"; }
