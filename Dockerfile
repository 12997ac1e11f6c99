# One image for schedulers, executors and the command line; a second target, etcd, for the store of docker-compose.yml.
#
#   docker build -t onager .
#   docker build -t onager-etcd --target etcd .

FROM debian:trixie-slim AS etcd
RUN apt-get update \
    && apt-get install -y --no-install-recommends etcd-server etcd-client \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /data && chown etcd:etcd /data
USER etcd
VOLUME /data
ENTRYPOINT ["etcd"]

# A wheel, with the kernel compiled by a JDK that the image does not need.
FROM python:3.11-slim-bookworm AS wheel
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

FROM python:3.11-slim-bookworm AS onager
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
    && mkdir -p /exchange /secrets && chown onager:onager /exchange /secrets
USER onager
ENV PYTHONUNBUFFERED=1 ONAGER_SCHEDULER_LOG_FORMAT=json ONAGER_EXECUTOR_LOG_FORMAT=json
WORKDIR /home/onager
ENTRYPOINT ["onager"]
CMD ["--help"]
