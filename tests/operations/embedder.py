"""A user's own embedder for tests: answers as OpenAI's does, on this machine, with vectors that depend on the text."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.builders import DIMS, vector_of


class Embedder:
    """What was asked, and how many texts are answered before it refuses (None: all)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.left: int | None = None

    def config(self, **more: Any) -> dict[str, Any]:
        """The dict for `Memory.from_config`, without paths."""
        embedder = {"openai_base_url": self.url, "api_key": "sk-own", "embedding_dims": DIMS}
        store = {"collection_name": "mem0", "embedding_model_dims": DIMS, **more}
        return {
            "vector_store": {"provider": "qdrant", "config": store},
            "embedder": {"provider": "openai", "config": {"model": "own", **embedder}},
        }

    def write(self, file: Path, **more: Any) -> Path:
        """The same as a file."""
        file.write_text(json.dumps(self.config(**more)))
        return file


@contextlib.contextmanager
def serving() -> Iterator[Embedder]:
    """The embedder, on a port of its own."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            if embedder.left is not None and embedder.left < len(texts):
                said, status = {"error": {"message": f"no quota for {texts[0]}"}}, 400
            else:
                embedder.left = None if embedder.left is None else embedder.left - len(texts)
                embedder.asked += texts
                data = [
                    {"object": "embedding", "index": n, "embedding": vector_of(text)}
                    for n, text in enumerate(texts)
                ]
                usage = {"prompt_tokens": 1, "total_tokens": 1}
                said, status = {"object": "list", "data": data, "model": "own", "usage": usage}, 200
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    embedder = Embedder(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield embedder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
