"""Operations of detectors on the GPU: boxes from predictions, suppression of boxes that overlap."""
