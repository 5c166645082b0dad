#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packages the chart, whose images are then those of the release, and writes elasticjob.yaml, which installs without Helm.
#   chart.sh DIRECTORY [REGISTRY]     REGISTRY/elasticjob/operator and .../sidecar; without it as in values.yaml
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

to=${1:?chart.sh DIRECTORY [REGISTRY]} registry=${2:-}
mkdir -p "$to"
rm -f "$to"/elasticjob-*.tgz "$to/elasticjob.yaml"
"$here/tools.sh" helm

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# crds is a link: files of their own in the package
cp -rL "$root/charts/elasticjob" "$copy/elasticjob"
if [ -n "$registry" ]; then
  for file in values.yaml Chart.yaml; do
    sed "s#^\( *\(repository\|image\): \)elasticjob/#\1$registry/elasticjob/#" "$root/charts/elasticjob/$file" \
      > "$copy/elasticjob/$file"
  done
fi
quietly helm package "$copy/elasticjob" --destination "$to"

# as users will get it
made=$to/elasticjob-$version.tgz
[ -e "$made" ] || fail "helm made no $made; is Chart.yaml's version that of appVersion, $version?"
"$("$root/hack/venv.sh")/bin/python" "$root/hack/plain_manifest.py" --chart "$copy/elasticjob" --file "$to/elasticjob.yaml"
helm template elasticjob "$made" --kube-version "$kubernetes_version" > "$copy/rendered"
for name in operator sidecar; do
  image=${registry:+$registry/}elasticjob/$name:$version
  grep -q "$image" "$copy/rendered" || fail "the packaged chart does not use $image"
  grep -q "$image" "$to/elasticjob.yaml" || fail "elasticjob.yaml does not use $image"
  grep -q "image: $image" "$copy/elasticjob/Chart.yaml" || fail "Chart.yaml's artifacthub.io/images does not name $image"
done
say "chart: $made, with the images of ${registry:-values.yaml}"
