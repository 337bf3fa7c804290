"""A hub for tests: `python3 hub_stand_in.py LOG` serves the repositories org/tiny (a model) and org/rows (a data set)
on two ports of the loopback, which it prints: of the hub, and of the host to which it redirects for large files. LOG
gets a line a request: host, method, path, Range and whether it carried a token.
"""
import contextlib
import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "llama"}\n',
    "model.safetensors": bytes(range(256)) * 4096,  # on the other host
    "onnx/deep/model.onnx": b"deep",
    "empty": b"",
}
LARGE = {"model.safetensors"}
cut = {"cut.bin": 300_000}  # file -> bytes after which the first answer ends


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


WITHOUT_SIBLINGS = {"models/org/tree"}
REPOSITORIES = {
    "models/org/tiny": FILES,
    "datasets/org/rows": {"data/train.jsonl": b'{"text": "a"}\n'},
    "models/org/tree": FILES,
    "models/org/cut": {"cut.bin": b"x" * 1_000_000},
    "models/org/wrong": {"config.json": b"{}", "wrong.bin": b"not what it says"},
    "models/org/short": {"short.bin": b"short"},
    "models/org/evil": {"../../../escaped": b"!"},
    "models/org/gated": {"secret.bin": b"secret"},
}


class Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    name = "hub"

    def log_message(self, *_):
        pass

    def note(self):
        with open(sys.argv[1], "a", encoding="utf-8") as log:
            print(self.name, self.command, self.path, self.headers.get("Range", "-"),
                  self.headers.get("Authorization", "-"), file=log)

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        fields.setdefault("Content_Length", str(len(body)))
        for field, value in fields.items():
            self.send_header(field.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):  # a client may have heard enough
                self.wfile.write(body)

    def send_file(self, name, data, **fields):
        begin = 0
        if range_ := self.headers.get("Range"):
            begin = int(range_.removeprefix("bytes=").rstrip("-"))
            fields["Content_Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        if self.command == "GET" and name in cut and begin == 0:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:cut.pop(name)])
            self.close_connection = True
            return
        self.answer(206 if begin else 200, data[begin:], **fields)

    def do_GET(self):
        self.note()
        for kind in ("models", "datasets"):
            for repository, files in REPOSITORIES.items():
                if not repository.startswith(kind):
                    continue
                name = repository.removeprefix(kind + "/")
                for revision in ("main", "refs%2Fpr%2F1", COMMIT):
                    if self.path == f"/api/{kind}/{name}/revision/{revision}":
                        info = {"id": name, "sha": COMMIT}
                        if repository not in WITHOUT_SIBLINGS:
                            info["siblings"] = [{"rfilename": f} for f in files]
                        return self.answer(200, json.dumps(info).encode())
                if self.path.split("?")[0] == f"/api/{kind}/{name}/tree/{COMMIT}":
                    return self.tree(files)
                prefix = f"/{'datasets/' if kind == 'datasets' else ''}{name}/resolve/{COMMIT}/"
                if self.path.startswith(prefix) and (file := self.path.removeprefix(prefix)) in files:
                    return self.resolve(name, file, files[file])
        self.answer(404, b'{"error": "Repository not found"}')

    def tree(self, files):
        """The files of a repository, one a page."""
        page = int(parse_qs(urlparse(self.path).query).get("page", ["0"])[0])
        names = sorted(files)
        fields = {}
        if page + 1 < len(names):
            path = self.path.split("?")[0]
            fields["Link"] = f'<http://127.0.0.1:{hub.server_port}{path}?recursive=true&page={page + 1}>; rel="next"'
        name = names[page]
        entries = [{"type": "directory", "path": "onnx", "oid": COMMIT, "size": 0},
                   {"type": "file", "path": name, "oid": git_sha1(files[name]), "size": len(files[name])}]
        return self.answer(200, json.dumps(entries).encode(), **fields)

    def resolve(self, repository, file, data):
        if repository == "org/gated" and self.headers.get("Authorization") != "Bearer hf_secret":
            return self.answer(401, b'{"error": "Access to this model is restricted"}')
        fields = {"X_Repo_Commit": COMMIT, "ETag": f'"{git_sha1(data)}"'}
        if file in LARGE:
            return self.answer(302, Location=f"http://127.0.0.1:{other.server_port}/{file}?signature=1",
                               X_Linked_Etag=f'"{sha256(data)}"', X_Linked_Size=str(len(data)),
                               X_Repo_Commit=COMMIT)
        if repository == "org/wrong" and self.command == "GET":
            data = b"something else  "[:len(data)]
        if repository == "org/short" and self.command == "HEAD":
            fields["Content_Length"] = "6"
        return self.send_file(file, data, **fields)

    do_HEAD = do_GET


class Storage(Hub):
    name = "storage"

    def do_GET(self):
        self.note()
        self.send_file("", FILES[self.path.split("?")[0].removeprefix("/")])

    do_HEAD = do_GET


hub = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
other = ThreadingHTTPServer(("127.0.0.1", 0), Storage)
threading.Thread(target=other.serve_forever, daemon=True).start()
print(hub.server_port, other.server_port, flush=True)
hub.serve_forever()
