"""The requests of SWE-ReX. Members that are not known are ignored, as newer clients have more."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from paddock.contract.requests import LARGEST_BODY, Body

_Seconds = Annotated[float, Field(allow_inf_nan=False)]
# None: no limit.
_Limit = _Seconds | None
Check = Literal["silent", "raise", "ignore"]


class SwerexBody(Body):
    """A request."""

    MOST_BYTES = LARGEST_BODY

    model_config = ConfigDict(extra="ignore")


class SessionBody(SwerexBody):
    """Which of its shells is meant. SWE-ReX calls a shell a session."""

    session: str = "default"


class CreateBody(SessionBody):
    """The shell to create."""

    session_type: Literal["bash"] = "bash"
    startup_source: Annotated[list[str], Field(max_length=64)] = []
    startup_timeout: _Seconds = 1.0


class ActionBody(SessionBody):
    """A command for a shell, or an interrupt of the one that runs."""

    action_type: Literal["bash", "bash_interrupt"] = "bash"
    command: str = ""
    timeout: _Limit = None
    is_interactive_command: bool = False
    is_interactive_quit: bool = False
    check: Check = "raise"
    error_msg: str = ""
    expect: list[str] = []
    n_retry: int = 3


class ExecuteBody(SwerexBody):
    """A command of its own."""

    command: str | list[str]
    timeout: _Limit = None
    shell: bool = False
    check: bool = False
    error_msg: str = ""
    env: dict[str, str] | None = None
    cwd: str | None = None
    merge_output_streams: bool = False


class ReadBody(SwerexBody):
    """A file to read as text."""

    path: str
    encoding: str | None = None
    errors: str | None = None


class WriteBody(SwerexBody):
    """A file to write."""

    path: str
    content: str
