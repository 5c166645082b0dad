#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints a table of what the images add to their base, unpacked, and fails when the sidecar's is too much.
#   image_sizes.sh [PREFIX]     PREFIX/elasticjob/operator, .../sidecar and .../torch-plugin; those built here when none is
#                               named
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

prefix=${1:+$1/} sidecar_limit=120 # MB

# The whole file system, as it is unpacked: engines differ in what they call an image's size.
megabytes() { # IMAGE; within $(...) nothing ends at its first error by itself
  local container bytes
  container=$(docker create "$1" true) || return
  bytes=$(docker export "$container" | wc -c) || return
  quietly docker rm "$container" || return
  echo $((bytes / 1000000))
}

beyond=() base=$(megabytes "$base_image")
printf '| image | MB unpacked | of them beyond %s (%s MB) |\n|---|---|---|\n' "$base_image" "$base"
for name in operator sidecar; do
  image=${prefix}$(image_name "$name")
  all=$(megabytes "$image")
  beyond+=($((all - base)))
  printf '| `%s` | %s | %s |\n' "$image" "$all" $((all - base))
done
image=${prefix}$(image_name torch-plugin) # it has no base
all=$(megabytes "$image")
printf '| `%s` | %s | %s |\n' "$image" "$all" "$all"
((beyond[1] < sidecar_limit)) || fail "the sidecar is ${beyond[1]} MB beyond its base; it must be below $sidecar_limit"
