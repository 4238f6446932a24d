"""Text for nets: vocabularies, files of token ids, transformers, generation."""

from .blocks import transformer_block
from .dataset import write_tokens
from .families import gpt2, llama, vit
from .generation import generate
from .vocabulary import load_tokenizer, load_vocabulary

__all__ = ["generate", "gpt2", "llama", "load_tokenizer", "load_vocabulary", "transformer_block", "vit", "write_tokens"]
