# One image for schedulers, executors and the command line; a second target, etcd, for the store of docker-compose.yml.
#
#   docker build -t onager .
#   docker build -t onager-etcd --target etcd .
#
# The images that these begin with can be given with their digests:
#
#   docker build --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:… -t onager .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG DEBIAN_IMAGE=debian:trixie-slim

FROM ${DEBIAN_IMAGE} AS etcd
RUN apt-get update \
    && apt-get install -y --no-install-recommends etcd-server etcd-client \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /data && chown 10001:10001 /data && chmod 0700 /data
COPY deploy/etcd-users /usr/local/bin/
USER 10001:10001
VOLUME /data
ENTRYPOINT ["etcd"]

# A wheel, with the kernel compiled by a JDK that the image does not need.
FROM ${PYTHON_IMAGE} AS wheel
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jdk-headless \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY requirements/runtime.txt requirements/
RUN pip install --no-cache-dir -r requirements/runtime.txt
COPY pyproject.toml setup.py README.md ./
COPY onager onager
COPY execution_graph execution_graph
COPY state_backend state_backend
COPY scheduler scheduler
COPY executor executor
COPY kernel kernel
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel .

FROM ${PYTHON_IMAGE} AS onager
# Java for executors, openssl for deploy/make-secrets.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless openssl procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/onager
COPY requirements/runtime.txt requirements/
RUN pip install --no-cache-dir -r requirements/runtime.txt
COPY deploy deploy
COPY --from=wheel /wheel /wheel
RUN pip install --no-cache-dir --no-deps /wheel/*.whl \
    && useradd --uid 10001 --create-home onager \
    && install -d -o onager -g onager -m 0700 /exchange /warehouse /secrets \
    && for role in scheduler executor client admin etcd; do install -d -o onager -g onager -m 0700 /secrets/$role; done
USER onager
ENV PYTHONUNBUFFERED=1 ONAGER_SCHEDULER_LOG_FORMAT=json ONAGER_EXECUTOR_LOG_FORMAT=json
WORKDIR /home/onager
ENTRYPOINT ["onager"]
CMD ["--help"]
