#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs or upgrades ElasticJob in the local cluster from charts/elasticjob.
set -euo pipefail
. "$(dirname "$0")/env.sh"

namespace=elasticjob-system release=elasticjob seconds=120

# helm installs CRDs but never upgrades them
quietly kubectl apply --server-side --force-conflicts --filename "$root/crds"
deadline=$((SECONDS + 30))
established() { kubectl wait --for condition=Established --timeout 30s --filename "$root/crds"; }
# kubectl fails at once on a CRD that the API server has given no conditions yet
until established >/dev/null 2>&1 || ((SECONDS >= deadline)); do sleep 0.5; done
quietly established

# a helm that was killed leaves its release half-way, and every later one refuses
case $(helm status "$release" --namespace "$namespace" --output json 2>/dev/null | grep -o '"status":"pending[a-z-]*"') in
  ?*) say "install: an earlier one was cut off; starting anew"
    quietly helm uninstall "$release" --namespace "$namespace" --wait --timeout "${seconds}s" ;;
esac

# The tag stays the same, so an annotation tells the deployment that the image behind it is another one.
quietly helm upgrade --install "$release" "$root/charts/elasticjob" --namespace "$namespace" --create-namespace \
  --set crds.upgrade=false --set kueue.gang=true \
  --set-string "podAnnotations.image-id=$(image_id "$(image_name operator)")" \
  --wait --timeout "${seconds}s" || {
  kubectl get pods --namespace "$namespace" >&2
  kubectl logs --namespace "$namespace" --selector "app.kubernetes.io/instance=$release" --tail 20 >&2 || true
  fail "ElasticJob was not installed; helm's reason, the operator's pods and their logs are above"
}
say "install: elasticjob is running in namespace $namespace"
