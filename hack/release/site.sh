#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adds the documents, as this checkout has them, to the versions of the site, which the branch gh-pages keeps.
#   site.sh dev          what main has
#   site.sh X.Y.Z        a release: X.Y, which replaces an earlier patch version's, and `latest`, which the site begins with
# With PUSH=1 it pushes the branch to origin. Without, the branch of this repository is changed and nothing else.
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

wanted=${1:?site.sh dev, or site.sh X.Y.Z}
export PATH; PATH=$("$root/hack/venv.sh" docs)/bin:$PATH # mike calls mkdocs
export NO_MKDOCS_2_WARNING=1
cd "$root"
push=()
if [ -n "${PUSH:-}" ]; then
  push=(--push)
  there=$(git ls-remote --heads origin gh-pages)
  [ -z "$there" ] || quietly git fetch --depth 1 origin gh-pages:gh-pages
fi

case $wanted in
  dev)
    quietly mike deploy "${push[@]}" dev
    # there is something to begin with before the first release
    mike list latest >/dev/null 2>&1 || quietly mike set-default "${push[@]}" dev ;;
  [0-9]*.[0-9]*.[0-9]*)
    DOCS_REF=v$wanted quietly mike deploy "${push[@]}" --update-aliases "${wanted%.*}" latest
    quietly mike set-default "${push[@]}" latest ;;
  *) fail "site.sh takes dev or a version X.Y.Z, not '$wanted'" ;;
esac
say "site: $(mike list | tr '\n' ' ')on the branch gh-pages"
