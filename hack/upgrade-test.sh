#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From an older version to this one, back, forward again and away, under a job that trains: tests/e2e/upgrade.py.
#   upgrade-test.sh [REF]     the older version, as git names it; without one the newest release before this commit
# It is built from a checkout of its own, which goes afterwards. Whatever happens, the cluster has this checkout's
# installation at the end.
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

ref=${1:-$(git -C "$root" describe --tags --abbrev=0 --match 'v[0-9]*' 'HEAD^' 2>/dev/null || true)}
[ -n "$ref" ] || fail "no release is tagged before this commit; name the older version: make upgrade-test FROM=<git ref>"
commit=$(git -C "$root" rev-parse --quiet --verify --short "$ref^{commit}") || fail "git knows no commit FROM=$ref"

"$here/up.sh" install
work=$(mktemp -d)
older=$work/older
put_back() {
  say "upgrade: putting this checkout's installation back"
  git -C "$root" worktree remove --force "$older" 2>/dev/null || true
  rm -rf "$work"
  "$here/up.sh" install
}
trap put_back EXIT
trap 'exit 130' INT TERM

quietly git -C "$root" worktree add --detach "$older" "$commit"
say "upgrade: $ref is $(git -C "$older" log -1 --format='%h, %cs, %s')"
"$here/images.sh" previous "$older"
# crds may be a link; the images' default tag is the chart's appVersion
cp -rL "$older/charts/elasticjob" "$work/elasticjob"
quietly helm package "$work/elasticjob" --app-version previous --destination "$work"
pytest "$root/tests/e2e/upgrade.py" --capture=no --older-chart "$(echo "$work"/elasticjob-*.tgz)"
