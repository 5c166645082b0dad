# SPDX-License-Identifier: Apache-2.0
# The demo's trainer image on the local cluster. torch is not in it: the nodes mount one copy at /opt/torch
# (torch.sh), which saves minutes of loading and gigabytes of disk. examples/digits/Dockerfile is the image
# for any other cluster; both hold the same /app/train.py.
FROM debian:trixie-slim AS python
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 libgomp1 >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log

# what builds /opt/torch, so that its interpreter is the one of the pods
FROM python AS venv
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt
# which unpacks 5 GB in a fraction of pip's time
COPY locks/uv.txt /locks/
RUN python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install --quiet --no-cache-dir --require-hashes -r /locks/uv.txt

FROM python AS digits
# PYTHONPATH is that of many images; nothing here needs it, but it has to stay as it is in a worker
ENV PATH=/opt/torch/bin:$PATH PYTHONUNBUFFERED=1 PYTHONPATH=/app
WORKDIR /app
COPY examples/digits/train.py /app/train.py
USER 65532:65532
CMD ["torchrun", "train.py"]
