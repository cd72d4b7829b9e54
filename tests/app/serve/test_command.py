"""`specchat serve` as a process: what it prints, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from app.cli.main import FAILED, run
from app.foreground import Foreground
from app.locations import locate
from app.serve.http_server import is_loopback, listen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "app", "--data-dir", str(tmp_path), "--drafters", "prompt"]
    with subprocess.Popen(
        [*command, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        token = locate(tmp_path).token.read_text().strip()
        assert str(locate(tmp_path).token) in process.stdout.readline()
        headers = {"Authorization": f"Bearer {token}"}
        while True:
            try:
                found = httpx2.get(f"{url}/models", headers=headers, trust_env=False)
                break
            except httpx2.ConnectError:
                assert process.poll() is None
        assert found.json()["data"][0]["id"] == "built-in"
        assert not Foreground(locate(tmp_path).foreground).busy(), "idle work waits for it"
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (0, "")


def test_an_address_in_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        arguments = ["serve", "--port", str(port), "--data-dir", str(tmp_path)]
        assert run(arguments) == FAILED
    assert f"port {port}" in capsys.readouterr().err


def test_loopback_is_known() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
