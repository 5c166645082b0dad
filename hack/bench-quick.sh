#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each benchmark at its smallest, one run: whether it still starts, measures and ends. Its figures mean nothing.
#   bench-quick.sh [WORD...]     only those whose target contains one of the words
# What each prints is kept in build/bench-quick, and shown if it fails.
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

benchmarks=(
  'bench SIZES=2 RUNS=1'
  'bench-profile SIZES=2'
  'bench-steady SIZES=2'
  'bench-fleet SIZES=4x2'
  'bench-silence SIZES=2 RUNS=1'
  'bench-c10d-cluster RUNS=1 K=scale-up'
  'bench-restart RUNS=1 SIDES=live K=scale-up'
  'bench-jobset DEADLINE=60'
  'bench-joins'
  'bench-ranks WORKERS=64 LOSSES=5'
  'bench-store'
)
longest_seconds=900 # of one of them
logs=$root/build/bench-quick
mkdir -p "$logs"

wanted() { # TARGET WORD...
  local target=$1 word; shift
  (($# == 0)) && return
  for word; do [[ $target != *"$word"* ]] || return 0; done
  return 1
}

failed=()
for line in "${benchmarks[@]}"; do
  read -ra words <<< "$line"
  target=${words[0]} log=$logs/${words[0]}.log
  wanted "$target" "$@" || continue
  say "$line"
  if timeout --kill-after 30 "$longest_seconds" make --directory "$root" "${words[@]}" > "$log" 2>&1 < /dev/null; then
    say "$target ended"
  else
    say "$target FAILED (exit code $?; 124: it did not end within $longest_seconds s):"
    tail -n 40 "$log"
    failed+=("$target")
  fi
done
((${#failed[@]} == 0)) || fail "these benchmarks do not end as they should: ${failed[*]}"
