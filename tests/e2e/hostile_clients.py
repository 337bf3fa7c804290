"""Hostile and broken clients: hostile_clients.py ADDRESS PID KEY CASE... (KEY "": none; no CASE: all). After each case the server must answer a
plain completion and /health, and must have given its memory back; otherwise the exit status is 1. Environment variable ONE_BODY: the server's
--max-request-bytes."""
import http.client
import json
import os
import select
import socket
import struct
import sys
import threading
import time

address, pid, key, *chosen = sys.argv[1:]
host, port = address.removeprefix("http://").split(":")
port = int(port)
LIMIT = int(os.environ.get("ONE_BODY", 4 << 20))
AUTH = f"Authorization: Bearer {key}\r\n" if key else ""
HOST = f"Host: {host}:{port}\r\n"
PATIENCE = 120  # seconds, on a machine that is busy
bad = 0


def expect(condition, *what):
    global bad
    if not condition:
        print("FAILED:", *[str(w)[:500] for w in what], file=sys.stderr)
        bad = 1


def memory(field="VmRSS"):
    """MiB."""
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith(field)) / 1024


def ask(path, body=None, headers={}, method=None, source=None):
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE, source_address=source)
    all_headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {}), **headers}
    data = None if body is None else body if isinstance(body, (str, bytes)) else json.dumps(body)
    connection.request(method or ("GET" if body is None else "POST"), path, data, {k: v for k, v in all_headers.items() if v is not None})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text


def connect():
    s = socket.create_connection((host, port), timeout=PATIENCE)
    return s


def raw(data, most=1 << 16):
    """What a connection answers to bytes until it ends; b"" where it was reset."""
    s = connect()
    out = b""
    try:
        s.sendall(data if isinstance(data, bytes) else data.encode())
        while len(out) < most:
            part = s.recv(65536)
            if not part:
                break
            out += part
    except ConnectionError:
        pass
    finally:
        s.close()
    return out


def post_head(path="/v1/completions", more=""):
    return f"POST {path} HTTP/1.1\r\n{HOST}{AUTH}Content-Type: application/json\r\n{more}\r\n"


def plain():
    status, text = ask("/v1/completions", {"prompt": "12+34=", "max_tokens": 4, "temperature": 0})
    expect(status == 200, "a plain completion", status, text)
    status, text = ask("/health")
    expect(status == 200, "/health", status, text)


def refused(body, path="/v1/completions", statuses=(400,), headers={}):
    status, text = ask(path, body, headers)
    expect(status in statuses and (status == 200 or '"error"' in text), path, body if len(str(body)) < 300 else str(body)[:300], status, text)


CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "1"}]


def deep_json():
    for depth in (600, 100_000, 1_000_000):
        for open_, close in (("[", "]"), ('{"a":', "}")):
            deep = open_ * depth + ("1" if open_ != "[" else "") + close * depth
            if len(deep) > LIMIT - 1000:
                continue
            refused('{"prompt": ' + deep + "}")
            refused('{"prompt": "1", "tools": ' + deep + "}", statuses=(400, 200))
            for arguments in (deep, open_ * depth):
                refused({"messages": USER + [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]}, CHAT)
            refused('{"messages": [{"role": "user", "content": ' + deep + "}]}", CHAT)
            refused('{"messages": [{"role": "user", "content": "1"}], "chat_template_kwargs": {"x": ' + deep + "}}", CHAT)
            refused('{"prompt": "1", "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": ' + deep + "}}}")
            refused({"prompt": "1", "guided_json": deep})
    nested = {"type": "object"}
    for _ in range(400):
        nested = {"type": "object", "properties": {"a": nested}, "required": ["a"]}
    refused({"prompt": "1", "guided_json": nested})


def large_bodies():
    """Announced, chunked and endless ones: nothing beyond the limit is kept."""
    before = memory()
    for head in (f"Content-Length: {1 << 40}\r\n", f"Content-Length: {LIMIT + 1}\r\n"):
        expect(b" 413 " in raw(post_head(more=head))[:20], head)
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    peak = [before]

    def endless():
        s = connect()
        try:
            s.sendall(post_head(more="Transfer-Encoding: chunked\r\n").encode())
            until = time.time() + 3
            while time.time() < until:
                s.sendall(chunk)
                peak.append(memory())
        except OSError:
            pass
        s.close()
    threads = [threading.Thread(target=endless) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    most = 8 * 2.5 * LIMIT / 2**20 + 64
    expect(max(peak) - before < most, f"eight endless bodies took {max(peak) - before:.0f} MiB, expected at most {most:.0f}")
    if key:  # whoever has no key is not read at all
        before = memory()
        s = connect()
        head = f"POST /v1/completions HTTP/1.1\r\n{HOST}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        try:
            s.sendall(head)
            for _ in range(600):
                s.sendall(chunk)
        except OSError:
            pass
        expect(memory() - before < 32, "without a key", memory() - before)
        answer = raw(head)
        expect(b" 401 " in answer[:20], "without a key, before the body", answer)


def large_values():
    """As large as the limit allows, of what becomes the most memory; one at a time, and what they took is given back."""
    before = memory()
    for text in ("[" + "1," * (LIMIT // 2 - 100) + "1]", "[" + "[]," * (LIMIT // 3 - 100) + "1]", '[' + '{"":0},' * (LIMIT // 7 - 100) + "1]",
                 '{' + ",".join(f'"{i}":0' for i in range(LIMIT // 12)) + "}", json.dumps("a" * (LIMIT - 1000))):
        refused('{"prompt": ' + text[:LIMIT - 100] + "}", statuses=(400, 413))
        refused('{"prompt": "1", "user": ' + text + "}", statuses=(400, 413, 200))
    until = time.time() + PATIENCE
    while memory() - before > 100 and time.time() < until:
        time.sleep(0.2)
    expect(memory() - before <= 100, f"memory after large requests: {before:.0f} MiB before, {memory():.0f} now")


def endless_heads():
    before = memory()
    for piece in (b"a: b\r\n", b"x" * 1024, b"x: " + b"y" * 60000 + b"\r\n"):
        s = connect()
        sent = 0
        try:
            s.sendall(f"GET /health HTTP/1.1\r\n{HOST}".encode())
            while sent < 60 << 20:
                s.sendall(piece * (65536 // len(piece) + 1))
                sent += 65536
        except OSError:
            pass
        s.close()
    expect(memory() - before < 32, f"endless heads took {memory() - before:.0f} MiB")
    expect(b" 431 " in raw(f"GET /{'a' * 100000} HTTP/1.1\r\n")[:20], "a long path")


def dripping_sockets():
    sockets = []
    for i in range(700):
        try:
            s = connect()
            s.sendall((b"", b"G", f"POST /v1/completions HTTP/1.1\r\n{HOST}{AUTH}Content-Length: 1000\r\n\r\n{{".encode())[i % 3])
            sockets.append(s)
        except OSError:
            pass
    stop = threading.Event()

    def drip():
        while not stop.wait(0.2):
            for s in sockets:
                try:
                    s.send(b" ", socket.MSG_DONTWAIT)
                except OSError:
                    pass
    thread = threading.Thread(target=drip)
    thread.start()
    for _ in range(3):
        plain()
    stop.set()
    thread.join()
    for s in sockets:
        s.close()


def stalled_readers():
    """Streams that nobody reads end, or wait without keeping others out."""
    sockets = []
    body = json.dumps({"prompt": "1+1=", "max_tokens": 50, "n": 16, "ignore_eos": True, "stream": True, "logprobs": 5}).encode()
    for _ in range(40):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.settimeout(PATIENCE)
        s.connect((host, port))
        s.sendall(post_head(more=f"Content-Length: {len(body)}\r\n").encode() + body)
        sockets.append(s)
    until = time.time() + PATIENCE
    while time.time() < until:
        status, text = ask("/v1/completions", {"prompt": "12+34=", "max_tokens": 4})
        if status == 200:
            break
        expect(status == 429, "beside streams that nobody reads", status, text)
        time.sleep(0.2)
    expect(status == 200, "beside streams that nobody reads", status, text)
    for s in sockets:
        s.close()


def pages():
    evil = {"Origin": "http://evil.example"}
    for path, body in (("/v1/completions", {"prompt": "1"}), ("/update_weights_from_disk", {"model_path": "/tmp"})):
        refused(body, path, (403,), evil)
        refused(body, path, (403,), {"Origin": "null"})
        refused(body, path, (403,), {"Origin": "http://localhost.evil.example"})
        refused(body, path, (403,), {"Sec-Fetch-Site": "cross-site"})
        for kind in ("text/plain", "multipart/form-data; boundary=x", "text/plain;application/json", "application/octet-stream"):
            refused(body, path, (415,), {"Content-Type": kind})
        refused(body, path, (415,), {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://localhost"})
        refused(body, path, (415,), {"Content-Encoding": "gzip"})
        if not key:
            refused(body, path, (421,), {"Host": "evil.example"})
    expect(ask("/v1/models", None, evil)[0] == 403, "GET of a foreign page")
    expect(ask("/v1/completions", {"prompt": "1", "max_tokens": 1}, {"Origin": "http://localhost:3000"})[0] == 200, "a page of this machine")
    status, text = ask("/v1/completions", None, {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}, "OPTIONS")
    expect(status == 403, "a foreign preflight", status, text)
    expect(ask("/v1/completions", None, {"Origin": "http://127.0.0.1:3"}, "OPTIONS")[0] == 204, "a preflight of this machine")


def smuggling():
    body = '{"prompt": "1", "max_tokens": 1}'
    chunked = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    secret = "GET /metrics HTTP/1.1\r\n" + HOST + AUTH + "\r\n"
    for more, rest in [("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunked), ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", chunked),
                       ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked), ("Transfer-Encoding: xchunked\r\n", chunked),
                       ("Transfer-Encoding: chunked, identity\r\n", chunked), ("Transfer-Encoding:\x0bchunked\r\n", chunked),
                       ("Content-Length: 5\r\nContent-Length: 6\r\n", body), ("Content-Length: -5\r\n", body), ("Content-Length: 5x\r\n", body),
                       ("Content-Length: 99999999999999999999999\r\n", body), ("Content-Length : 5\r\n", body), (" Content-Length: 5\r\n", body),
                       ("Transfer-Encoding: chunked\r\n", "zz\r\n"), ("Transfer-Encoding: chunked\r\n", "-5\r\nhello\r\n"),
                       ("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\n"), ("Transfer-Encoding: chunked\r\n", "5\r\nhelloXX0\r\n\r\n"),
                       ("Transfer-Encoding: chunked\r\n", "5;" + "x" * 200000), ("Transfer-Encoding: chunked\r\n", "0\r\n" + "a: b\r\n" * 50000),
                       (HOST, body), ("Bad Name: x\r\n", body), ("X: a\x00b\r\n", body), ("X: a\rb\r\n", body)]:
        answer = raw(post_head(more=more) + rest + secret)
        expect(not answer or (answer.startswith(b"HTTP/1.1 4") and answer.count(b"HTTP/1.1 ") == 1), repr(more), repr(rest[:60]), answer)
    for line in ("GET /health", "GET /health HTTP/9.9\r\n\r\n", "\r\n" * 50 + "x", "GET http:// HTTP/1.1\r\n\r\n", "GET \x00 HTTP/1.1\r\n\r\n",
                 "CONNECT a:1 HTTP/1.1\r\n" + HOST + "\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        s = connect()
        s.sendall(line.encode())
        s.shutdown(socket.SHUT_WR)
        answer = s.recv(65536)
        expect(not answer or answer.startswith(b"HTTP/1.1 4"), repr(line), answer)
        s.close()


def pipelining():
    s = connect()
    one = f"GET /v1/models HTTP/1.1\r\n{HOST}{AUTH}\r\n"
    s.sendall((one * 50).encode())
    text = b""
    while text.count(b"HTTP/1.1 200 OK") < 50:
        part = s.recv(65536)
        if not part:
            break
        text += part
    expect(text.count(b"HTTP/1.1 200 OK") == 50, "50 requests at once", text.count(b"HTTP/1.1 200 OK"))
    s.close()


def other_protocols():
    for start in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(32), b"\x16\x03\x01", b"\x00" * 100, os.urandom(5000),
                  b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x00\x02", b"*1\r\n$4\r\nPING\r\n"):
        s = connect()
        s.sendall(start)
        s.shutdown(socket.SHUT_WR)
        try:
            answer = s.recv(65536)
            expect(not answer or answer.startswith(b"HTTP/1.1 4"), start[:20], answer)
        except ConnectionError:
            pass
        s.close()


def bytes_and_paths():
    for body in (b"\xff", b'{"prompt": "\xff\xfe"}', b'{"prompt": "\xed\xa0\x80"}', b'{"pro\x00mpt": "1"}', b'{"prompt": "\\ud800"}', b"\xef\xbb\xbf{}", b"\x00" * 1000):
        refused(body)
    status, text = ask("/v1/completions", {"prompt": "1\x00\x012", "max_tokens": 1})
    expect(status in (200, 400), "a NUL in a prompt", status, text)
    for path in ("/%00", "/v1/models/%00", "/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/%ff%fe", "/" + "%41" * 5000, "/v1//completions", "/%", "/%zz",
                 "/v1/models/" + "a" * 20000, "/\x7f", "//evil.example/v1/models"):
        answer = raw(f"GET {path} HTTP/1.1\r\n{HOST}{AUTH}Connection: close\r\n\r\n")
        expect(answer.startswith(b"HTTP/1.1 4"), path[:60], answer[:200])


def numbers():
    for member in ("n", "max_tokens", "best_of", "top_k", "logprobs", "min_tokens", "no_repeat_ngram_size", "seed"):
        for value in ("1e400", "-1", "1e308", "99999999999999999999999999", "0.5", '"1"', "[]", "true", "NaN", "Infinity", "-0.0"):
            status, text = ask("/v1/completions", '{"prompt": "1", "max_tokens": 1, "%s": %s}' % (member, value))
            expect(status in (200, 400), member, value, status, text)
    for body in ({"n": 10**9}, {"best_of": 10**9}, {"n": 4097}, {"max_tokens": 2**62}, {"max_tokens": 2**31}, {"n": 4096, "prompt": ["1"] * 2}, {"top_p": 1e-400, "n": 0},
                 {"temperature": 1e300}, {"repetition_penalty": 1e300}, {"prompt": [2**31]}, {"prompt": [2**64]}, {"prompt": [-(2**63)]}):
        refused({"prompt": "1", **body})
    refused('{"prompt": "1", "temperature": 1e999}')


def long_lists():
    for body in ({"stop": ["x"] * 65}, {"stop": [""]}, {"stop_token_ids": list(range(65))}, {"prompt": ["1"] * 5000}, {"logit_bias": {"x": 1}},
                 {"logit_bias": {str(2**40): 1}}, {"logit_bias": {"-1": 1}}, {"logit_bias": {"1": 1e9}}, {"logit_bias": {"1": "a"}}):
        refused({"prompt": "1", **body})
    status, text = ask("/v1/completions", {"prompt": "1", "max_tokens": 2, "stop": ["y" * (LIMIT // 100)] * 64})
    expect(status in (200, 400), "long stop texts", status, text)
    for bias in ({str(i): 1 for i in range(LIMIT // 20)}, {"1" + " " * i: 1 for i in range(10)}, {str(i): -100 for i in range(100000)}):
        status, text = ask("/v1/completions", {"prompt": "1", "max_tokens": 1, "logit_bias": bias})
        expect(status in (200, 400), "a large logit_bias", status, text)
    status, text = ask(CHAT, {"messages": USER * (LIMIT // 100), "max_tokens": 1})
    expect(status == 400, "a conversation that is too long", status, text)
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(LIMIT // 200)]
    status, text = ask(CHAT, {"messages": USER, "max_tokens": 1, "tools": tools, "tool_choice": "required"})
    expect(status == 400, "many tools", status, text)


def large_forms():
    """Regular expressions, grammars and schemas: an answer, or an error, and others are served meanwhile."""
    forms = [{"guided_regex": "(" * 10000}, {"guided_regex": "(" * 5000 + ")" * 5000}, {"guided_regex": "a" * (LIMIT // 2)}, {"guided_regex": "a{100000}"},
             {"guided_regex": "(a{1000}){1000}"}, {"guided_regex": "((((a{30}){30}){30}){30}){30}"}, {"guided_regex": "(a|b|ab)*" * 50}, {"guided_regex": "[^\\x00-\\U0010ffff]"},
             {"guided_regex": "a{99999999999}"}, {"guided_regex": "(?R)"}, {"guided_regex": "\\1"}, {"guided_regex": "(a*)*" * 100},
             {"guided_grammar": "root ::= root"}, {"guided_grammar": "root ::= root root | \"a\""}, {"guided_grammar": "root ::= x"}, {"guided_grammar": "x ::= \"a\""},
             {"guided_grammar": "root ::= " + "(" * 20000}, {"guided_grammar": "root ::= " + "(" * 5000 + "\"a\"" + ")" * 5000}, {"guided_grammar": "root ::= \"a\"" + " | \"a\"" * 20000},
             {"guided_grammar": "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(60)) + "r60 ::= \"a\"\nroot ::= r0"}, {"guided_grammar": "root ::= [a"},
             {"guided_grammar": "root ::= \"a\"{1000000}"}, {"guided_grammar": "\x00"}, {"guided_choice": ["x" * 1000] * 1000}, {"guided_choice": [str(i) for i in range(20000)]},
             {"guided_choice": [str(i) * 1000 for i in range(1000)]},
             {"guided_json": {"enum": list(range(100000))}}, {"guided_json": {"type": "array", "minItems": 10**9}}, {"guided_json": {"type": "string", "minLength": 10**9}},
             {"guided_json": {"type": "string", "pattern": "(a{1000}){1000}"}}, {"guided_json": {"$ref": "#"}}, {"guided_json": {"$ref": "#/a/b"}}, {"guided_json": {"allOf": [{"$ref": "#"}]}},
             {"guided_json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}}, {"guided_json": {"type": "integer", "minimum": -10**300}},
             {"guided_json": {"properties": {f"p{i}": {} for i in range(900)}, "type": "object"}}, {"guided_json": {"type": "nonsense"}}, {"guided_json": "{"},
             {"guided_json": {"type": "object", "patternProperties": {"(" * 1000: {}}}}]
    seen = []

    def one(form):
        start = time.time()
        status, text = ask("/v1/completions", {"prompt": "1", "max_tokens": 2, **form})
        seen.append((time.time() - start, str(form)[:70]))
        expect(status in (200, 400), str(form)[:200], status, text)
    for form in forms:
        thread = threading.Thread(target=one, args=(form,))
        thread.start()
        while thread.is_alive():
            plain()
            thread.join(0.5)
    if os.environ.get("SHOW_TIMES"):
        for seconds, form in sorted(seen, reverse=True)[:6]:
            print(f"{seconds:6.2f} s {form}")


def sessions_of_keys():
    """What one key recorded is not there for another one, and nothing of it is changed. The server takes the key "other" as well."""
    other, mine = {"Authorization": "Bearer other"}, {"X-Temper-Session": "mine"}
    body = {"messages": USER, "max_tokens": 1}
    turns = lambda headers={}: len(json.loads(ask("/v1/sessions/mine", None, headers)[1])["turns"])
    expect(ask(CHAT, body, mine)[0] == 200, "a session")
    for path, sent, method in (("/v1/sessions/mine", None, "GET"), ("/v1/sessions/mine", None, "DELETE"), ("/v1/sessions/mine/reward", {"reward": 1}, "POST")):
        status, text = ask(path, sent, other, method)
        expect(status == 404, method, path, "of another key:", status, text)
    for _ in range(2):
        expect(ask(CHAT, body, {**mine, **other})[0] == 200, "another session of this name")
    expect(turns() == 1 and turns(other) == 2, "turns:", turns(), turns(other))
    expect(ask("/v1/sessions/mine", None, other, "DELETE")[0] == 200 and turns() == 1, "a session after another one of its name was forgotten")
    expect(ask("/v1/sessions/mine", None, {"Authorization": "Bearer third"})[0] == 401, "a key that the server does not know")


# --- every bound, met by one client while another one, at an address of its own, is served

OTHER = ("127.0.0.2", 0)
SERVED = 60  # seconds: what is never served fails, a busy machine does not
table = []


class Beside:
    """Within it another client asks again and again; each answer has to come in time."""

    def __init__(self, bound, how, *bodies):
        self.bound, self.how, self.bodies = bound, how, bodies or ({"prompt": "12+34=", "max_tokens": 4, "temperature": 0},)
        self.answers, self.slowest, self.times, self.ends = set(), 0, 0, threading.Event()

    def one(self):
        for body in self.bodies:
            start = time.time()
            try:
                status, text = ask("/v1/completions", body, source=OTHER)
                expect(status == 200, self.bound, "another client:", status, text)
            except OSError as e:
                expect(False, self.bound, "another client:", repr(e))
            self.slowest = max(self.slowest, time.time() - start)
            self.times += 1
        expect(self.slowest < SERVED, self.bound, f"another client was served in {self.slowest:.1f} s")

    def loop(self):
        self.one()
        while not self.ends.wait(0.1):
            self.one()

    def __enter__(self):
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()
        return self

    def saw(self, status, text="", *words):
        """What the client that meets the bound was answered: it names the limit."""
        self.answers.add(str(status))
        for word in words:
            expect(word in text, self.bound, "expected", word, "in", status, text)

    def __exit__(self, *failure):
        self.one()  # and now, while what meets the bound may still be there
        self.ends.set()
        self.thread.join()
        table.append((self.bound, self.how, ", ".join(sorted(self.answers)), f"{self.times} in at most {self.slowest:.1f} s"))


def held(body, path="/v1/completions", source=None, buffer=None):
    """A connection whose answer nobody reads."""
    data = json.dumps(body).encode()
    s = socket.socket()
    if buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    s.settimeout(PATIENCE)
    if source:
        s.bind(source)
    s.connect((host, port))
    s.sendall(post_head(path, f"Content-Length: {len(data)}\r\n").encode() + data)
    return s


def begins(s, size=4096):
    """What comes next of an answer; b"" where the connection has ended."""
    try:
        return s.recv(size)
    except ConnectionError:
        return b""


def status_of(s):
    text = begins(s, 65536).decode(errors="replace")
    return (int(text.split()[1]) if text.startswith("HTTP/1.1 ") else 0), text


def close_all(sockets):
    for s in sockets:
        s.close()


def large_answer():
    return {"prompt": "1+1=", "max_tokens": 900, "n": 64, "ignore_eos": True, "stream": True, "logprobs": 20}


def refusals(bound, how, statuses, *asked):
    """asked: (path, body, word that the error has)."""
    with Beside(bound, how) as beside:
        for path, body, word in asked:
            status, text = ask(path, body)
            expect(status in statuses, bound, body if len(str(body)) < 200 else str(body)[:200], status, text)
            beside.saw(status, text, word)


def numbered(n, make):
    return dict(make(i) for i in range(n))


def bounds_of_requests():
    text, chat = "/v1/completions", CHAT
    one = lambda **more: {"prompt": "1", "max_tokens": 1, **more}
    form = lambda schema: one(guided_json=schema)
    tool = lambda name, parameters=None: {"messages": USER, "tool_choice": "required", "tools": [
        {"type": "function", "function": {"name": name, **({"parameters": parameters} if parameters else {})}}]}
    nested = {"type": "null"}
    for _ in range(101):
        nested = {"type": "array", "items": nested}
    null = {"type": "null"}
    refusals("prompts times n", "n 4097; 2 prompts with n 4096", (400,), (text, one(n=4097), "4096"), (text, {"prompt": ["1", "2"], "n": 4096}, "4096"))
    refusals("max_tokens, min_tokens, positions", "one more each", (400,), (text, one(max_tokens=2**40), "max_tokens"), (text, one(min_tokens=2**40), "min_tokens"),
             (text, {"prompt": "1", "max_tokens": 1024}, "1024 positions"), (text, {"prompt": [5] * 2000}, "1024 positions"))
    refusals("logprobs, top_logprobs", "21", (400,), (text, one(logprobs=21), "20"), (chat, {"messages": USER, "logprobs": True, "top_logprobs": 21}, "20"))
    refusals("the memory of an answer", "n 4096 with 20 log-probabilities a token, with and without echo", (400,),
             (text, {"prompt": "1", "n": 4096, "max_tokens": 1000, "logprobs": 20}, "4294967296"), (text, {"prompt": [5] * 1000, "n": 4096, "max_tokens": 1, "logprobs": 20, "echo": True}, "4294967296"),
             (chat, {"messages": USER, "n": 4096, "max_tokens": 1000, "logprobs": True, "top_logprobs": 20}, "4294967296"))
    refusals("stop, stop_token_ids", "65", (400,), (text, one(stop=["x"] * 65), "64"), (text, one(stop_token_ids=[1] * 65), "64"))
    refusals("logit_bias", "101; a key that is no id", (400,), (text, one(logit_bias={"1": 101}), "100"), (text, one(logit_bias={"x": 1}), "token id"))
    refusals("nesting of JSON", "600 lists", (400,), (text, '{"prompt": ' + "[" * 600 + "]" * 600 + "}", "512"))
    refusals("chat_template_kwargs", "too many bytes", (400,), (chat, {"messages": USER, "chat_template_kwargs": {"x": "y" * 100000}}, "at most"))
    refusals("a regular expression, a grammar", "16,385 and 65,537 bytes", (400,), (text, one(guided_regex="a" * 16385), "16384"),
             (text, one(guided_grammar='root ::= "' + "a" * 65526 + '"'), "65536"), (text, one(guided_choice=["x" * 70000]), "65536"))
    refusals("a schema's literals", "65,537 bytes in const, enum, a name", (400,), *[(text, form(s), "65536") for s in (
        {"const": "a" * 65535}, {"enum": ["a" * 40000, "b" * 40000]}, {"type": "object", "properties": {"a" * 65537: {}}}, {"anyOf": [{"const": str(i) * 30} for i in range(1000)]})])
    refusals("a schema's sizes", "one more of each", (400,), (text, form({"enum": list(range(5001))}), "5000"),
             (text, form({"type": "object", "properties": numbered(1001, lambda i: (f"p{i}", null)), "required": [f"p{i}" for i in range(1001)]}), "1000"),
             (text, form({"type": "object", "properties": numbered(501, lambda i: (f"p{i}", null))}), "500"),
             (text, form({"type": "object", "properties": numbered(101, lambda i: (f"p{i}", null)), "maxProperties": 3}), "100"),
             (text, form({"anyOf": [{"const": i} for i in range(2001)]}), "2000"), (text, form(nested), "100"),
             (text, form({"type": "string", "maxLength": 1000001}), "1000000"), (text, form({"type": "string", "pattern": "a" * 16385}), "16384"))
    refusals("functions that have to be called", "a name of 65 characters; literals of 65,537 bytes together", (400,), (chat, tool("f" * 65), "64"), (chat, tool("f" * 1000000), "64"),
             (chat, tool("f", {"type": "object", "properties": {"a": {"const": "a" * 65536}}}), "65536"))
    refusals("weight_version", "257 bytes", (400,), ("/update_weights_from_disk", {"model_path": "/tmp", "weight_version": "v" * 257}, "256"))
    # What no file should be: a load of it ends, and nobody waits for it.
    pipe = os.path.abspath("pipe")
    os.makedirs(pipe, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        if not os.path.exists(f"{pipe}/{name}"):
            os.mkfifo(f"{pipe}/{name}")
    refusals("files of weights", "pipes", (400,), ("/update_weights_from_disk", {"model_path": pipe}, "regular file"))


def bounds_of_heads_and_bodies():
    with Beside("request line and headers", "40,000 bytes") as beside:
        answer = raw(f"GET /health HTTP/1.1\r\n{HOST}X: {'y' * 40000}\r\n\r\n").decode()
        beside.saw(answer.split()[1], answer, " 431 ", "32768")
    with Beside("a request's body", "announced, chunked") as beside:
        for more, rest in ((f"Content-Length: {LIMIT + 1}\r\n", ""), ("Transfer-Encoding: chunked\r\n", f"{LIMIT + 1:x}\r\n" + "x" * (LIMIT + 1))):
            answer = raw(post_head(more=more) + rest).decode()
            if answer:  # else it was reset while the client still sent
                beside.saw(answer.split()[1], answer, " 413 ", str(LIMIT))
    with Beside("all bodies together", "70 unfinished bodies of 3.9 MB") as beside:
        sockets, last = [], ""
        most = 3_900_000
        for _ in range(256 * 2**20 // most + 6):
            s = connect()
            sockets.append(s)
            try:
                s.sendall(post_head(more=f"Content-Length: {most + 1}\r\n").encode() + b" " * most)
            except OSError:
                pass
        for s in select.select(sockets, [], [], PATIENCE)[0]:
            last = begins(s, 65536).decode() or last
        beside.saw(last.split()[1] if last else "none", last, " 503 ", "too many large requests")
        beside.one()
        close_all(sockets)


def bounds_of_time():
    """A head, a body, an answer and a connection that stand still, all at once."""
    with Beside("seconds of a head, a body, an answer", "one byte; one byte; read nothing") as beside:
        head, body, idle = connect(), connect(), connect()
        head.sendall(b"G")
        body.sendall(post_head(more="Content-Length: 100\r\n").encode() + b"{")
        idle.sendall(f"GET /health HTTP/1.1\r\n{HOST}\r\n".encode())
        begins(idle)
        unread = held(large_answer(), buffer=2048)
        for name, s in (("head", head), ("body", body)):
            status, text = status_of(s)
            beside.saw(status, text, " 408 ", "in time")
        expect(begins(idle) == b"", "a connection that is not used is closed")
        beside.saw("closed")
        # It was closed while it read nothing: the rest does not come.
        rest = b""
        while len(rest) < 1 << 28:
            part = begins(unread, 1 << 20)
            if not part:
                break
            rest = (rest + part)[-100:] if part else rest
        expect(b"[DONE]" not in rest, "an answer that nobody read for so long is whole")
        close_all([head, body, idle, unread])


def bounds_of_numbers():
    """With --max-connections 64, of which 40 of one address, --max-requests 8, --max-sessions 8."""
    with Beside("connections of one address", "45 that send their bodies slowly") as beside:
        sockets = []
        for i in range(45):
            s = connect()
            sockets.append(s)
            s.sendall(post_head(more="Content-Length: 1000\r\nExpect: 100-continue\r\n").encode())
            status, text = status_of(s)  # so its body is waited for when the next one comes
            if i < 40:
                expect(status == 100, "connection", i, status, text)
                s.sendall(b"{")
            else:
                beside.saw(status, text, " 503 ", "connections")
        beside.one()
        close_all(sockets)
    with Beside("requests of one address", "streams that nobody reads") as beside:
        sockets, refusal = [], ""
        for _ in range(8):
            s = held(large_answer(), buffer=2048)
            sockets.append(s)
            status, text = status_of(s)
            if status == 429:
                refusal = text
        beside.saw(refusal.split()[1] if refusal else "none", refusal, " 429 ", "--max-requests-per-address")
        for _ in range(3):
            beside.one()
        close_all(sockets)
    until = time.time() + PATIENCE
    while ask("/v1/completions", {"prompt": "1", "max_tokens": 1})[0] == 429 and time.time() < until:
        time.sleep(0.1)
    # While two addresses have all places there is none for anybody; later there is.
    sockets, refusal = [], ""
    for i in range(12):
        s = held(large_answer(), source=(f"127.0.0.{3 + i % 2}", 0), buffer=2048)
        sockets.append(s)
        status, text = status_of(s)
        if status == 429:
            refusal = text
    close_all(sockets)
    until = time.time() + PATIENCE
    while ask("/v1/completions", {"prompt": "1", "max_tokens": 1}, source=OTHER)[0] == 429 and time.time() < until:
        time.sleep(0.1)
    with Beside("requests of all", "streams from two addresses, which have left") as beside:
        beside.saw(refusal.split()[1] if refusal else "none", refusal, " 429 ", "limit is")
    with Beside("sequences at once", "n 4096 of 900 tokens each") as beside:
        sockets = [held({"prompt": "1+1=", "max_tokens": 900, "n": 4096, "ignore_eos": True}) for _ in range(3)]
        time.sleep(1)
        for _ in range(3):
            beside.one()
        close_all(sockets)
    with Beside("sessions of one address", "7 names") as beside:
        for i in range(7):
            status, text = ask(CHAT, {"messages": USER, "max_tokens": 1}, {"X-Temper-Session": f"a{i}"})
            expect(status == (200 if i < 6 else 429), "session", i, status, text)
        beside.saw(status, text, "of one address", "--max-sessions")
        status, text = ask(CHAT, {"messages": USER, "max_tokens": 1}, {"X-Temper-Session": "b"}, source=OTHER)
        expect(status == 200, "a session of another address", status, text)
        status, text = ask(CHAT, {"messages": USER, "max_tokens": 1, "n": 1025}, {"X-Temper-Session": "b"}, source=OTHER)
        expect(status == 403, "turns of a session", status, text)
        beside.saw(status, text, "1024")
        status, text = ask("/v1/sessions/b/reward", {"reward": 1, "x": "y" * 5000})
        expect(status == 413, "the body of a reward", status, text)
        beside.saw(status, text, "4096")
        for name in [f"a{i}" for i in range(6)] + ["b"]:
            expect(ask("/v1/sessions/" + name, None, method="DELETE")[0] == 200, "DELETE", name)


def bounds_of_grammars():
    """Large ones, as many as an address may have requests; others with a grammar do not wait for all of them."""
    small = {"prompt": "1", "max_tokens": 2, "guided_json": {"type": "boolean"}}
    plain_one = {"prompt": "12+34=", "max_tokens": 4}
    with Beside("grammars that are compiled", "6 times 65,000 bytes of literals", plain_one, small) as beside:
        sockets = [held({"prompt": "1", "max_tokens": 1, "guided_json": {"const": f"{i}" + "ab" * 32000}}) for i in range(6)]
        beside.one()
        for s in sockets[:3]:
            status, text = status_of(s)
            beside.saw(status)
            expect(status == 200, "a schema at its limit", status, text)
        close_all(sockets)  # the others have left


def bounds_of_pipelines():
    one = f"GET /metrics HTTP/1.1\r\n{HOST}{AUTH}\r\n".encode()
    with Beside("pipelined requests", "endless ones behind one that takes long, none read") as beside:
        sockets = []
        before = memory()
        for _ in range(5):
            s = held({"prompt": "1+1=", "max_tokens": 900, "n": 4, "ignore_eos": True})
            s.setblocking(False)
            sockets.append(s)
        until = time.time() + 3
        while time.time() < until:
            for s in sockets:
                try:
                    s.send(one * 500)
                except BlockingIOError:
                    time.sleep(0.01)
                except OSError as e:
                    expect(False, "pipelined requests were reset:", repr(e))
                    until = 0
        expect(memory() - before < 64, "pipelined requests took", memory() - before)
        beside.saw("left unread")
        close_all(sockets)


BOUNDS = [bounds_of_requests, bounds_of_heads_and_bodies, bounds_of_time, bounds_of_numbers, bounds_of_grammars, bounds_of_pipelines]

KEPT = {bounds_of_grammars: 256}  # MiB of compiled grammars that the server caches (grammar/grammar.h)
CASES = [deep_json, large_bodies, large_values, endless_heads, dripping_sockets, stalled_readers, pages, smuggling, pipelining, other_protocols, bytes_and_paths, numbers,
         long_lists, large_forms]
plain()
for case in CASES + [sessions_of_keys] + BOUNDS:
    # The others are for servers of their own (hostile_test.sh).
    if case.__name__ not in chosen if chosen else case not in CASES:
        continue
    before, start = memory(), time.time()
    case()
    try:
        plain()
        until = time.time() + PATIENCE
        most = before + 150 + KEPT.get(case, 0)
        while memory() > most and time.time() < until:
            time.sleep(0.2)
        expect(memory() <= most, case.__name__, f"left {memory() - before:.0f} MiB behind")
    except OSError as e:
        expect(False, case.__name__, "the server does not answer any more:", e)
        break
    print(f"{case.__name__}: {time.time() - start:.1f} s, {before:.0f} -> {memory():.0f} MiB, peak so far {memory('VmHWM'):.0f}", flush=True)
for row in table:
    print(" | ".join(row))
sys.exit(bad)
