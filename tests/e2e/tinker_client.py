"""A client of `temper serve --tinker` in plain HTTP: tinker_client.py ADDRESS STATE_DIR PART. Exit status 1 where an answer is wrong."""
import http.client
import json
import os
import struct
import sys
import threading

address, state, part = sys.argv[1:]
host, port = address.removeprefix("http://").split(":")
KEY = {"X-API-Key": "tml-test"}
bad = 0


def expect(condition, *what):
    global bad
    if not condition:
        print("FAILED:", *what, file=sys.stderr)
        bad = 1


def ask(path, body=None, method=None, headers=KEY, kind="application/json"):
    """(status, content type, bytes)."""
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request(method or ("GET" if body is None else "POST"), "/api/v1/" + path, data, {**headers, "Content-Type": kind})
    answer = connection.getresponse()
    return answer.status, answer.getheader("content-type"), answer.read()


def call(path, body=None, method=None):
    status, _, text = ask(path, body, method)
    expect(status == 200, path, status, text)
    return json.loads(text)


def result(future):
    """What a future becomes: JSON, or the fields of a message."""
    while True:
        status, kind, text = ask("retrieve_future", {"request_id": future["request_id"]})
        if status != 408:
            break
    expect(status == 200, "future", status, text)
    return fields(text) if kind == "application/x-protobuf" else json.loads(text)


# Protobuf: {number: [values]}, bytes as they are.
def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    found, at = {}, 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        else:
            size = number()
            value, at = data[at:at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def tensor(values):
    integer = isinstance(values[0], int)
    data = struct.pack(f"<{len(values)}{'q' if integer else 'f'}", *values)
    return field(1, data) + field(3, 2 if integer else 1) + field(4, varint(len(values)))


def datum(tokens, **inputs):
    out = field(1, field(1, field(1, struct.pack(f"<{len(tokens)}i", *tokens))))
    for name, values in inputs.items():
        out += field(2, field(1, name) + field(2, tensor(values)))
    return out


def send(model, seq, data, loss="cross_entropy", forward_only=0, config={}):
    body = field(1, model) + field(2, seq) + b"".join(field(3, d) for d in data) + field(4, loss) + field(6, forward_only)
    for key, value in config.items():
        body += field(5, field(1, key) + field(2, value))
    return ask("forward_backward", body, kind="application/x-protobuf")


def submit(*arguments, **options):
    status, _, text = send(*arguments, **options)
    expect(status == 200, arguments[1], status, text)
    return json.loads(text)


def logprobs(output):
    """By datum, and the loss."""
    record = fields(output[2][0])
    values = fields(fields(record[2][0])[2][0])
    all_values, offsets = floats(values[1][0]), struct.unpack(f"<{len(values[2][0]) // 8}q", values[2][0])
    metrics = {fields(m)[1][0].decode(): fields(m)[2][0] for m in output[3]}
    return [all_values[a // 4:b // 4] for a, b in zip(offsets, offsets[1:])], metrics["loss:sum"]


def session():
    return call("create_session", {"tags": [], "user_metadata": None, "sdk_version": "0.38.0", "type": "create_session"})["session_id"]


def create(session_id, number=0, rank=4, seed=1, **more):
    body = {"session_id": session_id, "model_seq_id": number, "base_model": "model", "lora_config": {"rank": rank, "seed": seed}, **more}
    made = result(call("create_model", body))
    expect(made.get("model_id") == f"{session_id}:train:{number}", made)
    return made["model_id"]


def step(model, seq, rate=1e-2, **adam):
    return call("optim_step", {"model_id": model, "seq_id": seq, "adam_params": {"learning_rate": rate, **adam}})


ROW = datum([1, 2, 3, 4], target_tokens=[2, 3, 4, 5], weights=[0.0, 1.0, 1.0, 1.0])
OTHER = datum([7, 8, 9], target_tokens=[8, 9, 10], weights=[1.0, 1.0, 1.0])


def train(model, rows, steps, first=1):
    """Losses of so many steps; both requests are sent before either is awaited."""
    losses = []
    for i in range(steps):
        passed, stepped = submit(model, first + 2 * i, rows), step(model, first + 2 * i + 1)
        losses.append(logprobs(result(passed))[1])
        expect("metrics" in result(stepped), "optim_step")
    return losses


def sampler(model, seq, number=0):
    saved = result(call("save_weights_for_sampler", {"model_id": model, "sampling_session_seq_id": number, "seq_id": seq, "kind": "snapshot"}))
    return saved["sampling_session_id"]


def sample(sampler_id, seq, prompt, count=1, tokens=6, **more):
    parameters = {"max_tokens": tokens, "temperature": more.pop("temperature", 1), "seed": 5, "stop": []}
    body = {"sampling_session_id": sampler_id, "seq_id": seq, "num_samples": count, "sampling_params": parameters,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": prompt}]}, **more}
    future = call("asample", body)
    expect(len(future["sample_sequence_ids"]) == count, future)
    answer = result(future)
    sequences = [fields(s) for s in answer[1]]
    return answer, [(list(struct.unpack(f"<{len(s[2][0]) // 4}i", s[2][0])), floats(s[3][0])) for s in sequences]


def same_as_forward(model, seq, sampler_id, number=0):
    """What was sampled has, bit for bit, forward's log-probabilities."""
    for tokens, found in sample(sampler_id, number, [5, 6, 7], 3)[1]:
        expect(len(tokens) == 6, tokens)
        row = datum(([5, 6, 7] + tokens)[:-1], target_tokens=([5, 6, 7] + tokens)[1:])
        forward = logprobs(result(submit(model, seq, [row], forward_only=1)))[0][0]
        seq += 1
        expect(forward[2:] == found, "sampled", found, "forward", forward[2:])
    return seq


def basics():
    expect(ask("get_server_capabilities", headers={})[0] == 401, "no key")
    expect("model" in [m["model_name"] for m in call("get_server_capabilities")["supported_models"]], "capabilities")
    one = session()
    call("session_heartbeat", {"session_id": one})
    expect(ask("session_heartbeat", {"session_id": "none"})[0] == 410, "heartbeat of no session")
    call("telemetry", {"events": []})
    model = create(one)
    info = call("get_info", {"model_id": model})
    expect(info["is_lora"] and info["lora_rank"] == 4, info)
    # A new adapter changes nothing.
    base = call("create_sampling_session", {"session_id": one, "sampling_session_seq_id": 50, "base_model": "model"})["sampling_session_id"]
    seq = same_as_forward(model, 1, base)
    losses = train(model, [ROW, OTHER], 3, seq)
    expect(losses[2] < losses[0], losses)
    seq += 6
    trained = sampler(model, seq)
    seq = same_as_forward(model, seq + 1, trained)
    # Idempotency: one request, one future; another content is refused for good.
    first, again = submit(model, seq, [ROW]), submit(model, seq, [ROW])
    expect(first == again, first, again)
    expect(send(model, seq, [OTHER])[0] == 400, "another content")
    # Prompt log-probabilities and likeliest tokens, at temperature 1 whatever samples have.
    answer, _ = sample(trained, 9, [5, 6, 7], temperature=0.7, prompt_logprobs=True, topk_prompt_logprobs=2)
    forward = logprobs(result(submit(model, seq + 1, [datum([5, 6], target_tokens=[6, 7])], forward_only=1)))[0][0]
    prompt = floats(answer[2][0])
    expect(prompt[0] != prompt[0] and prompt[1:] == forward, prompt, forward)
    expect(fields(answer[3][0])[3] == [2] and fields(answer[3][0])[4] == [3], "topk")
    # Adam is a real step without gradients, too.
    result(step(model, seq + 2))
    result(step(model, seq + 3))


def order():
    """Chunks that arrive out of order are executed in order; a refused one uses up its number."""
    one = session()
    alone, mixed = create(one, 0), create(one, 1)
    expected = train(alone, [ROW], 2)
    second, third, fourth = step(mixed, 2), submit(mixed, 3, [ROW]), step(mixed, 4)
    first = submit(mixed, 1, [ROW])
    expect([logprobs(result(first))[1], logprobs(result(third))[1]] == expected, "order")
    for future in (second, fourth):
        result(future)
    bad_row = datum([1, 2, 3], target_tokens=[2, 3])
    expect(send(mixed, 5, [bad_row])[0] == 400 and send(mixed, 5, [bad_row])[0] == 400, "a refused request")
    left, right = submit(mixed, 6, [ROW]), submit(alone, 5, [ROW])
    expect(logprobs(result(left)) == logprobs(result(right)), "a refused request left something behind")


def together():
    """Four clients at once, which share passes, get each what it would have alone, while a fifth samples."""
    one = session()
    rows = [[ROW], [OTHER], [ROW, OTHER], [OTHER, OTHER, ROW]]
    alone = [train(create(one, i, rank=2 + i, seed=i), rows[i], 4) for i in range(4)]
    models = [create(one, 4 + i, rank=2 + i, seed=i) for i in range(4)]
    base = call("create_sampling_session", {"session_id": one, "sampling_session_seq_id": 0, "base_model": "model"})["sampling_session_id"]
    quiet = sample(base, 0, [3, 4], 4, 20)[1]
    found, samples = [None] * 4, []
    threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, train(models[i], rows[i], 4))) for i in range(4)]
    for t in threads:
        t.start()
    for i in range(5):
        samples.append(sample(base, 1 + i, [3, 4], 4, 20)[1])
    for t in threads:
        t.join()
    expect(found == alone, "losses together", found, "alone", alone)
    expect(all(s == quiet for s in samples), "samples beside training")


def errors():
    one = session()
    model = create(one)
    for seq, (loss, row, config) in enumerate([("stable_reinforce", ROW, {}), ("mse", ROW, {}), ("ppo", ROW, {}), ("cross_entropy", datum([1, 99999], target_tokens=[1, 2]), {}),
                                               ("cross_entropy", datum([1], target_tokens=[-1]), {}), ("cross_entropy", ROW, {"beta": 1.0})], 1):
        status, _, text = send(model, seq, [row], loss, config=config)
        expect(status == 400 and json.loads(text)["error"]["message"], loss, status, text)
    for path, body, expected in [("create_model", {"session_id": "x", "model_seq_id": 0, "base_model": "model", "lora_config": {"rank": 1}}, 404),
                                 ("create_model", {"session_id": one, "model_seq_id": 5, "base_model": "another", "lora_config": {"rank": 1}}, 400),
                                 ("create_model", {"session_id": one, "model_seq_id": 5, "base_model": "model"}, 400),
                                 ("create_model", {"session_id": one, "model_seq_id": 5, "base_model": "model", "lora_config": {"rank": 0}}, 400),
                                 ("create_model", {"session_id": one, "model_seq_id": 5, "base_model": "model", "lora_config": {"rank": 1}, "optimizer_config": {"type": "dimuon"}}, 400),
                                 ("optim_step", {"model_id": "x", "seq_id": 1, "adam_params": {}}, 404), ("optim_step", {"model_id": model, "seq_id": 7, "adam_params": {"beta1": 2}}, 400),
                                 ("save_weights", {"model_id": model, "seq_id": 8, "path": "../../etc"}, 400), ("load_weights", {"model_id": model, "seq_id": 9, "path": "tinker://a/weights/b", "optimizer": False}, 404),
                                 ("asample", {"sampling_session_id": "x", "prompt": {"chunks": []}}, 404), ("retrieve_future", {"request_id": "x"}, 404), ("nothing", {}, 404),
                                 ("get_info", b"{", 400), ("get_info", b"[]", 400), ("forward_backward", b"\xff" * 100, 400)]:
        status, _, text = ask(path, body, kind="application/x-protobuf" if path == "forward_backward" else "application/json")
        expect(status == expected, path, body, status, text)
        expect(json.loads(text)["error"]["message"], path, text)
    # Messages name the field, say what was found and what was expected, in this program's own words.
    lora = {"session_id": one, "model_seq_id": 5, "base_model": "model"}
    for path, body, words in [("create_model", {"base_model": "model"}, ["`session_id`: missing"]), ("session_heartbeat", {}, ["`session_id`: missing"]),
                              ("get_info", {}, ["`model_id`: missing"]), ("retrieve_future", {}, ["`request_id`: missing"]),
                              ("create_model", {**lora, "lora_config": {"rank": 1, "seed": 1 << 63}}, ["`seed`: found 9223372036854775808", "to 9223372036854775807"]),
                              ("optim_step", {"model_id": model, "seq_id": 12, "adam_params": {"learning_rate": 1e38}}, ["`learning_rate`: found 1e+38", "from 0 to 1000000"]),
                              ("optim_step", {"model_id": model, "seq_id": 13, "adam_params": {"beta1": 1}}, ["`beta1`: found 1,", "below 1"]),
                              ("optim_step", {"model_id": model, "seq_id": 14, "adam_params": {"weight_decy": 1}}, ["`weight_decy`: unknown", "`weight_decay`"]),
                              ("forward_backward", b"\x0a\x7fshort", ["protobuf", "ends within a field"]), ("forward_backward", b"\xff" * 100, ["more than 64 bits"])]:
        status, _, text = ask(path, body, kind="application/x-protobuf" if path == "forward_backward" else "application/json")
        message = json.loads(text)["error"]["message"]
        expect(status == 400 and all(w in message for w in words) and "exception" not in message, path, body, status, message)
    for method, path, allowed in [("GET", "optim_step", "POST"), ("DELETE", "forward_backward", "POST"), ("POST", "training_runs", "GET, HEAD"), ("POST", "healthz", "GET, HEAD"),
                                  ("GET", "sessions/x/finish", "POST"), ("GET", "training_runs/a/checkpoints/weights/b/publish", "POST, DELETE"), ("PATCH", "samplers/x", "GET, HEAD")]:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request(method, "/api/v1/" + path, headers=KEY)
        answer = connection.getresponse()
        expect(answer.status == 405 and answer.getheader("allow") == allowed and json.loads(answer.read())["error"]["message"], method, path, answer.status, answer.getheader("allow"))
    expect(ask("training_runs/..%2F..%2Fx")[0] == 404, "a path")
    # An image cannot be read; its number is used up all the same. One of another type is, too.
    for _ in range(2):
        status, _, text = send(model, 10, [field(1, field(2, field(1, b"pixels")))])
        expect(status == 400 and "image" in json.loads(text)["error"]["message"], "an image", status, text)
    expect(ask("load_weights", {"model_id": model, "seq_id": 11, "path": 5, "optimizer": "yes"})[0] == 400, "types of load_weights")
    expect(send(model, 15 + 65536, [ROW])[0] == 400, "a number far ahead")
    expect(logprobs(result(submit(model, 15, [ROW])))[1] > 0, "the model goes on")


def saves():
    """Leaves a checkpoint behind, and what its run would go on with."""
    one = session()
    model = create(one, user_metadata={"renderer": "role_colon"})
    train(model, [ROW], 2)
    saved = result(call("save_weights", {"model_id": model, "path": "first", "seq_id": 5}))
    weights = result(call("save_weights_for_sampler", {"model_id": model, "path": "first", "seq_id": 6}))
    expect(saved["path"] == f"tinker://{model}/weights/first" and weights["path"] == f"tinker://{model}/sampler_weights/first", saved, weights)
    again = result(call("save_weights", {"model_id": model, "path": "first", "seq_id": 7})) if ask("save_weights", {"model_id": model, "path": "first", "seq_id": 7})[0] == 200 else {}
    expect(not again, "a name that exists", again)
    expect(os.path.exists(f"{state}/runs/{model}/weights/first/adapter_model.safetensors"), "PEFT's file")
    losses = train(model, [ROW, OTHER], 3, 8)
    with open("expected.json", "w") as file:
        json.dump({"model": model, "path": saved["path"], "weights": weights["path"], "losses": losses}, file)


def loads():
    """Goes on from what `saves` left, in another server."""
    before = json.load(open("expected.json"))
    run = call(f"training_runs/{before['model']}")
    expect(run["user_metadata"] == {"renderer": "role_colon"} and run["last_checkpoint"]["tinker_path"] == before["path"], run)
    expect(before["model"] in [r["training_run_id"] for r in call("training_runs?limit=100")["training_runs"]], "training_runs")
    expect(call("weights_info", {"tinker_path": before["path"]})["lora_rank"] == 4, "weights_info")
    expect(ask("optim_step", {"model_id": before["model"], "seq_id": 20, "adam_params": {}})[0] == 404, "a model of the server before")
    one = session()
    body = {"session_id": one, "model_seq_id": 0, "path": before["path"], "optimizer": True}
    expect(result(call("load_weights", body))["path"] == before["path"], "load_weights")
    losses = train(f"{one}:train:0", [ROW, OTHER], 3)
    expect(losses == before["losses"], "losses after loading", losses, before["losses"])
    base = call("create_sampling_session", {"session_id": one, "sampling_session_seq_id": 0, "model_path": before["weights"]})["sampling_session_id"]
    body = {"session_id": one, "model_seq_id": 1, "path": before["path"], "optimizer": False}
    result(call("load_weights", body))
    same_as_forward(f"{one}:train:1", 1, base)
    expect(len(call(f"training_runs/{before['model']}/checkpoints")["checkpoints"]) == 2, "checkpoints")
    call(f"training_runs/{before['model']}/checkpoints/sampler_weights/first", method="DELETE")
    expect(len(call(f"training_runs/{before['model']}/checkpoints")["checkpoints"]) == 1, "a removed checkpoint")


if __name__ == "__main__":
    {"basics": basics, "order": order, "together": together, "errors": errors, "saves": saves, "loads": loads}[part]()
    sys.exit(bad)
