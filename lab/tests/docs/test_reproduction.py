"""The page of the paper's tables is what its kept results make it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_rendered_from_the_results_that_are_kept() -> None:
    command = [sys.executable, str(ROOT / "lab" / "tools" / "docs" / "reproduction.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
