#!/usr/bin/env python3
"""Many clients at once, streaming, at temper serve and at llama.cpp's llama-server, on one model in one run.

usage: bench/serve.py [--llama-server PATH] [--clients 64] [--requests 3] [--new 128] [--speculative auto|off|N]
[--prompt 64]

Every client sends one request after another over its own connection: a prompt of ids, completions of --new tokens
without an end token, greedy, streamed. All begin at once. Shown are new tokens a second over all clients, and the time
to the first token of each request: median and 95th percentile, for the first requests, which arrive together, and for
the later ones. The clients are one Python program on the same cores, the same for both servers; its share of processor
time is printed.

llama-server is built from the sources that llama-cpp-python's sdist carries, with cmake:
  pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36; tar xzf llama_cpp_python-*.tar.gz
  cmake -S llama_cpp_python-*/vendor/llama.cpp -B llama -DCMAKE_BUILD_TYPE=Release; cmake --build llama --target llama-server
It runs as bench/generate.py runs the library: a slot and a cache of its own for every client (no unified cache), F16
keys and values, n_batch 8192, n_ubatch 512, a thread a core, its greedy sampler, continuous batching, no reuse of
prompts.
"""
import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request

import peers


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until_ready(port, process):
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode}")
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server is not ready after a minute")


async def request(port, body):
    """Seconds from sending to the first event with text, to the end, and the number of events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    start = time.perf_counter()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    first = None
    events = 0
    while True:
        line = await reader.readline()
        if not line:
            raise SystemExit("the server closed the connection")
        if line.startswith(b"HTTP/1.1") and b" 200" not in line:
            raise SystemExit((line + await reader.read(1000)).decode())
        if line.startswith(b"data: [DONE]"):
            break
        if line.startswith(b"data: "):
            events += 1
            first = first or time.perf_counter() - start
    end = time.perf_counter() - start
    writer.close()
    return first, end, events


async def clients(port, prompts, new):
    async def client(mine):
        return [await request(port, {"model": "", "prompt": p, "max_tokens": new, "temperature": 0, "ignore_eos": True, "stream": True,
                                     "cache_prompt": False}) for p in mine]
    return await asyncio.gather(*(client(mine) for mine in prompts))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def measure(name, port, process, prompts, new):
    wait_until_ready(port, process)
    asyncio.run(clients(port, [[p[0][:8]] for p in prompts[:2]], 4))  # threads, packed weights
    start, cpu, server = time.perf_counter(), time.process_time(), peers.cpu_seconds(process.pid)
    results = asyncio.run(clients(port, prompts, new))
    wall = time.perf_counter() - start
    count = sum(len(r) for r in results)
    firsts = [[r[0] for r in rs[:1]] for rs in results], [[r[0] for r in rs[1:]] for rs in results]
    shown = "  ".join(f"{1000 * statistics.median(t):7.0f} {1000 * percentile(t, 0.95):7.0f}" if t else " " * 15
                      for t in (sum(f, []) for f in firsts))
    print(f"  {name:22} {count * new / wall:9.0f}   {shown}   {peers.cpu_seconds(process.pid) - server:6.1f} {time.process_time() - cpu:6.1f}"
          f"   {sum(r[2] for rs in results for r in rs) / (count * new):5.2f}", flush=True)
    return count * new / wall


def run(name, command, port, prompts, new, show_log=False):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=None if show_log else subprocess.DEVNULL)
    try:
        return measure(name, port, process, prompts, new)
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=3, help="of each client, one after another")
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--speculative", default="auto,off", help="how Temper runs, one after another")
    parser.add_argument("--model")
    args = parser.parse_args()
    model = args.model or peers.model()
    rng = random.Random(0)
    prompts = [[[rng.randrange(300, 8000) for _ in range(args.prompt)] for _ in range(args.requests)] for _ in range(args.clients)]
    print(f"{args.clients} clients, {args.requests} requests each, prompts of {args.prompt} tokens, {args.new} new ones\n"
          "                          new       time to first token, ms          CPU seconds    events\n"
          "                         tokens/s   at once:  p50    p95  later: p50   p95    server clients  a token")
    rates = {}
    for speculative in args.speculative.split(","):
        port = free_port()
        rates[speculative] = run(f"Temper ({speculative})", [peers.TEMPER, "serve", "--model", model, "--port", str(port), "--speculative",
                                                             speculative], port, prompts, args.new)
    if not args.llama_server:
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([peers.TEMPER, "export", "--model", model, "--output", f"{folder}/gguf", "--format", "gguf", "--dtype", "float32"], check=True,
                       stdout=subprocess.DEVNULL)
        gguf = next(f"{folder}/gguf/{name}" for name in os.listdir(f"{folder}/gguf") if name.endswith(".gguf"))
        port = free_port()
        threads = str(os.cpu_count())
        peer = run("llama-server F32", [args.llama_server, "-m", gguf, "--port", str(port), "-np", str(args.clients), "-c",
                                        str(args.clients * (args.prompt + args.new + 8)), "-b", "8192", "-ub", "512", "-t", threads, "-tb", threads,
                                        "--no-kv-unified", "-cb"], port, prompts, args.new)
        for speculative, rate in rates.items():
            print(f"  Temper ({speculative}) gives {rate / peer:.2f} times the tokens")


main()
