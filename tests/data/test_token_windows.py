"""TokenWindows: which tokens in which order, against plain slices; files that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.data.feed.token_windows import TokenWindows, open_tokens
from pycaffe_lms.errors import DataError

LENGTH = 4
TOKENS = 31  # 7 windows of 4 and the ids that follow, two tokens left


def write(folder, ids=range(TOKENS), dtype="<u2", name="t.bin"):
    """Write ids, by default each its place. Returns the path."""
    np.asarray(ids).astype(dtype).tofile(folder / name)
    return str(folder / name)


@pytest.fixture
def source(tmp_path):
    return write(tmp_path)


def starts(subject, batches):
    """First tokens of the windows of some batches, after checking all others."""
    found = []
    for b in batches:
        data, label = subject.produce(b)
        assert data.shape == label.shape == subject.shape
        np.testing.assert_array_equal(data, data[:, :1] + np.arange(LENGTH))
        np.testing.assert_array_equal(label, data + 1)
        found += data[:, 0].astype(int).tolist()
    return found


@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_windows_in_order_over_epochs_and_ranks(source, size, ranks):
    for rank in range(ranks):
        subject = TokenWindows(source, size, LENGTH, rank=rank, ranks=ranks)
        plain = [k % 7 * LENGTH for k in range(5 * size * ranks) if k % ranks == rank]
        assert starts(subject, range(5)) == plain and subject.records == 7
        assert starts(subject, [3]) == plain[3 * size : 4 * size]


def test_shuffled_epochs(source):
    """Every epoch has windows that do not overlap, from another first token, in another order, repeatable by seed."""
    subject = TokenWindows(source, 6, LENGTH, shuffle=True, seed=4)
    assert subject.records == (TOKENS - LENGTH) // LENGTH == 6
    epochs = [starts(subject, [e]) for e in range(40)]
    for epoch in epochs:
        first = min(epoch)
        assert sorted(epoch) == [first + LENGTH * k for k in range(6)] and 0 <= first < LENGTH
    assert {min(epoch) for epoch in epochs} == {0, 1, 2, 3}
    assert len({tuple(np.argsort(epoch)) for epoch in epochs}) > 30
    again = TokenWindows(source, 6, LENGTH, shuffle=True, seed=4)
    assert starts(again, [7, 39]) == epochs[7] + epochs[39]
    assert starts(TokenWindows(source, 6, LENGTH, shuffle=True, seed=5), range(3)) != sum(epochs[:3], [])
    whole = sum(epochs, [])
    for rank in range(2):
        mine = TokenWindows(source, 5, LENGTH, shuffle=True, seed=4, rank=rank, ranks=2)
        assert starts(mine, range(4)) == whole[rank:40:2]


@pytest.mark.parametrize("count, windows", [(LENGTH + 1, 1), (2 * LENGTH, 1), (3 * LENGTH, 2)])
def test_every_shuffled_window_lies_in_a_short_file(tmp_path, count, windows):
    subject = TokenWindows(write(tmp_path, np.arange(count)), 1, LENGTH, shuffle=True)
    assert subject.records == windows
    seen = starts(subject, range(200))
    assert set(seen) == set(range(count - LENGTH))


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<u4"])
def test_raw_types(tmp_path, dtype):
    path = write(tmp_path, dtype=dtype)
    np.testing.assert_array_equal(open_tokens(path, np.dtype(dtype)), np.arange(TOKENS))
    assert starts(TokenWindows(path, 2, LENGTH, token_dtype=np.dtype(dtype)), [1]) == [8, 12]


@pytest.mark.parametrize("dtype", ["int64", ">i4", "uint16"])
def test_npy_says_its_own_type(tmp_path, dtype):
    np.save(tmp_path / "t.npy", np.arange(TOKENS).astype(dtype))
    assert starts(TokenWindows(f"{tmp_path}/t.npy", 2, LENGTH), [1]) == [8, 12]


def test_what_cannot_be_used(tmp_path, source):
    def refused(words, path, length=LENGTH, **kwargs):
        with pytest.raises(DataError, match=words) as caught:
            TokenWindows(str(path), 2, length, **kwargs).produce(0)
        assert caught.value.fix and str(tmp_path) in str(caught.value)

    refused("Could not open", tmp_path / "none.bin")
    refused("31 tokens are too few: a window takes sequence_length . 1 = 32", source, 31)
    refused("0 tokens are too few", write(tmp_path, [], name="empty.bin"))
    refused("62 bytes are no whole number of uint32 ids", source, token_dtype=np.uint32)
    refused("token 7 is 7, not an id from 0 to 6", source, vocab_size=7)
    refused(
        "token 3 is 16777217, not an id from 0 to 16777216",
        write(tmp_path, [0, 1, 2, 16777217, 4], "<u4", "large.bin"),
        token_dtype=np.uint32,
    )
    for name, array, words in (
        ("negative", np.array([0, -1, 2, 3, 4]), "token 1 is -1"),
        ("float", np.ones(9), "float64"),
        ("square", np.ones((3, 3), int), r"\(3, 3\)"),
    ):
        np.save(tmp_path / f"{name}.npy", array)
        refused(words, tmp_path / f"{name}.npy")
    (tmp_path / "text.npy").write_text("no array")
    refused("not a readable .npy file", tmp_path / "text.npy")
    np.save(tmp_path / "cut.npy", np.arange(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:300])
    refused("not a readable .npy file", tmp_path / "cut.npy")


def test_a_file_that_was_cut_while_mapped(tmp_path):
    path = write(tmp_path, np.arange(30000))
    subject = TokenWindows(path, 2, LENGTH)
    write(tmp_path, np.arange(5))
    with pytest.raises(DataError, match="has changed"):
        subject.produce(3000)
