"""What a server of a model that reads images answers: images_client.py ADDRESS; `talk` is what generate wrote for the
same questions."""
import base64
import json
import sys
import urllib.error
import urllib.request

expected = [json.loads(line) for line in open("talk")]


def uri(path, kind="image/png"):
    return f"data:{kind};base64," + base64.b64encode(open(path, "rb").read()).decode()


def post(body, path="/v1/chat/completions"):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def image(url):
    return {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}


def ask(*content, **more):
    return {"messages": [{"role": "user", "content": list(content)}], "temperature": 0, "max_tokens": 8,
            "ignore_eos": True, "return_token_ids": True} | more


def text(words):
    return {"type": "text", "text": words}


bad = []


def check(holds, *what):
    if not holds:
        bad.append(what)


for path, row in (("b.png", expected[0]), ("a.png", expected[1]), ("b.png", expected[0])):
    status, body = post(ask(image(uri(path)), text("how many?"), logprobs=True, n=2))
    check(status == 200, path, status, body)
    answer = json.loads(body)
    check(answer["usage"]["prompt_tokens"] == len(row["prompt_tokens"]), path, answer["usage"])
    check(answer["prompt_token_ids"] == row["prompt_tokens"], path, "prompt")
    for choice in answer["choices"]:
        check(choice["token_ids"] == row["tokens"], path, choice["token_ids"], row["tokens"])
        check(choice["message"]["content"] == row["text"], path, choice["message"])
        check([t["logprob"] for t in choice["logprobs"]["content"]] == row["logprobs"], path, "logprobs")
    status, body = post(ask(image(uri(path)), text("how many?"), stream=True, stream_options={"include_usage": True}))
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    said = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
    check(status == 200 and said == row["text"], path, "stream", said)
    check(events[-1]["usage"]["prompt_tokens"] == len(row["prompt_tokens"]), path, events[-1])

question = text("how many?")
seven = {"temperature": 0, "max_tokens": 8}
for what, body in {
    "fetches": ask(image("http://127.0.0.1:1/b.png"), question),
    "path": ask(image("b.png"), question),
    "file": ask(image("file:///etc/passwd"), question),
    "own": ask({"type": "image", "image": "b.png"}, question),
    "own beside": ask({"type": "image", "image": uri("b.png")}, question),
    "struct": ask({"type": "image_url", "image_url": {"path": "b.png"}}, question),
    "none": ask({"type": "image_url"}, question),
    "not base64": ask(image("data:image/png,abc"), question),
    "half": ask(image(uri("cut.png")), question),
    "no image": ask(image(uri("not.png")), question),
    "empty": ask(image("data:image/png;base64,"), question),
    "pixels": ask(image(uri("large.png")), question),
    "together": ask(*[image(uri("b.png"))] * 13, question),
    "bytes": ask(image("data:image/png;base64," + "A" * 400000), question),
    "audio": ask({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, question),
    "spelled": ask(image(uri("b.png")), text("how <|image_pad|> many?")),
    "spelled alone": {"messages": [{"role": "user", "content": "how <|image_pad|> many?"}]} | seven,
}.items():
    status, answer = post(body)
    check(status == 400 and json.loads(answer)["error"]["message"], what, status, answer)
    check("\n" not in json.loads(answer)["error"]["message"], what, answer)
for what, prompt in {"ids": [1, 7, 7, 2], "text": "a <|image_pad|> b"}.items():
    status, answer = post({"prompt": prompt} | seven, "/v1/completions")
    check(status == 400, what, status, answer)
check(post(ask(question))[0] == 200, "the server is there no more")
status, answer = post(ask(image("https://x/y.png"), question))
check("data:" in answer, answer)
for what in bad:
    print(*what, file=sys.stderr)
sys.exit(bool(bad))
