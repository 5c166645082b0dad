#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains on the local cluster while the job is scaled up, scaled down and loses a pod, and checks what comes of it.
# `make demo` makes the cluster and installs ElasticJob first.
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

quietly kubectl delete elasticjob/digits --ignore-not-found --cascade=foreground --timeout=120s ||
  fail "the job of an earlier demo was not deleted within 120 s"
# pods wrote the checkpoints as a user of their own; a node is root over them
quietly docker exec "$cluster-control-plane" rm -rf /var/lib/elasticjob/checkpoints/digits
say "demo: starts without the job and the checkpoints of an earlier demo"
exec "${PYTHON:-python3}" "$root/hack/demo/demo.py"
