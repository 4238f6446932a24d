"""Every layer type, by family: importing this package registers them."""

# ruff: noqa: F401, I001  (imported to register; in the order of a catalogue)

# convolutions and products
from .conv import attention, convolution, correlation, deconvolution, embed, im2col, inner_product, local, matmul
from .conv import meanfield

# normalisation
from .norm import batch_norm, layer_norm, lrn, normalize, scale

# pooling
from .pooling import pooling, spatial_transformer, upsample, warp

# activation
from .activation import dropout, gated, pointwise, relu, softmax

# recurrent
from . import recurrent

# joining, cutting, moving
from .shape import concat, crop, eltwise, filter, interp, permute, reduction, reshape, resize, rotary, split

# detection
from .detection import detection_evaluate, detection_output, multibox_loss, ohem, prior_box, proposal
from .detection import roi_align, roi_pooling, yolo_evaluate, yolo_loss, yolo_output
from .detection.mscnn import cascade, frcnn_output, group_losses, losses, proposal_target

# loss
from .loss import (
    accuracy,
    center_loss,
    ctc_decoder,
    ctc_loss,
    distance_loss,
    linear_softmax_loss,
    log_loss,
    margin_loss,
    seg_accuracy,
)

# data
from .data import (
    annotated_data,
    data,
    gt_data,
    hdf5_data,
    image_data,
    input,
    memory_data,
    segmentation_data,
    token_data,
)
from .data import rand_vec, video_data, window_data

# written by users
from . import python
