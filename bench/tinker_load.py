#!/usr/bin/env python3
"""temper serve --tinker under load: many clients that sample while another session trains, and small training requests
of several sessions.

usage: bench/tinker_load.py [--clients 64] [--requests 3] [--new 32] [--prompt 32] [--sessions 8] [--rows 2] [--length
48] [--model DIR]

The first part: every client sends one `sample` of --new tokens after another, over its own connection, first alone,
then while a session trains (forward_backward of 8 rows and optim_step, without a pause). Shown are requests a second,
the latency of a request, and the trainer's steps. The second part: --sessions sessions, each with its adapter, send a
forward_backward of --rows rows each, time after time: one after the other, then at once, so that they share passes over
the base; and one session sends all their rows as one request, the most that shared passes could give.
"""
import argparse
import http.client
import json
import random
import statistics
import struct
import subprocess
import tempfile
import threading
import time

import peers


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """A field of a protobuf message: a whole number, text or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def datum(row):
    targets = field(1, struct.pack(f"<{len(row) - 1}q", *row[1:])) + field(3, 2) + field(4, varint(len(row) - 1))
    tokens = field(1, field(1, field(1, struct.pack(f"<{len(row) - 1}i", *row[:-1]))))
    return tokens + field(2, field(1, "target_tokens") + field(2, targets))


class Connection:
    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, path, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body)
        self.http.request("POST", "/api/v1/" + path, data, {"X-API-Key": "tml-bench", "Content-Type": kind})
        answer = self.http.getresponse()
        return answer.status, answer.read()

    def call(self, path, body, kind="application/json"):
        status, text = self.ask(path, body, kind)
        if status != 200:
            raise SystemExit(f"{path}: {status} {text[:300]}")
        return json.loads(text)

    def wait(self, future):
        while True:
            status, text = self.ask("retrieve_future", {"request_id": future["request_id"]})
            if status != 408:
                break
        if status != 200 or text.startswith(b'{"error'):
            raise SystemExit(f"{status} {text[:300]}")
        return text


class Session(Connection):
    """A session with an adapter."""

    def __init__(self, port, model):
        super().__init__(port)
        self.id = self.call("create_session", {"tags": [], "user_metadata": None, "sdk_version": "0.38.0", "type": "create_session"})["session_id"]
        self.model = json.loads(self.wait(self.call("create_model", {"session_id": self.id, "model_seq_id": 0, "base_model": model,
                                                                     "lora_config": {"rank": 16, "seed": 1}})))["model_id"]
        self.seq = 0

    def number(self):
        self.seq += 1
        return self.seq

    def forward_backward(self, rows):
        body = field(1, self.model) + field(2, self.number()) + b"".join(field(3, datum(row)) for row in rows) + field(4, "cross_entropy")
        return self.call("forward_backward", body, "application/x-protobuf")

    def step(self):
        return self.call("optim_step", {"model_id": self.model, "seq_id": self.number(), "adam_params": {"learning_rate": 1e-4}})


def start(model, state):
    process = subprocess.Popen([peers.TEMPER, "serve", "--model", model, "--port", "0", "--tinker", "--state-dir", state], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    for line in process.stdout:
        if "http://" in line:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(line.split("http://")[1].split()[0].rstrip("/.,").split(":")[1])
    raise SystemExit("the server did not start")


def at_once(functions):
    threads = [threading.Thread(target=f) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def sample(port, session, prompts, new):
    """Seconds of each request, and of all."""
    sampler = session.call("create_sampling_session", {"session_id": session.id, "sampling_session_seq_id": session.number(),
                                                       "base_model": session.base})["sampling_session_id"]
    seconds = []

    def client(mine, first):
        connection = Connection(port)
        for i, prompt in enumerate(mine):
            begin = time.perf_counter()
            connection.wait(connection.call("asample", {
                "sampling_session_id": sampler, "seq_id": first + i, "num_samples": 1, "prompt": {"chunks": [{"type": "encoded_text", "tokens": prompt}]},
                "sampling_params": {"max_tokens": new, "temperature": 1, "seed": 1, "stop": []}}))
            seconds.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    at_once([lambda mine=mine, k=k: client(mine, 1 + k * len(mine)) for k, mine in enumerate(prompts)])
    return seconds, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in dict(clients=64, requests=3, new=32, prompt=32, sessions=8, rows=2, length=48, rounds=5).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--model")
    args = parser.parse_args()
    model = args.model or peers.model()
    rng = random.Random(0)
    draw = lambda n: [rng.randrange(5, 50) for _ in range(n)]
    prompts = [[draw(args.prompt) for _ in range(args.requests)] for _ in range(args.clients)]
    with tempfile.TemporaryDirectory() as state:
        process, port = start(model, state)
        try:
            trainer = Session(port, model)
            trainer.base = model
            trainer.wait(trainer.forward_backward([draw(args.length)]))
            print(f"{args.clients} clients, {args.requests} samples each of {args.new} tokens\n{'':24}requests/s   latency, s: p50    p95    p99    steps/s")
            for trains in (False, True):
                sampling, steps = Session(port, model), 0
                sampling.base, done = model, threading.Event()

                def train():
                    nonlocal steps
                    while not done.is_set():
                        trainer.wait(trainer.forward_backward([draw(args.length) for _ in range(8)]))
                        trainer.wait(trainer.step())
                        steps += 1

                beside = threading.Thread(target=train)
                if trains:
                    beside.start()
                seconds, wall = sample(port, sampling, prompts, args.new)
                done.set()
                if trains:
                    beside.join()
                shown = "".join(f"{percentile(seconds, q):7.2f}" for q in (0.5, 0.95, 0.99))
                print(f"{'while another trains' if trains else 'alone':24}{len(seconds) / wall:10.1f}   {'':9}{shown} {steps / wall:10.2f}", flush=True)
            sessions = [Session(port, model) for _ in range(args.sessions)]
            rows = [[draw(args.length) for _ in range(args.rows)] for _ in sessions]

            def in_turns():
                for s, r in zip(sessions, rows):
                    s.wait(s.forward_backward(r))

            def all_at_once():
                futures = [s.forward_backward(r) for s, r in zip(sessions, rows)]
                for s, future in zip(sessions, futures):
                    s.wait(future)

            ways = {"one after the other": in_turns, "at once": all_at_once,
                    "all rows as one request": lambda: trainer.wait(trainer.forward_backward(sum(rows, [])))}
            seconds = {name: [] for name in ways}
            for _ in range(args.rounds):
                for name, way in ways.items():
                    begin = time.perf_counter()
                    way()
                    seconds[name].append(time.perf_counter() - begin)
            print(f"forward_backward of {args.rows} rows of {args.length} tokens by each of {args.sessions} sessions, ms (median of {args.rounds}): "
                  + ", ".join(f"{name} {1000 * statistics.median(all_of):.0f}" for name, all_of in seconds.items()))
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
