"""A log file that stays within its size, and loses nothing."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.log.log_file import KEPT, LogFile
from api.log.logs import logging_to_stdout
from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.settings import Settings


def test_a_full_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, max_bytes=10)
    for number in range(KEPT + 3):
        os.write(file.descriptor, b"line %d....\n" % number)
        file.rotate()
    os.write(file.descriptor, b"last")
    file.rotate()
    file.close()
    assert path.read_bytes() == b"last"
    aside = [path.with_name(f"log.{number}").read_bytes() for number in range(1, KEPT + 1)]
    assert aside == [b"line 5....\n", b"line 4....\n", b"line 3....\n"]
    assert len(list(tmp_path.iterdir())) == KEPT + 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_taken_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = LogFile(path, max_bytes=10)
    path.unlink()
    os.write(file.descriptor, b"nobody reads this")
    file.rotate()
    os.write(file.descriptor, b"here")
    file.close()
    assert path.read_bytes() == b"here"


def test_standard_output_goes_along(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from api.log.log_file import LogFile\n"
        "file = LogFile(Path(sys.argv[1]), max_bytes=1)\n"
        "print('before', flush=True); file.rotate(); print('after', flush=True)\n"
    )
    path = tmp_path / "log"
    with path.open("ab") as log:
        subprocess.run([sys.executable, "-c", script, str(path)], stdout=log, check=True)
    assert (path.with_name("log.1").read_text(), path.read_text()) == ("before\n", "after\n")


def test_records_go_to_the_file_of_the_settings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "paddock.log"
    with logging_to_stdout(Settings(log_file=path)):
        logging.getLogger("paddock.test").warning("it rains")
    assert "it rains" in path.read_text()
    assert capfd.readouterr().out == ""


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    settings = Settings(log_file=tmp_path / "absent" / "log")
    with (
        pytest.raises(ConfigError, match=r"PADDOCK_LOG_FILE: .*absent/log: No such file"),
        logging_to_stdout(settings),
    ):
        pass
