#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the images install from locks/, as a CycloneDX SBOM each. Debian's packages are in the SBOM that the release's
# builder attaches to the images.
#   sbom.sh DIRECTORY
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

to=${1:?sbom.sh DIRECTORY}
mkdir -p "$to"
tools=$("$root/hack/venv.sh" release)
for name in operator sidecar; do
  file=$to/elasticjob-$name-$version.cdx.json
  quietly "$tools/bin/cyclonedx-py" requirements "$root/locks/$name.txt" --pyproject "$root/pyproject.toml" \
    --output-reproducible --output-format JSON --output-file "$file"
  # a lock that is read wrongly would make an SBOM that names nothing
  locked=$(grep -c '^[a-zA-Z0-9._-]*==' "$root/locks/$name.txt")
  told=$("$tools/bin/python" -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["components"]))' "$file")
  [ "$told" = "$locked" ] || fail "$file names $told packages, and locks/$name.txt has $locked"
  say "sbom: $file, $told packages"
done
