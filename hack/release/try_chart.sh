#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pushes the packaged chart to a registry that lives as long as this script, pulls it again, and keeps what the registry
# had as an OCI layout.
#   try_chart.sh CHART LAYOUT     LAYOUT: a directory that is made anew
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

chart=${1:?try_chart.sh CHART LAYOUT} layout=${2:?try_chart.sh CHART LAYOUT}
"$here/tools.sh" helm
command -v docker-registry >/dev/null && command -v skopeo >/dev/null || {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    fail "docker-registry and skopeo are needed on PATH; install them (Debian has packages of these names)"
  quietly apt-get update -qq
  DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends docker-registry skopeo
}

work=$(mktemp -d) registry=
mkdir "$work/pulled"
trap '[ -z "$registry" ] || { kill "$registry" 2>/dev/null || true; wait "$registry" 2>/dev/null || true; }; rm -rf "$work"' EXIT
port=$("${PYTHON:-python3}" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > "$work/config.yml" <<CONFIG
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $work/storage}}
http: {addr: "127.0.0.1:$port"}
CONFIG
docker-registry serve "$work/config.yml" > "$work/log" 2>&1 < /dev/null &
registry=$!
for ((tries = 0; ; tries++)); do
  (: < "/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
  kill -0 "$registry" 2>/dev/null && ((tries < 300)) || { cat "$work/log" >&2; fail "the registry did not answer in 30 s"; }
  sleep 0.1
done

quietly helm push --plain-http "$chart" "oci://127.0.0.1:$port/charts"
name=127.0.0.1:$port/charts/elasticjob
quietly helm pull --plain-http "oci://$name" --version "$version" --destination "$work/pulled"
cmp "$chart" "$work/pulled/$(basename "$chart")" || fail "the chart that was pulled differs from the one that was pushed"
rm -rf "$layout"
quietly skopeo copy --src-tls-verify=false "docker://$name:$version" "oci:$layout:$version"
say "chart: pushed, pulled, and kept as an OCI layout in $layout"
