# Sourced by scripts/mem0audit, scripts/test and .ci/run. POSIX sh; sets nothing but `python`.

# Whether $1 is a Python that can make an environment: 3.10 or later, with venv and pip in it.
usable() {
    "$1" -I -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

# Sets `python` to the first usable one; PYTHON, if set, is the only one tried.
find_python() {
    for python in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3.10 python3 python; do
        if command -v "$python" >/dev/null 2>&1 && usable "$python"; then
            return 0
        fi
        if [ -n "${PYTHON:-}" ]; then
            echo "mem0audit: PYTHON=$PYTHON is no Python 3.10 or later with its venv module" >&2
            return 1
        fi
    done
    if command -v python3 >/dev/null 2>&1 && python3 -I -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        echo "mem0audit: $(command -v python3) lacks the venv module; on Debian and Ubuntu: apt install python3-venv" >&2
    else
        echo "mem0audit: needs Python 3.10 or later with its venv module; on Debian and Ubuntu: apt install python3 python3-venv" >&2
    fi
    return 1
}
