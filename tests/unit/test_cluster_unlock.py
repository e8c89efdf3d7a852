"""What a locked folder's message says: whether a snakemake runs in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bertline.cluster.unlock import explain_lock, unlock
from bertline.console import BertlineError


def test_a_running_snakemake_is_named_and_one_that_was_killed_is_unlocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("snakemake").write_text("import sys; print('started', flush=True); sys.stdin.read()")
    command, pipe = [sys.executable, "snakemake", "--cores", "1"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None
        running.stdout.readline()
        expected = f"snakemake already runs in this folder, as process {running.pid}; wait for it, or stop it first"
        assert explain_lock() == expected
        with pytest.raises(BertlineError, match=f"snakemake runs here as process {running.pid};"):
            unlock(["small.yaml"])
        running.kill()
    assert explain_lock().endswith("or clear the lock of the second by `make unlock`")
