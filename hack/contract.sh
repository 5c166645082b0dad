#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests/contract once with each torch of locks/, and says at the end how each went.
#   contract.sh [PYTEST ARGUMENT...]     TORCH="2.6.0 2.10.0" takes these versions, PROCESSES=3 test at once with each,
#                                        ONCE=1: tests that have the mark any_torch run with the last of them alone
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

wanted=() versions=()
for lock in "${torch_locks[@]}"; do versions+=("$(torch_version "$lock")"); done
for version in ${TORCH:-"${versions[@]}"}; do
  number=$(printf '%s\n' "${versions[@]}" | grep -nFx "$version" | cut -d: -f1) ||
    fail "there is no lock with torch $version; TORCH may be some of: ${versions[*]}"
  wanted+=("${torch_locks[number - 1]}")
done

run() { # LOCK PYTEST_ARGUMENT...
  local lock=$1 left_out=(); shift
  if [ -n "${ONCE:-}" ] && [ "$lock" != "${wanted[${#wanted[@]} - 1]}" ]; then left_out=(-m "not any_torch"); fi
  "$root/hack/with-torch.sh" "$lock" env "ELASTICJOB_PART=contract, $lock" \
    python -m pytest -p no:cacheprovider -p no:looptime_plugin --confcutdir tests \
    -n "${PROCESSES:-3}" --dist loadgroup --no-loadscope-reorder tests/contract ${left_out[@]+"${left_out[@]}"} "$@"
}

# They often wait, so all versions are tested at once; what each printed is shown whole.
logs=$(mktemp -d) pids=() failed=() results=()
trap 'rm -rf "$logs"' EXIT
"$here/engine.sh"
"$here/tools.sh" apiserver
"$here/torch.sh" dev "${wanted[@]}"
for lock in "${wanted[@]}"; do
  run "$lock" "$@" > "$logs/$lock" 2>&1 < /dev/null & pids+=($!)
done
for number in "${!wanted[@]}"; do
  lock=${wanted[number]} version=$(torch_version "${wanted[number]}") result=passed
  wait "${pids[number]}" || { result="FAILED (exit code $?)"; failed+=("$version"); }
  say "contract: torch $version"
  cat "$logs/$lock"
  results+=("torch $version: $result")
done
for line in "${results[@]}"; do say "contract: $line"; done
((${#failed[@]} == 0)) || exit 1
