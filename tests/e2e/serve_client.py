"""A client of `temper serve`: serve_client.py TEMPER ADDRESS PART. Exit status 1 where an answer is wrong."""
import http.client
import json
import socket
import struct
import subprocess
import sys
import threading
import time

temper, address, part = sys.argv[1:]
host, port = address.removeprefix("http://").split(":")
SUM = "12+34="
bad = 0


def expect(condition, *what):
    global bad
    if not condition:
        print("FAILED:", *what, file=sys.stderr)
        bad = 1


def ask(path, body=None, headers={}):
    """(status, text) of a GET, or a POST where there is a body."""
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET" if body is None else "POST", path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def complete(chat=False, **body):
    status, text = ask("/v1/chat/completions" if chat else "/v1/completions", body)
    expect(status == 200, body, status, text)
    return json.loads(text)


def events(chat=False, **body):
    status, text = ask("/v1/chat/completions" if chat else "/v1/completions", {**body, "stream": True})
    expect(status == 200, body, status, text)
    lines = [line for line in text.split("\n") if line]
    expect(all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]", "events", text)
    return [json.loads(line[6:]) for line in lines[:-1]]


def generate(*flags, rows=({"prompt": SUM},)):
    """What `temper generate` gives."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    adapters = [] if part != "adapters" else ["--adapter", "a=a/final", "--adapter", "b=b/final"]
    done = subprocess.run([temper, "generate", "--model", "model", "--input", "-", "--output", "-", "--max-new-tokens", "12", *adapters, *flags],
                          input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def float32(number):
    return struct.pack("f", number)


def same(choice, row):
    """Whether a choice of completions has generate's tokens, text and bits."""
    return (choice["token_ids"] == row["tokens"] and choice["prompt_token_ids"] == row["prompt_tokens"] and choice["text"] == row["text"]
            and list(map(float32, choice["logprobs"]["token_logprobs"])) == list(map(float32, row["logprobs"]))
            and choice["finish_reason"] == row["finish_reason"])


ASKED = {"prompt": SUM, "max_tokens": 12, "logprobs": 0, "return_token_ids": True}


def routes():
    expect(ask("/health")[0] == 200, "/health")
    models = json.loads(ask("/v1/models")[1])
    size = json.load(open("model/config.json"))["vocab_size"]
    expect([(m["id"], m["vocab_size"]) for m in models["data"]] == [("model", size)], models)
    expect(json.loads(ask("/v1/models/model")[1])["id"] == "model" and ask("/v1/models/none")[0] == 404, "/v1/models/ID")
    expect("temper_serve_generated_tokens_total" in ask("/metrics")[1], "/metrics")
    status, text = ask("/nowhere")
    expect(status == 404 and json.loads(text)["error"]["message"], "/nowhere", text)


def completions():
    greedy = complete(**ASKED, temperature=0, model="model")
    row, = generate("--temperature", "0")
    expect(same(greedy["choices"][0], row), "greedy", greedy, row)
    usage = greedy["usage"]
    expect(usage["completion_tokens"] == len(row["tokens"]) and usage["prompt_tokens"] == len(row["prompt_tokens"]), usage)
    ids = complete(**{**ASKED, "prompt": row["prompt_tokens"]}, temperature=0)
    expect(ids["choices"] == greedy["choices"], "ids", ids)

    rows = generate("--seed", "7", "--num-samples", "2", "--ignore-eos", rows=[{"prompt": SUM}, {"prompt": "1+1="}])
    sampled = complete(**{**ASKED, "prompt": [SUM, "1+1="]}, n=2, seed=7, ignore_eos=True)
    expect([c["index"] for c in sampled["choices"]] == [0, 1, 2, 3], "order", sampled)
    expect(all(map(same, sampled["choices"], rows)), "seed", sampled, rows)
    flags = {"temperature": 1.5, "top_p": 0.8, "top_k": 6, "min_p": 0.01, "stop": ["3"], "seed": 5}
    row, = generate("--temperature", "1.5", "--top-p", "0.8", "--top-k", "6", "--min-p", "0.01", "--stop", "3", "--seed", "5")
    expect(same(complete(**ASKED, **flags)["choices"][0], row), "flags", row)
    texts = {complete(**ASKED, temperature=2, ignore_eos=True)["choices"][0]["text"] for _ in range(4)}
    expect(len(texts) > 1, "without a seed all are", texts)

    top = complete(**{**ASKED, "logprobs": 1}, temperature=0)["choices"][0]["logprobs"]
    expect([list(t.values())[0] for t in top["top_logprobs"]] == top["token_logprobs"], "top_logprobs", top)
    expect("".join(top["tokens"]).startswith(greedy["choices"][0]["text"]) and top["text_offset"][0] == 0, "tokens", top)


def streams():
    options = {**ASKED, "n": 2, "seed": 3, "temperature": 1.5, "ignore_eos": True, "stop": ["99"]}
    whole = complete(**options)["choices"]
    chunks = events(**options, stream_options={"include_usage": True})
    expect(chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] > 0, "usage", chunks[-1])
    chunks = [c["choices"][0] for c in chunks[:-1]]
    expect(len(chunks) > 6, "few pieces", chunks)
    for choice in whole:
        own = [c for c in chunks if c["index"] == choice["index"]]
        expect("".join(c["text"] for c in own) == choice["text"], "text", own, choice)
        expect(sum((c["token_ids"] for c in own), []) == choice["token_ids"], "ids", own, choice)
        expect(sum((c["logprobs"]["token_logprobs"] for c in own), []) == choice["logprobs"]["token_logprobs"], "logprobs", own, choice)
        expect([c["finish_reason"] for c in own] == [None] * (len(own) - 1) + [choice["finish_reason"]], "reasons", own)


def chats():
    messages = [{"role": "user", "content": SUM}]
    asked = {"messages": messages, "max_tokens": 12, "temperature": 0, "logprobs": True, "return_token_ids": True}
    whole = complete(chat=True, **asked)
    choice = whole["choices"][0]
    row, = generate("--temperature", "0", rows=[{"messages": messages}])
    expect(choice["message"] == {"role": "assistant", "content": row["text"]} and choice["token_ids"] == row["tokens"], choice, row)
    expect(whole["prompt_token_ids"] == row["prompt_tokens"], whole)
    expect([float32(t["logprob"]) for t in choice["logprobs"]["content"]] == list(map(float32, row["logprobs"])), "logprobs", choice)
    chunks = [c["choices"][0] for c in events(chat=True, **asked)]
    expect(chunks[0]["delta"] == {"role": "assistant", "content": ""}, chunks[0])
    expect("".join(c["delta"].get("content", "") for c in chunks) == row["text"] and chunks[-1]["finish_reason"] == choice["finish_reason"], chunks)


def errors():
    for path, body, status in [
            ("/v1/completions", "{", 400), ("/v1/completions", "[]", 400), ("/v1/completions", b"\xff", 400), ("/v1/completions", {}, 400),
            ("/v1/completions", {**ASKED, "model": "other"}, 404), ("/v1/completions", {**ASKED, "max_tokens": -1}, 400),
            ("/v1/completions", {**ASKED, "prompt": [1] * 1000}, 400), ("/v1/completions", {**ASKED, "max_tokens": 1000}, 400),
            ("/v1/completions", {**ASKED, "prompt": [10**6]}, 400), ("/v1/completions", {**ASKED, "prompt": [-1]}, 400),
            ("/v1/completions", {**ASKED, "prompt": ""}, 400), ("/v1/completions", {**ASKED, "temprature": 1}, 400),
            ("/v1/chat/completions", {"messages": []}, 400), ("/v1/chat/completions", {"messages": [{"role": "user", "content": 1}]}, 400),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "1"}], "tools": [{"type": "retrieval"}]}, 400),
            ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}, 400)]:
        found, text = ask(path, body)
        if status:
            expect(found == status and json.loads(text)["error"]["message"], path, body, found, text)
    # The HTTP library's bound on forms, which is what curl says that a body is.
    padded = json.dumps({**ASKED, "user": "x" * 10000})
    found, text = ask("/v1/completions", padded, {"Content-Type": "application/x-www-form-urlencoded"})
    expect(found == 200 or (found == 413 and "Content-Type: application/json" in json.loads(text)["error"]["message"]), "a large form", found, text)
    expect(ask("/v1/completions", padded, {"Content-Type": "application/json"})[0] == 200, "the same as JSON")
    found, text = ask("/v1/completions", b"x", {"Content-Encoding": "gzip"})
    expect(found == 415, "gzip", found, text)
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Content-Length", str(1 << 40))
    connection.endheaders()
    expect(connection.getresponse().status == 413, "a body of a terabyte")


def metric(name):
    return int(next(line.split()[1] for line in ask("/metrics")[1].splitlines() if line.startswith("temper_serve_" + name)))


def wait_until(condition, what):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    expect(False, what)


# Many samples, so that they take long.
LONG = {"prompt": [3], "max_tokens": 60, "n": 4000, "ignore_eos": True}


def begin(body, headers={}):
    """Sends a request; its connection."""
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    return connection


def clients():
    row, = generate("--temperature", "0")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(complete(**ASKED, temperature=0))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(len(answers) == 12 and all(same(a["choices"][0], row) for a in answers), "12 clients", answers)
    # A client that goes away leaves nothing behind, in both forms; others are answered beside it.
    for stream in (False, True):
        connection = begin({**LONG, "stream": stream})
        wait_until(lambda: metric("open_requests") == 1, "the long request has not begun")
        expect(same(complete(**ASKED, temperature=0)["choices"][0], row), "beside a long request")
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        wait_until(lambda: metric("open_requests") == 0, "a client that went away is still served")
        time.sleep(0.3)
        before = metric("generated_tokens_total")
        time.sleep(0.3)
        expect(metric("generated_tokens_total") == before, "sampling went on for nobody")


def abandoned():
    """The server ends meanwhile: 503, which clients repeat, and an event with it in a stream."""
    streamed = []
    stream = begin({**LONG, "stream": True})
    reading = threading.Thread(target=lambda: streamed.append(stream.getresponse().read().decode()))
    reading.start()
    waiting = begin(LONG)
    wait_until(lambda: metric("open_requests") == 2, "the requests have not begun")
    print("begun", flush=True)
    answer = waiting.getresponse()
    error = json.loads(answer.read())["error"]
    expect(answer.status == 503 and "has stopped" in error["message"], "an answer", answer.status, error)
    expect(answer.headers["Retry-After"] == "1", "Retry-After", answer.headers)
    reading.join()
    lines = [line for line in "".join(streamed).split("\n") if line] or ["", ""]
    expect(lines[-1] == "data: [DONE]" and json.loads(lines[-2][6:])["error"]["code"] == 503, "a stream", lines[-2:])


def drained():
    """The server is told to end meanwhile: it completes what it took, and takes nothing else."""
    stream = begin({**LONG, "n": 1000, "stream": True}).getresponse()
    lines = [stream.readline()]
    print("begun", flush=True)
    reading = threading.Thread(target=lambda: lines.extend(stream.read().splitlines()))
    reading.start()
    until = time.time() + 30
    while ask("/health")[0] == 200 and time.time() < until:
        time.sleep(0.02)
    for path, body in (("/health", None), ("/v1/completions", ASKED), ("/update_weights_from_disk", {"model_path": "model"})):
        status, text = ask(path, body)
        expect(status == 503 and ("is stopping" in text or "has stopped" in text), path, status, text)
    reading.join()
    ends = sum(b'"finish_reason":"length"' in line for line in lines)
    expect(ends == 1000 and b"data: [DONE]" in lines, "what it took", ends, lines[-3:])


def busy():
    """More than can be completed; whatever it answers."""
    connection = begin({**LONG, "stream": True})
    print("begun", flush=True)
    connection.getresponse().read()


def limits():
    key = {"Authorization": "Bearer secret"}
    expect(ask("/health")[0] == 200, "/health asks for a key")
    for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Bearer secrets"}):
        status, text = ask("/v1/completions", ASKED, headers)
        expect(status == 401 and json.loads(text)["error"]["message"], headers, status, text)
        expect(ask("/v1/models", None, headers)[0] == 401, "/v1/models", headers)
    expect(ask("/v1/completions", ASKED, key)[0] == 200, "the right key")
    connection = begin(LONG, key)
    time.sleep(0.5)
    status, text = ask("/v1/completions", ASKED, key)
    expect(status == 429 and json.loads(text)["error"]["message"], "a second request", status, text)
    connection.close()


def adapters():
    models = [m["id"] for m in json.loads(ask("/v1/models")[1])["data"]]
    expect(models == ["model", "a", "b"], models)
    rows = generate("--temperature", "0", rows=[{"prompt": SUM}, {"prompt": SUM, "adapter": "a"}, {"prompt": SUM, "adapter": "b"}])
    for model, row in zip(models, rows):
        expect(same(complete(**ASKED, temperature=0, model=model)["choices"][0], row), model, row)
    expect(len({tuple(row["logprobs"]) for row in rows}) == 3, "adapters change nothing", rows)


def bad_token():
    body = {"prompt": "12", "max_tokens": 32, "ignore_eos": True, "temperature": 0, "logit_bias": {"11": -100}}
    good = complete(**body)["choices"][0]
    beside = []
    threads = [threading.Thread(target=lambda: beside.append(complete(**body)["choices"][0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for prompt in ("1+2=", "+", ["12", "1+"]):
        for extra in ({}, {"n": 3}, {"echo": True, "logprobs": 1}):
            status, text = ask("/v1/completions", {"prompt": prompt, "max_tokens": 4, **extra})
            error = json.loads(text)["error"]
            expect(status == 500 and "not finite" in error["message"], prompt, extra, status, text)
    text = ask("/v1/completions", {"prompt": "1+2=", "stream": True})[1]
    expect('"error"' in text and "not finite" in text and "[DONE]" not in text, "a stream", text)
    for thread in threads:
        thread.join()
    expect(len(beside) == 4 and all(b["text"] == good["text"] and b["logprobs"] == good["logprobs"] for b in beside + [complete(**body)["choices"][0]]),
           "beside prompts that fail", beside)


def named():
    models = [m["id"] for m in json.loads(ask("/v1/models")[1])["data"]]
    expect(models == ["tiny"], models)
    for name in ("tiny", "small"):
        expect(complete(**ASKED, temperature=0, model=name)["model"] == "tiny", name)
    expect(ask("/v1/completions", {**ASKED, "model": "other"})[0] == 404, "another name")
    for _ in range(3):
        complete(**ASKED, top_a=0.2)
    messages = [{"role": "user", "content": "12+"}]
    asked = {"messages": messages, "max_tokens": 1, "return_token_ids": True}
    row, = generate("--temperature", "0", rows=[{"messages": [{"role": "user", "content": SUM}]}])
    varied = complete(chat=True, **asked, chat_template_kwargs={"extra": "34="})
    expect(varied["prompt_token_ids"] == row["prompt_tokens"], "chat_template_kwargs", varied, row)
    expect(len(complete(chat=True, **asked)["prompt_token_ids"]) < len(row["prompt_tokens"]), "without them")
    # One connection for many requests.
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    for _ in range(3):
        connection.request("POST", "/v1/completions", json.dumps(ASKED), {"Content-Type": "application/json"})
        socket_before = connection.sock
        expect(connection.getresponse().read() and connection.sock is socket_before, "the connection ended")
        time.sleep(0.1)


def suggested():
    row, = generate("--temperature", "0")
    for _ in range(3):
        expect(complete(**ASKED, ignore_eos=True)["choices"][0]["token_ids"][:len(row["tokens"])] == row["tokens"], "top_k 1")
    texts = {complete(**ASKED, temperature=2, top_k=-1, ignore_eos=True)["choices"][0]["text"] for _ in range(4)}
    expect(len(texts) > 1, "requests win, yet all are", texts)


def not_suggested():
    texts = {complete(**ASKED, temperature=2, ignore_eos=True)["choices"][0]["text"] for _ in range(4)}
    expect(len(texts) > 1, "all are", texts)


PARTS = {"named": [named], "suggested": [suggested], "not_suggested": [not_suggested], "bad_token": [bad_token], "all": [routes, completions, streams, chats, errors, clients], "abandoned": [abandoned], "drained": [drained], "busy": [busy], "limits": [limits], "adapters": [adapters]}
for function in PARTS[part]:
    function()
sys.exit(bad)
