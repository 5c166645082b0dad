#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel and the source archive of each distribution.
#   wheels.sh DIRECTORY
# With what locks/release.txt has, and from a copy of what git knows: the same commit makes the same wheels.
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

to=${1:?wheels.sh DIRECTORY}
mkdir -p "$to"
to=$(cd "$to" && pwd)
tools=$("$root/hack/venv.sh" release)
rm -f "$to"/*.whl "$to"/*.tar.gz

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$root"
git ls-files --cached --others --exclude-standard -z | xargs -0 tar -c --ignore-failed-read | tar -xC "$copy"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# the checkout's own folders on PYTHONPATH are none of the builder's business
unset PYTHONPATH
for project in "$copy/pyproject.toml" "$copy"/*/pyproject.toml; do
  [ ! -e "$project" ] || quietly "$tools/bin/python" -m build --no-isolation --outdir "$to" "$(dirname "$project")"
done
say "wheels: $(cd "$to" && echo *.whl)"
