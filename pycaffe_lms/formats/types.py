"""Layer types that files and nets give a meaning of their own, beside what the layer does."""

SPLIT = "Split"  # inserted where a blob is used more than once; written into .caffemodel files
