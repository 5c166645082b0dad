#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes go.mod and go.sum anew after a change of a version in it, or for another Kubernetes: pin.sh [v1.35.4]
#
# Each module that Kubernetes requires is replaced by itself in just that version, so that kube-apiserver and kubelet
# are made of what they were released with, and the other programs of the packages that were compiled for these.
set -euo pipefail
cd "$(dirname "$0")"

version=${1:-$(grep -o 'k8s.io/kubernetes v[0-9.]*' go.mod | cut -d ' ' -f 2)}
go mod edit -require="k8s.io/kubernetes@$version"
go mod edit -json | jq -r '.Replace // [] | .[] | "-dropreplace=\(.Old.Path)"' | xargs go mod edit
released=$(go mod download -json "k8s.io/kubernetes@$version" | jq -r .GoMod)
go mod edit -json "$released" | jq -r --arg staging "v0.${version#v1.}" '.Require[]
  | "-replace=\(.Path)=\(.Path)@\(if .Version == "v0.0.0" then $staging else .Version end)"' | xargs go mod edit
{
  grep -v '^replace ' go.mod | cat -s
  printf 'replace (\n%s\n)\n' "$(sed -n 's/^replace /\t/p' go.mod)"
} > go.mod.new
mv go.mod.new go.mod
go mod tidy
