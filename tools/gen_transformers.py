"""Record small transformers of the `transformers` package in tests/language/transformers.npz: files, inputs, scores.

    python tools/gen_transformers.py

Needs `pip install torch transformers safetensors`, which tests do not. Weights are random; scores are computed in
float64 from the values in the files. Recorded with torch 2.13.0 and transformers 5.23.0.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

TARGET = Path(__file__).resolve().parent.parent / "tests" / "language" / "transformers.npz"
IDS = 19
SHARED = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": IDS}
CAUSAL = SHARED | {"num_key_value_heads": 2, "intermediate_size": 12}
MODELS = {  # name: class, configuration, type of the file's values
    "gpt2": (
        GPT2LMHeadModel,
        GPT2Config(vocab_size=IDS, n_positions=6, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0),
        torch.float32,
    ),
    "llama": (LlamaForCausalLM, LlamaConfig(**CAUSAL, rms_norm_eps=1e-5), torch.bfloat16),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(**CAUSAL, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True),
        torch.float16,
    ),
    "vit": (
        ViTForImageClassification,
        ViTConfig(
            **{k: v for k, v in SHARED.items() if k != "vocab_size"},
            intermediate_size=12,
            image_size=8,
            patch_size=4,
            num_labels=3,
        ),
        torch.float32,
    ),
}


def recorded(name: str) -> dict[str, np.ndarray]:
    """The file, an input and the scores of one model."""
    make, config, kind = MODELS[name]
    torch.manual_seed(len(name))
    model = make(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2 + (parameter.ndim == 1))
    model = model.to(kind)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        content = np.frombuffer((Path(folder) / "model.safetensors").read_bytes(), np.uint8)
    model = model.double()
    given = torch.randn(2, 3, 8, 8, dtype=torch.float64) if name == "vit" else torch.randint(IDS, (2, 6))
    with torch.no_grad():
        scores = model(given).logits.numpy()
    return {"file": content, "input": given.numpy().astype(np.float64), "scores": scores}


def main() -> None:
    arrays = {f"{name}.{what}": array for name in MODELS for what, array in recorded(name).items()}
    np.savez_compressed(TARGET, **arrays)
    print(f"written: {TARGET.name}, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
