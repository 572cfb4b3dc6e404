"""Credentials in texts: what is found, what never is, and that nothing of it is shown."""

from __future__ import annotations

import random
import time
import uuid
from hashlib import md5, sha1, sha256

import pytest

from mem0audit.core.signs import may_hold_secret
from mem0audit.stores import detectors
from mem0audit.stores.detectors import find_secrets
from tests.patterns import made
from tests.speed import slowness

CREDENTIALS = {
    "User's AWS key is AKIAIOSFODNN7EXAMPLE for staging": "AKIAIOSFODNN7EXAMPLE",
    "token ghp_16C7e42F292c6912E7710c838347Ae178B4a used": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "my password is hunter22!": "hunter22",
    "The wifi password at the cabin is sunflower42": "sunflower42",
    "PIN for the garage is 4711": "4711",
    "postgres://bob:s3cr3t@db.host/x": "s3cr3t",
    "key sk-proj-abcdefghijklmnopqrst1234567890ABCDEFT3BlbkFJabcdef": "abcdefghijklmnopqrst1234567890",
    "-----BEGIN OPENSSH PRIVATE KEY-----": "OPENSSH PRIVATE",
    "use Bearer abcdefghijklmnop.qrstuvwxyz0123456789": "qrstuvwxyz0123456789",
    "x" * 5_000 + " AKIAIOSFODNN7EXAMPLE " + "y" * 5_000: "AKIAIOSFODNN7EXAMPLE",
}
NONE = (
    "User keeps passwords in 1Password",
    "The password is stored in Bitwarden",
    "The password is required for access",
    "User's token is in $TOKEN",
    "api_key = <your key>",
    "the secret is love",
    "User collects old subway tokens",
    "The key to happiness is 42 cats",
    "see https://docs.example.com/keys/rotation?page=12345678901234567890",
)


@pytest.mark.parametrize("text", CREDENTIALS)
def test_found_and_masked(text: str) -> None:
    assert may_hold_secret(text)
    found = find_secrets(text)
    assert len(found) == 1
    assert CREDENTIALS[text] not in repr(found)


def test_the_first_search_hides_no_form_of_the_detectors() -> None:
    rng, forms = random.Random(3), [form for one in detectors._detectors() for form in one.denylist]
    seen = set()
    for form in forms:
        for text in filter(form.search, [made(form.pattern, rng) for _ in range(20)]):
            seen.add(form)
            assert detectors._OF_ALL_FORMS.search(text), (form.pattern, text)
    assert len(seen) > 0.8 * len(forms) > 30


@pytest.mark.parametrize("text", NONE)
def test_none_where_there_is_none(text: str) -> None:
    assert not find_secrets(text)


def test_what_mem0_writes_itself_is_none() -> None:
    """Ids and digests, alone and in sentences, 2,000 of them."""
    for number in range(500):
        name = str(number).encode()
        for one in (uuid.uuid5(uuid.NAMESPACE_DNS, str(number)), md5(name), sha1(name), sha256(name)):
            text = str(one) if isinstance(one, uuid.UUID) else one.hexdigest()
            assert not find_secrets(f"the token of {text} is {text}"), text


@pytest.mark.parametrize(
    "text",
    [
        "a://" * 8_000,
        "-----BEGIN " * 8_000,
        "password is " * 5_000,
        "AKIA" * 20_000,
        "Bearer " + "A" * 90_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    find_secrets(text)
    assert time.process_time() - started < 5.0 * slowness()
