"""Pictures with the boxes of their objects for detectors of boxes of several sizes: MS-CNN, Cascade R-CNN."""
