# SPDX-License-Identifier: Apache-2.0
# The images of ElasticJob: targets `operator`, `sidecar` and `torch-plugin`. The first two run Debian's Python with locked
# dependencies in /opt/venv, as user 65532, on a read-only root; the third has files alone. Only steps that every builder
# knows are used.
FROM debian:trixie-slim AS python
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 >/dev/null \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log /usr/share/doc/*
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /

# pip stays here: the environments are made without it
FROM python AS installer
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/installer \
    && python3 -m venv --without-pip /opt/venv


FROM installer AS operator-dependencies
COPY locks/operator.txt /locks/
RUN /opt/installer/bin/pip --python /opt/venv install --quiet --no-cache-dir --require-hashes -r /locks/operator.txt

# Compiled here, because the root is read-only later; unchecked, because the sources never change in an image.
FROM python AS operator-sources
COPY core /opt/venv/lib/python3.13/site-packages
COPY operator/elasticjob_operator /opt/venv/lib/python3.13/site-packages/elasticjob_operator
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv

FROM python AS operator
COPY --from=operator-dependencies /opt/venv /opt/venv
COPY --from=operator-sources /opt/venv /opt/venv
USER 65532:65532
ENTRYPOINT ["python", "-m", "elasticjob_operator"]


# The torchrun plug-in, as the files that come into each trainer; never compiled: the trainer's Python is another.
FROM python AS plugin
COPY pyproject.toml hack/images/plugin_metadata.py /tmp/
COPY trainer/elasticjob_torch /opt/elasticjob/trainer/elasticjob_torch
COPY trainer/sitecustomize.py /opt/elasticjob/trainer/
RUN python3 /tmp/plugin_metadata.py /tmp/pyproject.toml /opt/elasticjob/trainer

# to be mounted as an image volume: no program is in it
FROM scratch AS torch-plugin
COPY --from=plugin /opt/elasticjob/trainer /


FROM installer AS sidecar-dependencies
COPY locks/sidecar.txt /locks/
RUN /opt/installer/bin/pip --python /opt/venv install --quiet --no-cache-dir --require-hashes -r /locks/sidecar.txt

FROM python AS sidecar-sources
COPY core /opt/venv/lib/python3.13/site-packages
COPY sidecar/elasticjob_sidecar /opt/venv/lib/python3.13/site-packages/elasticjob_sidecar
# what it shares with the plug-in, and no more of that
COPY trainer/elasticjob_torch/__init__.py /opt/venv/lib/python3.13/site-packages/elasticjob_torch/
COPY trainer/elasticjob_torch/wire /opt/venv/lib/python3.13/site-packages/elasticjob_torch/wire
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv

FROM python AS sidecar
COPY --from=sidecar-dependencies /opt/venv /opt/venv
COPY --from=sidecar-sources /opt/venv /opt/venv
COPY --from=plugin /opt/elasticjob /opt/elasticjob
USER 65532:65532
ENTRYPOINT ["python", "-m", "elasticjob_sidecar"]
