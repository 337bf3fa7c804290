# The program with all its libraries on a bare system, x86-64 or ARM. First `make tarball` (for ARM on an x86-64
# machine: `make ARM=1 tarball`), then, with BuildKit, which sets BUILDPLATFORM and TARGETARCH:
#   DOCKER_BUILDKIT=1 docker build -t temper . && docker run --rm -it -v "$PWD:/work" temper sft run.yaml
FROM --platform=$BUILDPLATFORM debian:12-slim AS files
ARG TARGETARCH
ADD dist/temper-*.tar.gz /opt/
RUN case $TARGETARCH in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac && mv /opt/temper-*-linux-$machine /opt/temper

FROM debian:12-slim
COPY --from=files /opt/temper /opt/temper
ENV PATH=/opt/temper/bin:$PATH
WORKDIR /work
ENTRYPOINT ["temper"]
