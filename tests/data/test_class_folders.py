"""Folders of classes as lists."""

import os

import pytest

from pycaffe_lms.data.sets.imagenet import find_classes, list_pictures, read_synsets, write_lines
from pycaffe_lms.errors import DataError
from tests.shared_data import SHARED, needs_shared


def tree(folder, *files):
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return folder


def test_pictures_class_by_class(tmp_path):
    tree(
        tmp_path,
        "b/2.JPEG",
        "b/10.jpg",
        "b/Z.png",
        "a/x y.bmp",
        "a/notes.txt",
        "a/.hidden.jpg",
        ".git/c.jpg",
        "top.jpg",
    )
    assert find_classes(tmp_path) == ["a", "b"]
    assert list_pictures(tmp_path, ["a", "b"]) == [("a/x y.bmp", 0), ("b/10.jpg", 1), ("b/2.JPEG", 1), ("b/Z.png", 1)]
    assert list_pictures(tmp_path, ["b", "none", "a"])[-1] == ("a/x y.bmp", 2)  # the order of labels is the list's


def test_names_that_are_no_text(tmp_path):
    odd = os.fsencode(tmp_path) + b"/a/\xff.jpg"
    tree(tmp_path, "a/b.jpg")
    with open(odd, "wb"):
        pass
    lines = [f"{file} {label}" for file, label in list_pictures(tmp_path, ["a"])]
    write_lines(tmp_path / "list", lines, overwrite=False)
    assert (tmp_path / "list").read_bytes() == b"a/b.jpg 0\na/\xff.jpg 0\n"


@pytest.mark.parametrize(
    "files, classes, words",
    [
        (["a/1.jpg", "c/1.jpg"], ["a", "b"], '"c" is none of the 2 classes'),
        (["a/1.txt"], ["a"], "no picture"),
        ([], ["a"], "no picture"),
    ],
)
def test_wrong_folders(tmp_path, files, classes, words):
    with pytest.raises(DataError, match=words) as caught:
        list_pictures(tree(tmp_path, *files), classes)
    assert caught.value.fix and str(tmp_path) in str(caught.value)


def test_an_absent_folder(tmp_path):
    with pytest.raises(DataError, match="cannot read the folder: No such file"):
        find_classes(tmp_path / "none")


def test_synsets(tmp_path):
    (tmp_path / "s").write_text("n02 a dog, hound\n\nn01\n")
    assert read_synsets(tmp_path / "s") == ["n02", "n01"]
    for text, words in (("a\nb\na x\n", '"a" is listed twice'), ("\n", "no class")):
        (tmp_path / "s").write_text(text)
        with pytest.raises(DataError, match=words):
            read_synsets(tmp_path / "s")
    with pytest.raises(DataError, match="cannot read the list of classes"):
        read_synsets(tmp_path / "none")


def test_a_list_that_is_there(tmp_path):
    write_lines(tmp_path / "l", ["a 1"], overwrite=False)
    write_lines(tmp_path / "l", ["a 1"], overwrite=False)  # the same again
    with pytest.raises(DataError, match="something else"):
        write_lines(tmp_path / "l", ["a 2"], overwrite=False)
    assert (tmp_path / "l").read_text() == "a 1\n"
    write_lines(tmp_path / "l", ["a 2"], overwrite=True)
    assert (tmp_path / "l").read_text() == "a 2\n"
    with pytest.raises(DataError, match="line break"):
        write_lines(tmp_path / "m", ["a\nb 2"], overwrite=True)
    assert not (tmp_path / "m").exists()


@needs_shared
def test_imagenets_classes_sorted_are_in_the_order_of_their_labels(tmp_path):
    """The published order of the 1,000 classes, against folders made in another."""
    published = read_synsets(SHARED / "data" / "imagenet" / "synset2012.txt")
    assert len(published) == 1000 and published[281] == "n02123045"  # tabby, the label of cat.jpg
    for name in sorted(published, key=lambda n: n[::-1]):
        (tmp_path / name).mkdir()
    assert find_classes(tmp_path) == published
