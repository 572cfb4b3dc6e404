"""config/mem0audit.toml is what `config example` prints, and reads as settings."""

from __future__ import annotations

from pathlib import Path

from mem0audit.install.config import EXAMPLE, validate

SAMPLE = Path(__file__).parents[2] / "config" / "mem0audit.toml"


def test_the_sample_is_the_example() -> None:
    assert SAMPLE.read_text() == EXAMPLE


def test_the_sample_is_valid() -> None:
    assert not validate(str(SAMPLE)).problems


def test_every_key_of_the_sample_is_a_setting(tmp_path: Path) -> None:
    """Uncommented, it still reads: no key in it is a misspelled one."""
    lines = [line.removeprefix("# ").removeprefix("#") for line in EXAMPLE.splitlines() if "=" in line]
    live = tmp_path / "mem0audit.toml"
    live.write_text("\n".join(lines))
    problems = validate(str(live)).problems
    assert not any("did you mean" in p or "unknown" in p.lower() for p in problems), problems
