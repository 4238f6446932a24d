"""Text for nets: vocabularies, files of token ids, blocks of transformers, writing on."""

from .blocks import transformer_block
from .dataset import write_tokens
from .generation import generate
from .vocabulary import load_tokenizer, load_vocabulary

__all__ = ["generate", "load_tokenizer", "load_vocabulary", "transformer_block", "write_tokens"]
