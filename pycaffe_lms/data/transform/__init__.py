"""Pictures and volumes: decoding, resizing, cropping, means, and the threads that do it."""
