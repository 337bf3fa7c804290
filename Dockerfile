# The program with all its libraries on a bare system. First `make tarball`, then
#   docker build -t temper . && docker run --rm -it -v "$PWD:/work" temper sft run.yaml
FROM debian:12-slim
ADD dist/temper-*-linux-x86_64.tar.gz /opt/
RUN ln -s /opt/temper-*/bin/temper /usr/local/bin/temper
WORKDIR /work
ENTRYPOINT ["temper"]
