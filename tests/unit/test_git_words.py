"""The words of git's commands: nothing that is given counts as an option or enters as a secret."""

import base64
from collections.abc import Callable

import pytest

from paddock.client.errors import ArgumentError
from paddock.client.git_words import (
    add_words,
    clone_words,
    commit_words,
    diff_words,
    directory_of,
    push_words,
)

URL = "https://git.example/greet.git"


def test_a_clone_sends_the_secrets_placeholder() -> None:
    words = clone_words(URL, "greet", branch="main", depth=1, secret="deploy", user="ada")
    (field,) = [word for word in words if word.startswith("http.extraHeader=")]
    name, _, pair = field.removeprefix("http.extraHeader=").rpartition(" ")
    assert name == "Authorization: Basic"
    assert base64.b64decode(pair) == b"ada:paddock:deploy"
    assert words[-6:] == ["--quiet", "--branch=main", "--depth=1", "--", URL, "greet"]
    assert not [word for word in clone_words(URL, "greet") if "extraHeader" in word]


def test_a_path_is_never_an_option() -> None:
    assert clone_words(URL, "--bare")[-3:] == ["--", URL, "--bare"]
    assert diff_words(["--output=x"])[-2:] == ["--", "--output=x"]
    assert commit_words("-m", None, ["--amend"])[-3:] == ["--message=-m", "--", "--amend"]
    assert add_words(["--force"])[-2:] == ["--", "--force"]
    assert add_words(None)[-2:] == ["--", ":/"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: clone_words("ssh://git.example/greet", "greet"),
        lambda: clone_words("ext::sh -c id", "greet"),
        lambda: clone_words("--upload-pack=id", "greet"),
        lambda: clone_words("https://", "greet"),
        lambda: clone_words("https://[git/greet", "greet"),
        lambda: clone_words(URL, "greet", branch="--bare"),
        lambda: clone_words(URL, "greet", depth=0),
        lambda: clone_words(URL, "greet", secret="ghp_NOT_A_NAME"),
        lambda: clone_words(URL, "greet", secret="deploy", user="a:b"),
        lambda: clone_words(URL, "greet", secret="deploy", user="a\nb"),
        lambda: push_words("--exec=id"),
        lambda: push_words("origin", ""),
        lambda: push_words("origin", "main:other"),
        lambda: push_words("origin", "+main"),
        lambda: diff_words(base="--output=x"),
        lambda: commit_words(" \n", None),
        lambda: commit_words("hello", "Ada"),
        lambda: commit_words("hello", "Ada\n <a@example.org>"),
        lambda: directory_of("https://git.example/"),
        lambda: directory_of("https://git.example/.."),
    ],
)
def test_what_git_would_take_for_something_else_is_refused(
    call: Callable[[], object],
) -> None:
    with pytest.raises(ArgumentError):
        call()


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ArgumentError, match="set a secret") as caught:
        clone_words("https://ada:s3cret@git.example/greet", "greet")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", [URL, "https://git.example/team/greet", "https://git.example/greet/"]
)
def test_the_directory_is_the_last_word_of_the_url(url: str) -> None:
    assert directory_of(url) == "greet"
