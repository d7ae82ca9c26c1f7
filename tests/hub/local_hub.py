"""A Hugging Face Hub on this machine: the routes that uploading and downloading a model use, and nothing else."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

LARGE = (".safetensors", ".gz")  # what the Hub keeps beside git


class LocalHub(ThreadingHTTPServer):
    """Repositories in memory: each a list of commits, the last one `main`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Routes)
        self.repositories: dict[str, list[tuple[str, dict[str, bytes]]]] = {}
        self.large: dict[str, bytes] = {}  # by SHA-256
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repository: str, files: dict[str, bytes]) -> str:
        """Add files to a repository; the new commit."""
        commits = self.repositories.setdefault(repository, [])
        told = json.dumps([len(commits), sorted(hashlib.sha256(each).hexdigest() for each in files.values())])
        commit = hashlib.sha1(told.encode()).hexdigest()
        commits.append((commit, {**(commits[-1][1] if commits else {}), **files}))
        return commit

    def files(self, repository: str, revision: str = "main") -> tuple[str, dict[str, bytes]] | None:
        commits = self.repositories[repository]
        return commits[-1] if revision == "main" else next((each for each in commits if each[0] == revision), None)


@contextmanager
def running_hub() -> Iterator[LocalHub]:
    with LocalHub() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Routes(BaseHTTPRequestHandler):
    server: LocalHub

    def log_message(self, *_: Any) -> None:
        """Silent."""

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, status: int, content: object = None, headers: dict[str, str] | None = None) -> None:
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(sent)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        if found is None or found[1] not in self.server.repositories:
            return self.answer(404, {}, {"X-Error-Code": "RepoNotFound"})
        commit = self.server.files(found[1], found[2])
        if commit is None:
            return self.answer(404, {}, {"X-Error-Code": "RevisionNotFound"})
        if found[3] not in commit[1]:
            return self.answer(404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit[0]})
        content = commit[1][found[3]]
        etag = hashlib.sha256(content).hexdigest()
        return self.answer(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": commit[0]})

    def do_PUT(self) -> None:
        content, oid = self.body(), self.path.rpartition("/")[2]
        assert hashlib.sha256(content).hexdigest() == oid
        self.server.large[oid] = content
        self.answer(200)

    def do_POST(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        body = self.body()
        if self.path == "/api/repos/create":
            made = json.loads(body)
            name = f"{made['organization']}/{made['name']}"
            if self.headers.get("Authorization") != "Bearer secret":
                return self.answer(401, {"error": "Invalid username or password."})
            if name in self.server.repositories:
                return self.answer(409, {"url": f"{self.server.url}/{name}"})
            self.server.repositories[name] = []
            return self.answer(200, {"url": f"{self.server.url}/{name}"})
        if self.path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        repository = "/".join(self.path.removeprefix("/api/models").split("/")[1:3]).removesuffix(".git")
        if self.path.endswith("/preupload/main"):
            asked = json.loads(body)["files"]
            modes = {each["path"]: "lfs" if each["path"].endswith(LARGE) else "regular" for each in asked}
            told = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            return self.answer(200, {"files": told})
        if self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**each, "actions": {"upload": {"href": f"{self.server.url}/large/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            return self.answer(200, {"transfer": "basic", "objects": objects})
        assert self.path.endswith("/commit/main"), self.path
        files = {}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
        commit = self.server.commit(repository, files)
        return self.answer(200, {"commitUrl": f"{self.server.url}/{repository}/commit/{commit}", "commitOid": commit})
