"""Every limit of the Tinker service met by one client, while another one, with a key of its own, is served; and what keys keep apart:
tinker_limits.py ADDRESS STATE_DIR PART. The server has --max-request-bytes 4194304, --max-adapters 6, --max-rank 64, --adapter-bytes 1000000,
--max-requests 16; the model has 600 positions. With SHOW_LIMITS set a line a limit: how it was met, what was answered."""
import os
import struct
import sys
import time

import tinker_client as client
from tinker_client import ROW, ask, datum, expect, field, fields, floats, json, logprobs, part, result, session, submit, tensor, threading, train, varint

LIMIT, POSITIONS = 4 << 20, 512
MINE, OTHER = {"X-API-Key": "tml-test"}, {"X-API-Key": "tml-other"}


class As:
    """Within it the functions of tinker_client send another key."""

    def __init__(self, key):
        self.key = key

    def __enter__(self):
        self.before, client.KEY = client.KEY, self.key
        client.ask.__defaults__ = (None, None, self.key, "application/json")

    def __exit__(self, *_):
        client.KEY = self.before
        client.ask.__defaults__ = (None, None, self.before, "application/json")


class Other:
    """The client that is served meanwhile: it samples and trains, and gets the numbers that it got at first."""

    def __init__(self):
        with As(OTHER):
            self.session = session()
            self.model = client.create(self.session)
            self.base = client.call("create_sampling_session", {"session_id": self.session, "base_model": "model"})["sampling_session_id"]
        self.seq = 0
        self.first = None
        self.served()

    def served(self):
        with As(OTHER):
            self.seq += 1
            forward = logprobs(result(submit(self.model, self.seq, [ROW], forward_only=1)))
            sampled = client.sample(self.base, self.seq, [3, 4], 2, 6)[1]
        if self.first is None:
            self.first = forward, sampled
        expect((forward, sampled) == self.first, "the other client's numbers", forward, sampled)

    def leaves(self):
        with As(OTHER):
            client.call(f"sessions/{self.session}/finish", {})


def refused(name, answer, *words, statuses=(400,)):
    """An answer, or a future's result, that names the limit."""
    if isinstance(answer, dict):
        status, message = 400 if answer.get("category") == "user" else 200, answer.get("error", "")
    else:
        status, _, text = answer
        message = json.loads(text).get("error", {}).get("message", "") if text else ""
    expect(status in statuses and all(w in message for w in words), name, status, message[:300], "expected", statuses, words)
    if os.environ.get("SHOW_LIMITS"):
        print(f"{name}: {status} {message[:160]}")


def message(model, seq, data, loss="cross_entropy"):
    return ask("forward_backward", field(1, model) + field(2, seq) + data + field(4, loss), kind="application/x-protobuf")


def raw_tensor(dtype, data, *shape):
    return field(1, data) + field(3, dtype) + field(4, b"".join(varint(n) for n in shape))


def sparse(rows, columns, cells):
    """Of target ids 1 at (row, column)."""
    crow, at = [0], 0
    for r in range(rows):
        at += sum(1 for c in cells if c[0] == r)
        crow.append(at)
    csr = field(1, struct.pack(f"<{len(cells)}q", *[1] * len(cells))) + field(2, struct.pack(f"<{rows + 1}q", *crow)) + \
        field(3, struct.pack(f"<{len(cells)}q", *[c[1] for c in cells]))
    return field(2, csr) + field(3, 2) + field(4, varint(rows) + varint(columns))


def wide(rows, columns, targets=None):
    """A datum with so many targets a position."""
    if targets is None:
        targets = raw_tensor(3, struct.pack("<i", 5) * (rows * columns), rows, columns)
    tokens = field(1, field(1, field(1, struct.pack(f"<{rows}i", *[1 + i % 50 for i in range(rows)]))))
    return tokens + field(2, field(1, "target_tokens") + field(2, targets))


def bomb(size):
    """A Zstandard frame of `size` zeros: blocks of one repeated byte."""
    blocks = [min(131072, size - at) for at in range(0, size, 131072)]
    frame = b"\x28\xb5\x2f\xfd\x00\x58"
    for i, n in enumerate(blocks):
        frame += ((i == len(blocks) - 1) | 1 << 1 | n << 3).to_bytes(3, "little") + b"\0"
    return frame


def sampling(sampler, seq, **more):
    parameters = {"max_tokens": 4, "temperature": 1, "seed": 5, "stop": [], **more.pop("parameters", {})}
    return {"sampling_session_id": sampler, "seq_id": seq, "num_samples": 1, "sampling_params": parameters,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [3, 4]}]}, **more}


def requests():
    """Bounds of single requests: each is refused at once and uses up its number."""
    other, one = Other(), session()
    model = client.create(one)
    seq = iter(range(1, 1000))
    big = b"\0" * (LIMIT + 1)
    try:
        refused("a body", ask("forward_backward", big, kind="application/x-protobuf"), statuses=(413,))
    except OSError:
        pass  # the connection is closed while the client still sends
    number = next(seq)  # refused unread: its number is still free
    refused("a body when decompressed", ask("forward_backward", bomb(3 * LIMIT), headers={**MINE, "Content-Encoding": "zstd"}, kind="application/x-protobuf"),
            str(LIMIT), "decompressed")
    refused("data", message(model, number, field(3, b"") * 65537), "65536")
    refused("no data", message(model, next(seq), b""), "at least one")
    empty = field(2, field(1, "a") + field(2, field(3, 1)))
    refused("tensors", message(model, next(seq), b"".join(field(3, empty * 64) for _ in range(4097))), "262144")
    names = b"".join(field(2, field(1, f"n{i}") + field(2, field(3, 1))) for i in range(65))
    refused("inputs of a datum", message(model, next(seq), field(3, names)), "64")
    config = b"".join(field(5, field(1, f"k{i}") + field(2, 1.0)) for i in range(65))
    refused("keys of loss_fn_config", message(model, next(seq), field(3, ROW) + config), "64")
    refused("tokens of a datum", message(model, next(seq), field(3, datum([1] * 601, target_tokens=[1] * 601))), "expected 1 to 600")
    refused("an empty datum", message(model, next(seq), field(3, wide(0, 1))), "expected 1 to")
    refused("targets of a position", message(model, next(seq), field(3, wide(8, 4097))), "4096")
    refused("log-probabilities", message(model, next(seq), field(3, wide(POSITIONS, 4096, sparse(POSITIONS, 4096, [(0, 0)]))) * 9), "16777216")
    refused("dimensions", message(model, next(seq), field(3, wide(2, 1, raw_tensor(3, b"\0" * 8, *[1] * 9)))), "8 dimensions")
    refused("ids that are no integers", message(model, next(seq), field(3, datum([1, 2], target_tokens=[2.0, 3.0]))), "floating-point")
    refused("ids beyond the vocabulary", message(model, next(seq), field(3, datum([1, 2], target_tokens=[2, 61]))), "below 61")
    refused("seq_id 0", message(model, 0, field(3, ROW)), "from 1 on")
    refused("seq_id 0 of a step", ask("optim_step", {"model_id": model, "seq_id": 0, "adam_params": {}}), "`seq_id`")
    refused("seq_id far ahead", message(model, 100000, field(3, ROW)), "numbers follow each other")
    refused("seq_id beyond its type", message(model, 1 << 63, field(3, ROW)), "seq_id")
    other.served()
    for name, body, words in [("rank", {"lora_config": {"rank": 65}}, ["`rank`", "64"]), ("memory of adapters", {"lora_config": {"rank": 64}}, ["1000000", "rank"]),
                              ("user_metadata", {"lora_config": {"rank": 1}, "user_metadata": {"x": "y" * 65536}}, ["65536"]),
                              ("model_seq_id", {"lora_config": {"rank": 1}, "model_seq_id": 1 << 40}, ["`model_seq_id`"])]:
        refused(name, ask("create_model", {"session_id": one, "model_seq_id": 1, "base_model": "model", **body}), *words)
    refused("metadata of a session", ask("create_session", {"user_metadata": {"x": "y" * 65536}}), "65536")
    for name in ("../x", "a/b", ".x", "x" * 129, "\u00e4", ""):
        refused(f"the name {name[:10]!r}", ask("save_weights", {"model_id": model, "path": name or " ", "seq_id": next(seq)}), "128")
    refused("ttl_seconds", ask("save_weights", {"model_id": model, "path": "a", "seq_id": next(seq), "ttl_seconds": 1 << 50}), "`ttl_seconds`")
    refused("metadata of what is saved", ask("save_weights", {"model_id": model, "path": "a", "seq_id": next(seq), "user_metadata": {"x": "y" * 65536}}), "65536")
    base = client.call("create_sampling_session", {"session_id": one, "base_model": "model"})["sampling_session_id"]
    for name, more, words in [("num_samples", {"num_samples": 1025}, ["1024"]), ("max_tokens", {"parameters": {"max_tokens": 1 << 40}}, ["`max_tokens`"]),
                              ("likeliest tokens", {"topk_sample_logprobs": 1025}, ["1024"]), ("likeliest tokens of a prompt", {"topk_prompt_logprobs": 1025}, ["1024"]),
                              ("likeliest tokens of all samples", {"num_samples": 1024, "topk_sample_logprobs": 1024, "parameters": {"max_tokens": 400}}, ["16777216"]),
                              ("stop texts", {"parameters": {"stop": ["x"] * 65}}, ["64"]), ("seq_id of a sample", {"seq_id": 1 << 63}, ["`seq_id`"]),
                              ("a prompt", {"prompt": {"chunks": [{"type": "encoded_text", "tokens": [1] * 601}]}}, ["at most"]),
                              ("no prompt", {"prompt": {"chunks": []}}, ["at least one"]),
                              ("targets of a prompt", {"target_prompt_logprobs": {"data": [1] * 1025, "shape": [1, 1025]}}, ["1024"])]:
        refused(name, ask("asample", sampling(base, 7, **more)), *words)
    for path in ("training_runs", "checkpoints", "sessions"):
        refused(f"limit of {path}", ask(path + "?limit=1001"), "1000")
    refused("a step", ask("optim_step", {"model_id": model, "seq_id": next(seq), "adam_params": {"learning_rate": 1e7}}), "from 0 to 1000000")
    other.served()
    # Each used up its number: the next one is answered.
    expect(logprobs(result(submit(model, next(seq), [ROW])))[1] > 0, "the model goes on")
    # An overflow is the request's fault.
    result(submit(model, next(seq), [datum([1, 2, 3], target_tokens=[2, 3, 4], weights=[3e38] * 3)]))
    refused("a step whose gradients overflow", result(client.step(model, next(seq))), "not finite")
    client.call(f"sessions/{one}/finish", {})
    other.leaves()


def counts():
    """Bounds of what clients may have at once."""
    other = Other()
    one = session()
    models = [client.create(one, i, rank=1) for i in range(5)]  # the other client has the sixth
    refused("models", ask("create_model", {"session_id": one, "model_seq_id": 5, "base_model": "model", "lora_config": {"rank": 1}}), "at most 6 models")
    other.served()
    # Requests that wait for one which does not come.
    model = models[0]
    for i in range(2, 5000):
        answer = ask("optim_step", {"model_id": model, "seq_id": i, "adam_params": {"learning_rate": 1e-3}})
        if answer[0] != 200:
            break
    refused("requests of a model that wait", answer, "4096", statuses=(429,))
    other.served()
    large = field(3, wide(POSITIONS, 500))
    for i in range(2, 400):
        answer = message(models[1], i, large)
        if answer[0] != 200:
            break
    refused("bytes of requests that wait", answer, "1073741824", "seven eighths", statuses=(429,))
    other.served()
    # What the others wait for is taken all the same, and then they are done.
    first = message(models[1], 1, large)
    expect(first[0] == 200, "the request that the others wait for", first)
    result(client.call("unload_model", {"model_id": models[1]}))
    result(client.call("unload_model", {"model_id": model}))
    for number in range(5000):
        answer = ask("create_sampling_session", {"session_id": one, "sampling_session_seq_id": number, "base_model": "model"})
        if answer[0] != 200:
            break
    refused("samplers", answer, "4096")
    other.served()
    # Many samples are sampled some at a time: the same ones, and others need not wait for all.
    few, many = (client.sample(f"{one}:sample:0", 100 + n, [3, 4], n)[1] for n in (3, 600))
    expect(many[:3] == few and len(many) == 600, "the first of many samples", few, many[:3])
    long = {"num_samples": 1024, "parameters": {"max_tokens": 590}}
    futures = []
    for i in range(16):
        answer = ask("asample", sampling(f"{one}:sample:0", i, **long))
        if answer[0] != 200:
            break
        futures.append(json.loads(answer[2]))
    refused("requests that are sampled", answer, "16", statuses=(429,))
    other.served()
    # The other client had its answer although the first of these is not done.
    client.call("cancel_future", {"request_id": futures[0]["request_id"]})
    refused("samples that were cancelled", result(futures[0]), "cancelled")
    client.call(f"sessions/{one}/finish", {})
    refused("samples of a session that has finished", result(futures[-1]), "finished")
    other.served()
    # Sessions: those without a model give way.
    for number in range(1100):
        if ask("create_session", {})[0] != 200:
            expect(False, "session", number)
            break
    other.served()
    other.leaves()


def slices():
    """Many targets a position: others are served meanwhile, and who cancels, unloads or leaves ends them."""
    other = Other()
    one = session()
    models = [client.create(one, i, rank=1) for i in range(3)]
    heavy = b"".join(field(3, wide(POSITIONS, 4000, sparse(POSITIONS, 4000, [(r, c) for r in range(0, POSITIONS, 64) for c in range(0, 4000, 3)]))) for _ in range(4))
    futures = [json.loads(message(model, seq, heavy)[2]) for model in models for seq in (1, 2, 3, 4)]
    other.served()
    for future in futures[:4]:
        client.call("cancel_future", {"request_id": future["request_id"]})
    other.served()
    unloaded = client.call("unload_model", {"model_id": models[1]})
    result(unloaded)
    client.call(f"sessions/{one}/finish", {})
    for name, future in [("a pass that was cancelled", futures[3]), ("a pass of a model that was unloaded", futures[7]), ("a pass of a session that has finished", futures[11])]:
        answer = result(future)
        if isinstance(answer, dict) and "error" in answer:  # or it was faster
            refused(name, answer)
    other.served()
    # Scores of other tokens, of which many requests wait, take turns with what others train.
    flooding = session()
    scorer = client.call("create_sampling_session", {"session_id": flooding, "base_model": "model"})["sampling_session_id"]
    scored = {"prompt": {"chunks": [{"type": "encoded_text", "tokens": [1 + i % 50 for i in range(POSITIONS)]}]}, "parameters": {"max_tokens": 1},
              "target_prompt_logprobs": {"data": [i % 50 for i in range((POSITIONS - 1) * 1024)], "shape": [POSITIONS - 1, 1024]}}
    scorings = [ask("asample", sampling(scorer, i, **scored)) for i in range(14)]
    expect(scorings[0][0] == 200, "a request for scores", scorings[0])
    other.served()
    client.call(f"sessions/{flooding}/finish", {})
    other.served()
    # Sparse answers cost nobody else a result.
    with As(OTHER):
        other.seq += 1
        kept = submit(other.model, other.seq, [ROW], forward_only=1)
        time.sleep(0.2)
    one = session()
    model = client.create(one)
    empty = field(3, wide(POSITIONS, 4096, sparse(POSITIONS, 4096, [(0, 0)]))) * 8
    futures = [json.loads(message(model, seq, empty + field(6, 1))[2]) for seq in range(1, 25)]  # 24 answers of 64 MiB
    answer = result(futures[-1])
    expect(len(logprobs(answer)[0]) == 8 and len(logprobs(answer)[0][0]) == POSITIONS * 4096, "a sparse answer")
    with As(OTHER):
        expect(logprobs(result(kept)) == other.first[0], "a result that waited")
    expect(1 in result(futures[0]) or 2 in result(futures[0]), "the first sparse answer")
    client.call(f"sessions/{one}/finish", {})
    other.leaves()


def keys():
    """What one key's clients have made is not there for another's; ids cannot be guessed."""
    one = session()
    model = client.create(one)
    saved = result(client.call("save_weights", {"model_id": model, "path": "mine", "seq_id": 1}))["path"]
    base = client.call("create_sampling_session", {"session_id": one, "base_model": "model"})["sampling_session_id"]
    done = submit(model, 2, [ROW])
    result(done)
    waits = submit(model, 4, [ROW])
    with As(OTHER):
        theirs = session()
        lora = {"base_model": "model", "lora_config": {"rank": 1}}
        for path, body, method in [("get_info", {"model_id": model}, None), ("optim_step", {"model_id": model, "seq_id": 3, "adam_params": {}}, None),
                                   ("save_weights", {"model_id": model, "path": "mine", "seq_id": 3, "overwrite": True}, None),
                                   ("load_weights", {"model_id": model, "path": saved, "seq_id": 3, "optimizer": False}, None),
                                   ("load_weights", {"session_id": theirs, "model_seq_id": 0, "path": saved, "optimizer": False}, None),
                                   ("save_weights_for_sampler", {"model_id": model, "sampling_session_seq_id": 0, "seq_id": 3}, None),
                                   ("unload_model", {"model_id": model}, None), ("create_model", {"session_id": one, "model_seq_id": 3, **lora}, None),
                                   ("create_sampling_session", {"session_id": one, "base_model": "model"}, None),
                                   ("create_sampling_session", {"session_id": theirs, "model_path": saved}, None), ("asample", sampling(base, 0), None),
                                   (f"sessions/{one}/finish", {}, None), ("weights_info", {"tinker_path": saved}, None), (f"samplers/{base}", None, None),
                                   (f"sessions/{one}", None, None), (f"training_runs/{model}", None, None), (f"training_runs/{model}/checkpoints", None, None),
                                   (f"training_runs/{model}/checkpoints/weights/mine", None, "DELETE"), (f"training_runs/{model}/checkpoints/weights/mine/publish", {}, "POST"),
                                   (f"training_runs/{model}/checkpoints/weights/mine/ttl", {"ttl_seconds": 1}, "PUT"), ("retrieve_future", done, None),
                                   ("retrieve_future", waits, None)]:
            status, _, text = ask(path, body, method)
            expect(status == 404, "another key's", method, path, body, status, text)
        expect(client.send(model, 3, [ROW])[0] == 404, "another key's forward_backward")
        expect(ask("session_heartbeat", {"session_id": one})[0] == 410, "another key's heartbeat")
        client.call("cancel_future", {"request_id": waits["request_id"]})
        for path in ("training_runs", "checkpoints", "sessions"):
            listed = client.call(path + "?limit=1000")
            expect(model not in json.dumps(listed) and one not in json.dumps(listed), path, listed)
    expect(model in json.dumps(client.call("training_runs?limit=1000")), "the key's own runs")
    expect(one in client.call("sessions?limit=1000")["sessions"], "the key's own sessions")
    result(client.step(model, 3))
    expect(logprobs(result(waits))[1] > 0, "a request that another key tried to cancel")
    # A public checkpoint is read by all.
    client.call(f"training_runs/{model}/checkpoints/weights/mine/publish", {})
    with As(OTHER):
        expect(client.call("weights_info", {"tinker_path": saved})["lora_rank"] == 4, "a public checkpoint")
        loaded = result(client.call("load_weights", {"session_id": theirs, "model_seq_id": 0, "path": saved, "optimizer": True}))
        expect(loaded.get("path") == saved, "a public checkpoint", loaded)
        expect(ask(f"training_runs/{model}/checkpoints/weights/mine", None, "DELETE")[0] == 404, "another key's public checkpoint")
    ids = [session() for _ in range(8)] + [submit(model, 5 + i, [ROW])["request_id"] for i in range(8)]
    for a in ids:
        for b in ids:
            expect(len(a) >= 24 and (a == b or sum(x == y for x, y in zip(a, b)) < 16), "ids that follow from each other", a, b)


{"requests": requests, "counts": counts, "slices": slices, "keys": keys}[part]()
sys.exit(client.bad)
