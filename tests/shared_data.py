"""Where real nets, weights and databases lie beside a developer's checkout, and the mark for tests that read them."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="the real data that lies beside a developer's checkout is absent"
)
