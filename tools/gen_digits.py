"""Write pycaffe_lms/data/digits.npz: 1,797 handwritten digits of 8 x 8 pixels.

Needs scikit-learn, which ships the data; run `python tools/gen_digits.py [OUTPUT]` from the top of the checkout.
Data: "Optical Recognition of Handwritten Digits" (its test part), E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licence CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/).
Changed here: the counts 0..16 of each pixel become gray values 0..255 (times 255/16, halves up); nothing else.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np

OUTPUT = Path(__file__).resolve().parents[1] / "pycaffe_lms" / "data" / "digits.npz"


def gray_values(counts: np.ndarray) -> np.ndarray:
    """0..16 -> 0..255 uint8: floor(255 * count / 16 + 1/2)."""
    whole = counts.astype(np.int64)
    if (whole != counts).any() or whole.min() != 0 or whole.max() != 16:
        raise SystemExit("the pixels are not the counts 0 to 16 that are expected")
    return ((whole * 255 + 8) // 16).astype(np.uint8)


def main() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = gray_values(digits.images), digits.target.astype(np.uint8)
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    np.savez_compressed(output, images=images, labels=labels)
    print(f"{output}: images {images.shape}, {output.stat().st_size} bytes")
    print("sha256 of images and labels:", hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest())


if __name__ == "__main__":
    main()
