#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Publishes the site of main and of two releases in a copy of this checkout, and looks at what the branch has then.
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cd "$root"
git ls-files --cached --others --exclude-standard -z | xargs -0 tar -c --ignore-failed-read | tar -xC "$copy"
cd "$copy"
# a repository that the environment names is not the copy's
unset $(git rev-parse --local-env-vars)
who=(-c user.name=try -c user.email=try@example.com)
quietly git init --initial-branch main
quietly git add --all
quietly git "${who[@]}" commit --message "the site is tried"
export GIT_COMMITTER_NAME=try GIT_COMMITTER_EMAIL=try@example.com
hack/release/site.sh dev
hack/release/site.sh 7.0.0
hack/release/site.sh 7.1.2

shows() { git show "gh-pages:$1" 2>/dev/null | grep -q "$2" || fail "the site's $1 does not have '$2'"; } # FILE WORDS
shows versions.json '"version": "dev"'
shows versions.json '"version": "7.0"'
shows index.html latest
shows latest 7.1 # a link
shows 7.0/quick-start/index.html 'blob/v7.0.0/examples/first/README.md'
shows dev/quick-start/index.html 'blob/main/examples/first/README.md'
say "site: dev, 7.0 and 7.1 were published in a copy"
