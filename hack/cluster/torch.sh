#!/usr/bin/env bash
# The directory with torch that the nodes mount at /opt/torch.
#
# PyPI's torch wheel for Linux comes with CUDA: 5 GB unpacked. As a layer of a pod image it would be stored
# once more for every node and take minutes to load, so the demo's pods share one copy from the host.
# It is built inside the pods' own base image, so that the interpreter is the same.
. "$(dirname "$0")/env.sh"

[ -e "$torch_dir/.complete" ] && exit 0
"$here/node-image.sh" base
say "torch: installing (about 2 minutes, 5 GB) into $torch_dir"
build_image --target venv -t elasticjob/torch-builder:dev -f "$here/digits.Dockerfile" "$here"
find "$cache" -maxdepth 1 -name 'torch-*' ! -path "$torch_dir" -exec rm -rf {} +
mkdir -p "$torch_dir"
docker run --rm --interactive --network host --user "$(id -u):$(id -g)" --env HOME=/tmp \
  --volume "$torch_dir:/opt/torch" elasticjob/torch-builder:dev sh -c '
    python3 -m venv --clear /opt/torch &&
    /opt/torch/bin/pip install --quiet --no-cache-dir --require-hashes -r /dev/stdin' < "$torch_lock"
chmod -R a+rX "$torch_dir"
touch "$torch_dir/.complete"
say "torch: installed"
