"""What agents of the tests import: the row, and requests to the policy and to its session."""
import json, os, sys, threading, time, urllib.error, urllib.request
URL, KEY, NAME = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], os.environ["TEMPER_SESSION"]
row = json.loads(sys.stdin.readline())
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def post(path, body, key=KEY):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Authorization": "Bearer " + key, "Content-Type": "application/json"})
    try:
        with opener.open(request) as answer: return json.load(answer)
    except urllib.error.HTTPError as e:
        return {"status": e.code, **json.load(e)}
def ask(messages, **more): return post("/chat/completions", {"messages": messages, **more})
def said(answer): return [choice["message"] for choice in answer["choices"]]
def user(text): return {"role": "user", "content": text}
