"""A stand-in for vLLM's and SGLang's servers in tests: their routes, fields and answers, with the sampling done by a `temper serve`.

usage: sampler_stand_in.py vllm|sglang|openai TEMPER_SERVE_URL [--port P] [--fail-first N] [--forget-after N] [--load-seconds S] [--busy FIRST SECONDS STATUS] [--processed] [--context N] [--lie KIND]
Prints "serving at URL", and "loaded DIRECTORY" for all weights that it is given. A request with a field that the real server does not know, or without
one that it needs, is answered as the real one would.
--fail-first N: the first N sampling requests are answered 500. --forget-after N: behind the N-th it says "forgot" and has its own weights, as if it
had been started again. --load-seconds S: loading takes so long. --busy: from its FIRST sampling request on, for SECONDS, all are answered STATUS, 429 or
503, and "busy" is said. --processed: log-probabilities are those after top-k, as far as that is 1 (vLLM's --logprobs-mode processed_logprobs). --context: of prompt and completion together only so many tokens are sampled.
openai: temper serve's own routes, passed on. --lie: sampled log-probabilities are tiny (-1e30) or zero, or each id is shifted by one.
"""
import argparse
import http.server
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["vllm", "sglang", "openai"])
parser.add_argument("backend")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--fail-first", type=int, default=0)
parser.add_argument("--forget-after", type=int, default=-1)
parser.add_argument("--load-seconds", type=float, default=0)
parser.add_argument("--busy", type=float, nargs=3, default=[0, 0, 0])
parser.add_argument("--processed", action="store_true")
parser.add_argument("--context", type=int, default=None)
parser.add_argument("--lie", choices=["tiny", "zero", "shifted"])
options = parser.parse_args()
kind, backend = options.kind, options.backend
failures = options.fail_first
samples = 0
busy_until = None
adapters = {}  # name -> path
loaded = "default"  # SGLang's weight_version
paused = False


def temper(path, body):
    request = urllib.request.Request(backend + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def reload(path):
    print("loaded", path, flush=True)
    time.sleep(options.load_seconds)
    temper("/update_weights_from_disk", {"model_path": path})


lock = threading.Lock()


def count_sample():
    global failures, loaded, samples, busy_until
    with lock:
        samples += 1
        if samples == options.busy[0]:
            busy_until = time.time() + options.busy[1]
            print("busy", flush=True)
        if busy_until and time.time() < busy_until:
            raise Refused(int(options.busy[2]), "too many requests")
        if failures > 0:
            failures -= 1
            raise Refused(500, "made to fail")
        if options.forget_after > 0:
            options.forget_after -= 1
            if options.forget_after == 0:
                loaded = "default"
                adapters.clear()
                print("forgot", flush=True)


class Refused(Exception):
    def __init__(self, status, message):
        self.status, self.message = status, message


def only(body, known, needed):
    for key in body:
        if key not in known:
            raise Refused(400, f"unknown field {key}")
    for key in needed:
        if key not in body:
            raise Refused(422, f"field required: {key}")


def complete(body):
    if options.context:
        body["max_tokens"] = min(body["max_tokens"], options.context - len(body["prompt"]))
    answer = temper("/v1/completions", body)
    if options.processed and body.get("top_k") == 1:
        for choice in answer["choices"]:
            choice["logprobs"]["token_logprobs"] = [0.0] * len(choice["token_ids"])
    for choice in answer["choices"] if options.lie and not body.get("echo") else []:
        if options.lie == "shifted":
            choice["token_ids"] = [(i + 1) % 62 for i in choice["token_ids"]]
        else:
            choice["logprobs"]["token_logprobs"] = [0.0 if options.lie == "zero" else -1e30] * len(choice["token_ids"])
    return answer


def openai_post(path, query, body):
    if path not in POSTED["openai"]:
        raise Refused(404, "Not Found")
    return complete(body) if path == "/v1/completions" else temper(path, body)


def vllm_post(path, query, body):
    global paused
    if path == "/v1/completions":
        only(body, {"model", "prompt", "n", "max_tokens", "temperature", "seed", "logprobs", "return_token_ids", "top_p", "top_k", "min_p",
                    "repetition_penalty", "ignore_eos", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "min_tokens",
                    "stop_token_ids", "structured_outputs"}, ["model", "prompt"])
        if body["model"] not in adapters and body["model"] != "stand-in":
            raise Refused(404, f"The model `{body['model']}` does not exist.")
        if paused:
            raise Refused(500, "sampling while paused")
        answer = complete({**body, "model": None})
        choices = [{"index": c["index"], "text": c["text"], "logprobs": c["logprobs"], "finish_reason": c["finish_reason"], "stop_reason": None,
                    "token_ids": c["token_ids"] if body.get("return_token_ids") else None, "prompt_logprobs": None} for c in answer["choices"]]
        return {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": body["model"], "choices": choices, "system_fingerprint": "vllm-0-x",
                "usage": answer["usage"], "kv_transfer_params": None}
    if path == "/v1/load_lora_adapter":
        only(body, {"lora_name", "lora_path", "load_inplace"}, ["lora_name", "lora_path"])
        if body["lora_name"] in adapters:
            raise Refused(400, f"The lora adapter '{body['lora_name']}' has already been loaded.")
        reload(body["lora_path"])
        adapters[body["lora_name"]] = body["lora_path"]
        return "Success: LoRA adapter added successfully."
    if path == "/v1/unload_lora_adapter":
        only(body, {"lora_name", "lora_int_id"}, ["lora_name"])
        if adapters.pop(body["lora_name"], None) is None:
            raise Refused(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
        return "Success: LoRA adapter removed successfully."
    if path == "/pause":
        if query.get("mode") not in (["abort"], ["wait"], ["keep"]):
            raise Refused(422, "mode")
        paused = True
        return {"status": "paused"}
    if path == "/resume":
        paused = False
        return {"status": "resumed"}
    if path == "/collective_rpc":
        if "method" not in body:
            raise Refused(400, "Missing 'method' in request body")
        if body["method"] != "reload_weights" or not paused:
            raise Refused(500, f"{body['method']} while paused is {paused}")
        reload(body["kwargs"]["weights_path"])
        return {"results": [None]}
    if path == "/reset_prefix_cache":
        return None
    raise Refused(404, "Not Found")


def sglang_post(path, query, body):
    global loaded
    if path == "/generate":
        only(body, {"text", "input_ids", "sampling_params", "return_logprob", "lora_path", "stream"}, [])
        sampling = body["sampling_params"]
        only(sampling, {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens", "ignore_eos", "sampling_seed", "stop", "n",
                        "presence_penalty", "frequency_penalty", "logit_bias", "min_new_tokens", "stop_token_ids", "json_schema", "regex", "ebnf"}, [])
        if body.get("lora_path") and body["lora_path"] not in adapters:
            raise Refused(400, f"The following requested LoRA adapters are not loaded: {body['lora_path']}")
        asked = {"prompt": body["input_ids"], "n": 1, "max_tokens": sampling["max_new_tokens"], "temperature": sampling["temperature"],
                 "top_p": sampling["top_p"], "top_k": sampling["top_k"], "min_p": sampling["min_p"], "seed": sampling["sampling_seed"],
                 "repetition_penalty": sampling["repetition_penalty"], "ignore_eos": sampling.get("ignore_eos", False), "logprobs": 0, "return_token_ids": True}
        for name, ours in {"stop": "stop", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
                           "logit_bias": "logit_bias", "min_new_tokens": "min_tokens", "stop_token_ids": "stop_token_ids",
                           "json_schema": "guided_json", "regex": "guided_regex", "ebnf": "guided_grammar"}.items():
            if name in sampling:
                asked[ours] = sampling[name]
        choice = complete(asked)["choices"][0]
        about = {"id": "1", "finish_reason": {"type": choice["finish_reason"]}, "weight_version": loaded,
                 "prompt_tokens": len(body["input_ids"]), "completion_tokens": len(choice["token_ids"])}
        if body.get("return_logprob"):
            about["output_token_logprobs"] = [[p, i, None] for p, i in zip(choice["logprobs"]["token_logprobs"], choice["token_ids"])]
        return {"text": choice["text"], "output_ids": choice["token_ids"], "meta_info": about}
    if path == "/update_weights_from_disk":
        only(body, {"model_path", "load_format", "abort_all_requests", "weight_version", "is_async", "torch_empty_cache", "keep_pause",
                    "recapture_cuda_graph", "token_step", "flush_cache", "manifest"}, ["model_path"])
        reload(body["model_path"])
        loaded = body.get("weight_version", loaded)
        return {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}
    if path == "/load_lora_adapter":
        only(body, {"lora_name", "lora_path", "pinned"}, ["lora_name", "lora_path"])
        if body["lora_name"] in adapters:
            raise Refused(400, "already loaded")
        reload(body["lora_path"])
        adapters[body["lora_name"]] = body["lora_path"]
        return {"success": True, "error_message": "", "loaded_adapters": adapters}
    if path == "/unload_lora_adapter":
        if adapters.pop(body["lora_name"], None) is None:
            raise Refused(400, "not loaded")
        return {"success": True, "error_message": "", "loaded_adapters": adapters}
    raise Refused(404, "Not Found")


# What a real server answers 405 to another method than POST.
POSTED = {"vllm": ["/v1/completions", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"],
          "openai": ["/v1/completions", "/update_weights_from_disk"],
          "sglang": ["/generate", "/update_weights_from_disk", "/load_lora_adapter", "/unload_lora_adapter"]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body):
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status in (429, 503):
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/health":
            return self.answer(200, None)
        if self.path == "/v1/models" and kind == "openai":
            with urllib.request.urlopen(backend + self.path, timeout=60) as answer:
                return self.answer(200, json.load(answer))
        if self.path == "/v1/models":
            return self.answer(200, {"object": "list", "data": [{"id": "stand-in", "object": "model", "max_model_len": 64}] + [
                {"id": name, "object": "model"} for name in adapters]})
        if self.path in POSTED[kind]:
            return self.answer(405, {"detail": "Method Not Allowed"})
        self.answer(404, {"detail": "Not Found"})

    def do_POST(self):
        url = urllib.parse.urlparse(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        try:
            if url.path in ("/v1/completions", "/generate"):
                count_sample()
            post = {"vllm": vllm_post, "sglang": sglang_post, "openai": openai_post}[kind]
            self.answer(200, post(url.path, urllib.parse.parse_qs(url.query), body))
        except Refused as e:
            self.answer(e.status, {"error": {"message": e.message, "type": "x", "code": e.status}})
        except urllib.error.HTTPError as e:
            self.answer(e.code if kind == "openai" else 500, {"error": {"message": e.read().decode()}})


server = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
print(f"serving at http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
