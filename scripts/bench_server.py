"""What `scripts/bench server` measures, on a real Qdrant server on loopback that is started for it:

  audit      mem0audit audit: the scroll, the log and every rule, its start included; and without S801 to S803, for
             which every text is searched
  status     mem0audit status; and users: mem0audit users
  scroll     the payloads alone, by every client and page size that could be the quickest, timed without its start:
             QdrantClient.scroll as a user has it, httpx and http.client by hand, decoded by orjson
  relocate   mem0audit relocate --to-url: every point carried, read back and compared, its start included
  migrate    QdrantClient(path=...).migrate(...): what a user has today, in batches of the same size
  upload     QdrantClient.upload_points of points that are in memory, in batches of the same size

The ways of each group run in turn. "cpu s" is the program's and, behind the plus, the server's meanwhile.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.qdrant_server import QdrantServer  # noqa: E402

PAGES = (1000, 2500, 10_000)
BATCH = 256
TIMED = """
import sys, time
url, port, page, folder, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
"""
SCROLLS = {
    "client": """
from qdrant_client import QdrantClient
client = QdrantClient(url=url, check_compatibility=False, timeout=600)
begun, cpu, offset = time.perf_counter(), time.process_time(), None
while True:
    points, offset = client.scroll("mem0", limit=page, offset=offset, with_payload=True, with_vectors=False)
    if offset is None:
        break
print(time.perf_counter() - begun, time.process_time() - cpu)
""",
    "httpx": """
import httpx
try:
    from orjson import loads
except ImportError:
    from json import loads
client = httpx.Client(base_url=url, headers={"accept-encoding": "identity"}, timeout=600)
begun, cpu, offset = time.perf_counter(), time.process_time(), None
while True:
    body = {"limit": page, "with_payload": True, "with_vector": False, "offset": offset}
    answer = loads(client.post("/collections/mem0/points/scroll", json=body).content)["result"]
    offset = answer["next_page_offset"]
    if offset is None:
        break
print(time.perf_counter() - begun, time.process_time() - cpu)
""",
    "http": """
import http.client, json
try:
    from orjson import loads
except ImportError:
    from json import loads
client = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
headers = {"content-type": "application/json", "accept-encoding": "identity"}
begun, cpu, offset = time.perf_counter(), time.process_time(), None
while True:
    body = {"limit": page, "with_payload": True, "with_vector": False, "offset": offset}
    client.request("POST", "/collections/mem0/points/scroll", json.dumps(body), headers)
    answer = loads(client.getresponse().read())["result"]
    offset = answer["next_page_offset"]
    if offset is None:
        break
print(time.perf_counter() - begun, time.process_time() - cpu)
""",
}
CARRIES = {
    "migrate": """
begun, cpu = time.perf_counter(), time.process_time()
from qdrant_client import QdrantClient
source = QdrantClient(path=folder)
source.migrate(QdrantClient(url=url, check_compatibility=False, timeout=600), batch_size=batch)
print(time.perf_counter() - begun, time.process_time() - cpu)
source.close()
""",
    "upload": """
from qdrant_client import QdrantClient, models
source = QdrantClient(path=folder)
client = QdrantClient(url=url, check_compatibility=False, timeout=600)
records, _ = source.scroll("mem0", limit=10_000_000, with_payload=True, with_vectors=True)
points = [models.PointStruct(id=r.id, vector=r.vector, payload=r.payload) for r in records]
size = len(points[0].vector if isinstance(points[0].vector, list) else points[0].vector[""])
begun, cpu = time.perf_counter(), time.process_time()
client.create_collection(
    "mem0",
    vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE),
    sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
)
client.upload_points("mem0", points, batch_size=batch, wait=True)
print(time.perf_counter() - begun, time.process_time() - cpu)
source.close()
""",
}


class Measured(NamedTuple):
    wall: float
    program: float
    """The wall seconds of the whole program, the loading of what it needs included."""
    cpu: float
    server: float
    megabytes: float


def server_cpu(server: QdrantServer) -> float:
    """Seconds of processor that the server used since it was started."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(server: QdrantServer, command: list[str], environment: dict[str, str], *, inside: bool) -> Measured:
    """A command run to its end; with `inside` the seconds are those that it prints itself."""
    before, started = server_cpu(server), time.perf_counter()
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said, complained = child.communicate()
    wall = program = time.perf_counter() - started
    if child.returncode not in ((0,) if inside else (0, 1, 3)):
        sys.exit(f"{command[:4]}: exit {child.returncode}\n{complained}{said[-500:]}")
    peak, cpu = map(float, complained.rsplit("\n", 2)[-2].split())
    if inside:
        wall, cpu = map(float, said.split()[-2:])
    return Measured(wall, program, cpu, server_cpu(server) - before, peak)


WRAPPED = """
import os, resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"\\n{used.ru_maxrss / 1024} {used.ru_utime + used.ru_stime}", file=sys.stderr)
sys.exit(done.returncode)
"""


def shown(name: str, runs: list[Measured], remark: str = "") -> float:
    """Prints a line of the table; the median of the seconds."""
    wall = statistics.median(one.wall for one in runs)
    cpu, server = statistics.median(one.cpu for one in runs), statistics.median(one.server for one in runs)
    peak = max(one.megabytes for one in runs)
    print(f"{name:16}{wall:9.2f}{cpu:9.2f} +{server:6.2f}{peak:9.0f}{remark:>44}", flush=True)
    return wall


def measure(python: str, folder: Path, sizes: list[int], dims: int, runs: int) -> None:
    peaks: dict[int, float] = {}
    for size in sizes:
        store = folder / f"{size}x{dims}"
        if not (store / "history.db").exists():
            print(f"building {store}", file=sys.stderr)
            maker = [python, str(HERE / "make_big_store.py"), str(size), str(dims), str(store)]
            subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
        home = store / "home"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        environment = {**os.environ, "HOME": str(home), "MEM0_DIR": str(home), "MEM0_TELEMETRY": "False"}
        environment["PYTHONWARNINGS"] = "ignore"
        # compiled once, as what is installed is
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(home / "compiled")
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
            environment.pop(name, None)
        server = QdrantServer(environ={"QDRANT__STORAGE__WAL__WAL_CAPACITY_MB": "32"})
        server.start()
        try:
            peaks[size] = _measure(python, store, server, environment, size, dims, runs)
        finally:
            server.remove()
    if len(peaks) > 1:
        small, large = min(peaks), max(peaks)
        print(
            f"\n{large / small:.0f} times the memories take {peaks[large] / peaks[small]:.1f} times the memory"
        )


def _measure(
    python: str,
    store: Path,
    server: QdrantServer,
    environment: dict[str, str],
    size: int,
    dims: int,
    runs: int,
) -> float:
    """One size; the peak of the audit's memory in megabytes."""
    vectors, history = str(store / "qdrant"), str(store / "history.db")
    ours = [sys.executable, "-c", WRAPPED, python, "-m", "mem0audit"]
    relocate = [*ours, "relocate", "--history", history, "--qdrant-path", vectors, "--collection", "mem0"]
    relocate += ["--to-url", server.url, "--yes", "--no-ledger"]
    here = ["--format", "json", "--history", history, "--qdrant-url", server.url]
    looks = {
        "audit": [*ours, "audit", *here, "--no-ledger"],
        "  without texts": [*ours, "audit", *here, "--no-ledger", "--ignore", "S801,S802,S803"],
        "status": [*ours, "status", *here, "--no-ledger"],
        "users": [*ours, "users", *here],
    }

    def other(code: str, page: int) -> list[str]:
        words = [server.url, str(server.http_port), str(page), vectors, str(BATCH)]
        return [sys.executable, "-c", WRAPPED, python, "-c", TIMED + code, *words]

    print(f"\n{size:,} memories x {dims} dimensions on a server, batches of {BATCH}")
    print(f"{'way':16}{'wall s':>9}{'cpu s':>9}{'':8}{'peak MB':>9}")
    carried: dict[str, list[Measured]] = {}
    for _ in range(runs):
        for name in (*CARRIES, "relocate"):  # which comes last: it has what mem0 would make there
            if "mem0" in server.collections():
                server.result("DELETE", "/collections/mem0")
            command = relocate if name == "relocate" else other(CARRIES[name], 0)
            carried.setdefault(name, []).append(run(server, command, environment, inside=name == "upload"))
    walls = {name: statistics.median(one.wall for one in found) for name, found in carried.items()}
    for name, found in carried.items():
        ratio = f"relocate takes {walls['relocate'] / walls[name]:.2f} times as long"
        shown(name, found, "" if name == "relocate" else ratio)
    while server.result("GET", "/collections/mem0")["status"] != "green":
        time.sleep(0.5)
    read: dict[str, list[Measured]] = {}
    run(server, looks["audit"], environment, inside=False)
    for _ in range(runs):
        for name, command in looks.items():
            read.setdefault(name, []).append(run(server, command, environment, inside=False))
        for name, code in SCROLLS.items():
            for page in PAGES:
                found = run(server, other(code, page), environment, inside=True)
                read.setdefault(f"{name} {page}", []).append(found)
    walls = {name: statistics.median(one.wall for one in found) for name, found in read.items()}
    for name, found in read.items():
        shown(
            name,
            found,
            "" if name in looks else f"an audit takes {walls['audit'] / walls[name]:.2f} times as long",
        )
    for of in ("client", ""):
        best = min((n for n in walls if n not in looks and n.startswith(of)), key=lambda name: walls[name])
        ratio = ", ".join(f"{walls[n] / walls[best]:.2f}" for n in ("audit", "  without texts"))
        program = statistics.median(one.program for one in read[best])
        print(
            f"the best scroll{' by a client' if of else ''} is {best}: an audit takes {ratio} (without texts); "
            f"{walls['audit'] / program:.2f} times as long as that program with its start"
        )
    return max(one.megabytes for one in read["audit"])
