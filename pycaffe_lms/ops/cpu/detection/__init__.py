"""Operations of detectors on the CPU: boxes from predictions, suppression of boxes that overlap."""
