"""Name the layer type that nets and files treat apart, beside what the layer does."""

SPLIT = "Split"  # inserted where a blob is used more than once; written into .caffemodel files
