"""The Python of a process and the packages it would import, found without running or importing anything.

Nothing of theirs is executed, not even `python --version`: under sudo that would run a user's files as root.
Paths of a process in another mount namespace are read through `/proc/PID/root`.
"""

# Paths here are texts of this or another mount namespace, kept as they were written: no pathlib.
# ruff: noqa: PTH112, PTH115, PTH116, PTH118, PTH119, PTH120, PTH121, PTH122, PTH208

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mem0audit.install.host import Host, read_text, resolved, seen_through

_PYTHON = re.compile(r"(?:pypy|python)(\d+(?:\.\d+)?)?[a-z]?(?:\.exe)?$")


@dataclass(frozen=True)
class Package:
    """An installed distribution: its version and the metadata folder that says so."""

    version: str
    metadata: str


def environ_of(pid: int, host: Host) -> dict[str, str]:
    """The environment a process was started with; empty where it is not visible."""
    pairs = (entry.partition("=") for entry in read_text(f"{host.proc}/{pid}/environ").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def arguments_of(pid: int, host: Host) -> tuple[str, ...]:
    """The command line of a process; empty for a kernel thread or one that is gone."""
    text = read_text(f"{host.proc}/{pid}/cmdline")
    return tuple(text.rstrip("\0").split("\0")) if text else ()


def cwd_of(pid: int, host: Host) -> str | None:
    """The working directory of a process in its own words, None where it is not visible."""
    try:
        found = os.readlink(f"{host.proc}/{pid}/cwd")
    except OSError:
        return None
    return None if found.endswith(" (deleted)") else found


def base_of(pid: int, host: Host) -> str:
    """What to put before a path of that process to read it from here: "" in our own mount namespace."""
    try:
        same = os.readlink(f"{host.proc}/{pid}/ns/mnt") == os.readlink(f"{host.proc}/self/ns/mnt")
        same = same and os.readlink(f"{host.proc}/{pid}/root") == "/"
    except OSError:
        same = True
    return "" if same else f"{host.proc}/{pid}/root"


def interpreter_of(pid: int, host: Host) -> str | None:
    """The Python that a process was started as, in its own words; None where it is not one or not visible.

    What it was started as (`venv/bin/python`) names the virtual environment; the executable that
    `/proc` shows has that symlink resolved, and is only used where the command line does not help.
    """
    try:
        executable = os.readlink(f"{host.proc}/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return None
    base = base_of(pid, host)
    arguments = arguments_of(pid, host)
    first = arguments[0] if arguments else ""
    environ = environ_of(pid, host)
    if _PYTHON.search(os.path.basename(first)):
        if "/" in first:
            started = os.path.normpath(os.path.join(cwd_of(pid, host) or "/", first))
            if _same(base + started, base + executable, host):
                return started
        else:
            for folder in environ.get("PATH", "").split(":"):
                started = f"{folder.rstrip('/')}/{first}"
                if folder.startswith("/") and _same(base + started, base + executable, host):
                    return started
    # gunicorn and others rewrite their command line: the environment is what is left.
    venv = environ.get("VIRTUAL_ENV")
    if venv and venv.startswith("/"):
        started = f"{venv.rstrip('/')}/bin/python"
        if _same(base + started, base + executable, host):
            return started
    return executable if _PYTHON.search(os.path.basename(executable)) else None


def _same(started: str, executable: str, host: Host) -> bool:
    try:
        return os.path.samefile(resolved(started, host), resolved(executable, host))
    except OSError:
        return False


def mapped_packages(pid: int, host: Host) -> tuple[str, ...]:
    """The site-packages folders that a process has compiled modules loaded from, in its own words.

    The surest sign of what it imports: qdrant-client brings numpy, grpc and pydantic_core with it.
    """
    found: dict[str, None] = {}
    for line in read_text(f"{host.proc}/{pid}/maps").splitlines():
        match = re.search(r" (/.*?/(?:site|dist)-packages)/", line)
        if match:
            found.setdefault(match[1])
    return tuple(found)


def import_path(
    interpreter: str,
    host: Host,
    base: str = "",
    environ: dict[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    cwd: str | None = None,
) -> tuple[str, ...]:
    """Where `interpreter` looks for packages, first to last, as far as its files tell, in its own words.

    Virtual environments, Debian's dist-packages, conda, the user's own site-packages, PYTHONPATH and `.pth`
    files; `base` is put before paths to read them.
    """
    environ = environ or {}
    isolated = any(re.fullmatch(r"-[A-Za-z]*I[A-Za-z]*", word) for word in arguments[1:2])
    folders: dict[str, None] = {}
    if not isolated:
        for folder in environ.get("PYTHONPATH", "").split(":"):
            if folder:
                folders.setdefault(os.path.join(cwd or "/", folder))
    prefix = os.path.dirname(os.path.dirname(interpreter))
    settings = _venv_settings(prefix, base, host)
    try:
        real = resolved(base + interpreter, host)
    except OSError:
        real = base + interpreter
    real = _inner(real, base)
    version = _version_in(os.path.basename(real)) or _version_in(os.path.basename(interpreter))
    sites: list[str] = []
    if settings is not None:
        version = version or _major_minor(settings.get("version_info") or settings.get("version") or "")
        sites += _site_folders(prefix, version, base)
        if settings.get("include-system-site-packages", "").lower() != "true":
            return _with_pth((*folders, *sites), base, host)
        prefix = os.path.dirname(settings.get("home", os.path.dirname(real)))
        if _venv_settings(prefix, base, host) is not None:
            # Made from another environment: Python 3.10 writes that one as home, and uses what is behind it.
            prefix = os.path.dirname(os.path.dirname(real))
    else:
        prefix = os.path.dirname(os.path.dirname(real))
    home = environ.get("HOME")
    user = environ.get("PYTHONUSERBASE") or (f"{home.rstrip('/')}/.local" if home else None)
    if user and not isolated and "PYTHONNOUSERSITE" not in environ:
        sites += _site_folders(user, version, base)
    if environ.get("PYTHONHOME"):
        prefix = environ["PYTHONHOME"].partition(":")[0]
    if prefix == "/":  # /bin is a link to /usr/bin on merged systems, or the prefix is really empty
        prefix = "/usr"
    if prefix == "/usr":
        sites += _site_folders("/usr/local", version, base)
    sites += _site_folders(prefix, version, base)
    return _with_pth((*folders, *sites), base, host)


def _inner(path: str, base: str) -> str:
    return path[len(base) :] or "/" if base and path.startswith(base) else path


def _venv_settings(prefix: str, base: str, host: Host) -> dict[str, str] | None:
    for folder in (prefix, f"{prefix}/bin"):
        text = read_text(host.at(f"{base}{folder}/pyvenv.cfg") if not base else f"{base}{folder}/pyvenv.cfg")
        if text:
            pairs = (line.partition("=") for line in text.splitlines())
            return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}
    return None


def _version_in(name: str) -> str | None:
    found = re.search(r"python(\d+\.\d+)", name)
    return found[1] if found else None


def _major_minor(text: str) -> str | None:
    found = re.match(r"(\d+\.\d+)", text)
    return found[1] if found else None


def _site_folders(prefix: str, version: str | None, base: str) -> list[str]:
    """The package folders below a prefix that exist, those of the version (or of every one if unknown)."""
    names = []
    for library in ("lib", "lib64"):
        try:
            entries = sorted(os.listdir(f"{base}{prefix}/{library}"))
        except OSError:
            continue
        for entry in entries:
            right = entry in (f"python{version}", "python3") if version else entry.startswith("python")
            if right or entry.startswith("pypy"):
                names += [
                    f"{prefix}/{library}/{entry}/{kind}-packages"
                    for kind in ("site", "dist")
                    if os.path.isdir(f"{base}{prefix}/{library}/{entry}/{kind}-packages")
                ]
    return names


def _with_pth(folders: Iterable[str], base: str, host: Host) -> tuple[str, ...]:
    """The folders, each followed by those that its `.pth` files add. Lines that would run code are not."""
    found: dict[str, None] = {}
    for folder in folders:
        found.setdefault(folder)
        for addition in _pth_additions(folder, base, host):
            found.setdefault(addition)
    return tuple(found)


def _pth_additions(folder: str, base: str, host: Host) -> Iterator[str]:
    try:
        names = sorted(name for name in os.listdir(base + folder) if name.endswith(".pth"))
    except OSError:
        return
    for name in names:
        for line in read_text(f"{base}{folder}/{name}").splitlines():
            line = line.strip()
            if line and not line.startswith(("#", "import ", "import\t")):
                addition = os.path.normpath(os.path.join(folder, line))
                if os.path.isdir(base + addition):
                    yield addition


def package_in(folders: Iterable[str], name: str, base: str = "") -> Package | None:
    """The distribution `name` in the first folder that has it, from its metadata, None if none has."""
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    for folder in folders:
        try:
            entries = os.listdir(base + folder)
        except OSError:
            continue
        found = []
        for entry in entries:
            stem, extension = os.path.splitext(entry)
            if extension not in (".dist-info", ".egg-info"):
                continue
            if re.sub(r"[-_.]+", "_", stem.partition("-")[0]).lower() != wanted:
                continue
            version = _version_of(f"{base}{folder}/{entry}")
            if version is not None:
                found.append(Package(version, f"{folder}/{entry}"))
        if found:
            # Left over from a broken upgrade: the one written last is the one whose files are there.
            return max(found, key=lambda package: _written(base + package.metadata))
    return None


def _version_of(metadata: str) -> str | None:
    names = ("METADATA", "PKG-INFO") if os.path.isdir(metadata) else ("",)
    for name in names:
        head = read_text(f"{metadata}/{name}" if name else metadata).partition("\n\n")[0]
        found = re.search(r"^Version:\s*(\S+)\s*$", head, re.MULTILINE)
        if found:
            return found[1]
    return None


def _written(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def split_base(path: str, host: Host) -> tuple[str, str]:
    """A path as (what to put before, path in its own words): ("/proc/9/root", "/x") or ("", path)."""
    pid, inner = seen_through(path, host)
    return ("", path) if pid is None else (f"{host.proc.rstrip('/')}/{pid}/root", inner)
