# docker build -t torchduet . && docker run --rm -v "$PWD/logs:/runs/logs" torchduet --suites=tiny_gpt --training --quick
#
# For a CPU. For CUDA: --build-arg INDEX=https://download.pytorch.org/whl/cu130 and docker run --gpus=all
FROM python:3.11-slim-bookworm

# inductor compiles C++ on a CPU; procps and git are not needed
RUN apt-get update && apt-get install --no-install-recommends --yes g++ && rm -rf /var/lib/apt/lists/*

ARG INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir torch torchvision --index-url "$INDEX"

COPY . /src
RUN pip install --no-cache-dir '/src[huggingface,timm,nvidia]' && rm -rf /src

# a run belongs to a folder that outlives the container
WORKDIR /runs
# docker stop acts as Ctrl-C: SIGTERM does not reach a program that is process 1
STOPSIGNAL SIGINT
ENTRYPOINT ["torchduet"]
CMD ["--help"]
