"""Where the hub cannot be reached, its library does not try for half a minute."""

import socket
from pathlib import Path

import pytest
from huggingface_hub import constants

from suture.core.errors import UserError
from suture.models.hub import hub
from suture.models.segmenter import build_segmenter


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("offline")
def test_weights_that_are_not_here_are_one_sentence_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with hub():
        assert constants.HF_HUB_OFFLINE  # so that nothing is tried again and again
    with pytest.raises(UserError, match=r"huggingface\.co cannot be reached: check the network") as caught:
        build_segmenter("deeplabv3", "resnet18", 2, weights="imagenet")
    assert caught.value.__suppress_context__, "in Python, the library's tracebacks would stand above it"
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("offline")
def test_other_mistakes_keep_their_words() -> None:
    with pytest.raises(UserError, match="there is no 'resnet17'"):
        build_segmenter("deeplabv3", "resnet17", 2, weights="imagenet")


@pytest.mark.usefixtures("offline")
def test_behind_a_proxy_the_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    with hub():
        assert not constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("offline")
def test_who_needs_no_weights_of_the_hub_does_not_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("the hub was looked for"))
    build_segmenter("deeplabv3", "resnet18", 2)
