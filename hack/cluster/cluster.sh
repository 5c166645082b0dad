#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the local cluster be there and healthy, from whatever is left: nothing, stopped containers, a running one.
# KUBERNETES=v1.37.2 and FAMILY=ipv6 (or dual) make others beside the usual one: env.sh has their names.
# The node image and kind have to be there; up.sh sees to that.
#   cluster.sh --check     only says by its exit code whether there is one
set -euo pipefail
. "$(dirname "$0")/env.sh"

[ "${1:-}" != --check ] || { [ -n "$(nodes)" ] && exit 0 || exit 1; }
{ : >&3; } 2>/dev/null || exec 3>&1 # 3 is what people see, also when up.sh keeps the output
"$here/tools.sh" kubectl

# any user's pods write checkpoints; a node is made with torch's directories, which may be filled later
mkdir -p "$checkpoint_dir" "$(locked_dir torch "$newest_torch")" "$(locked_dir torch "$oldest_torch")"
chmod 1777 "$checkpoint_dir"

case $family in
  ipv4) networking= ;;
  ipv6 | dual) networking="networking: {ipFamily: $family}" ;;
  *) fail "FAMILY=$family is no family of addresses; give ipv4, ipv6 or dual" ;;
esac
wanted=$(sed -e '/^ *#/d' -e "s|@checkpoints@|$checkpoint_dir|" -e "s|@newest-torch@|$(locked_dir torch "$newest_torch")|" \
  -e "s|@oldest-torch@|$(locked_dir torch "$oldest_torch")|" "$here/kind.yaml"; echo "${networking:+$networking$'\n'}# $node_image")
made=$cache/kind$variant.yaml

# A node is back when its kubelet has renewed its lease just now, and has said Ready since its container started:
# what the API server remembers from before a stop does not count. The clocks compared are all the engine's.
node_is_back() { # NODE
  local started lately ready said renewed
  started=$(docker inspect --format '{{.State.StartedAt}}' "$1")
  lately=$(docker exec "$1" date -u --date '15 seconds ago' +%Y-%m-%dT%H:%M:%S)
  read -r ready said < <(kubectl get node "$1" --request-timeout 5s --output \
    'go-template={{range .status.conditions}}{{if eq .type "Ready"}}{{.status}} {{.lastHeartbeatTime}}{{"\n"}}{{end}}{{end}}')
  renewed=$(kubectl get lease "$1" --namespace kube-node-lease --request-timeout 5s --output 'jsonpath={.spec.renewTime}')
  [ "$ready" = True ] && [[ $said > $started && $renewed > $started && $renewed > $lately ]]
}

# What the API server says of it; and the one cause that several clusters on one machine have in common.
why_not() { # NODE
  node_is_back "$1" || true
  ! docker exec "$1" journalctl --unit kubelet --since '1 minute ago' | grep --quiet 'too many open files' ||
    say "cluster: its kubelet gets no inotify instance; 'sysctl -w fs.inotify.max_user_instances=512' allows more"
}

wait_healthy() { # SECONDS
  local deadline=$((SECONDS + $1)) node waits=
  for node in $(nodes); do
    until node_is_back "$node" 2>/dev/null; do
      ((SECONDS < deadline)) || { say "cluster: $node is not Ready after $1 s"; why_not "$node"; return 1; }
      [ "$waits" = "$node" ] || { waits=$node; say "cluster: waiting for $node"; }
      sleep 1
    done
  done
  quietly kubectl wait pod --all --namespace kube-system --for condition=Ready \
    --timeout "$((deadline - SECONDS > 5 ? deadline - SECONDS : 5))s"
}

revive() {
  [ "$(nodes | wc -l)" -eq 3 ] || { why="it does not have three nodes"; return 1; }
  [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] || { why="it was made from another kind.yaml or node image"; return 1; }
  why="it does not become healthy"
  local node
  for node in $(nodes); do
    case $(docker inspect --format '{{.State.Status}}' "$node") in
      running) ;;
      paused) quietly docker unpause "$node" || return 1 ;;
      *) quietly docker start "$node" || return 1 ;;
    esac
  done
  quietly kind export kubeconfig --name "$cluster" || return 1
  wait_healthy 60
}

why=
if revive; then
  say "cluster: $cluster is Ready (reused)"
  exit 0
fi

if [ -n "$(nodes)" ]; then
  say "cluster: cannot be reused: $why; deleting it" >&3
  quietly kind delete cluster --name "$cluster"
fi
say "cluster: creating (3 nodes)"
printf '%s\n' "$wanted" > "$made.new"
quietly kind create cluster --name "$cluster" --image "$node_image" --config "$made.new" --wait 120s
wait_healthy 120
mv "$made.new" "$made"
say "cluster: $cluster is Ready"
