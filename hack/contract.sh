#!/usr/bin/env bash
# Runs tests/contract once with each torch of locks/, the oldest first, and says at the end how each went.
#   contract.sh [PYTEST ARGUMENT...]     TORCH=2.6.0 takes one version
. "$(dirname "$0")/cluster/env.sh"

wanted=() versions=()
for lock in "${torch_locks[@]}"; do
  versions+=("$(torch_version "$lock")")
  [ -n "${TORCH:-}" ] && [ "$TORCH" != "$(torch_version "$lock")" ] || wanted+=("$lock")
done
((${#wanted[@]})) || fail "there is no lock with torch $TORCH; TORCH may be one of: ${versions[*]}"

failed=() results=()
for lock in "${wanted[@]}"; do
  version=$(torch_version "$lock")
  say "contract: torch $version"
  began=$SECONDS result=passed
  "$root/hack/with-torch.sh" "$lock" python -m pytest -p no:cacheprovider -p no:looptime_plugin tests/contract "$@" ||
    { result="FAILED (exit code $?)"; failed+=("$version"); }
  results+=("torch $version: $result in $((SECONDS - began)) s")
done
for line in "${results[@]}"; do say "contract: $line"; done
((${#failed[@]} == 0)) || exit 1
