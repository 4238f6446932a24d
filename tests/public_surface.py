"""pycaffe's public names and signatures, as its users know them (BVLC/caffe 9b89154, python/caffe), and ours.

A value is a signature, or what kind of thing it is. Names that begin with a capital are looked up on an example object
(`Net.forward` on a net), the others from the package on.
"""

from __future__ import annotations

CLASS, VALUE, MODULE = "class", "value", "module"  # value: an attribute or property that can be read

_RUN = "(blobs=None, start=None, end=None, **kwargs)"
_PATH = "(path, /)"
_INDEX = "(index, /)"
_CALLBACK = "(function, /)"

PACKAGE = {
    "Net": CLASS,
    "Layer": CLASS,
    "NetSpec": CLASS,
    "Classifier": CLASS,
    "Detector": CLASS,
    "Timer": CLASS,
    "NCCL": CLASS,
    **dict.fromkeys(
        (
            "SGDSolver",
            "NesterovSolver",
            "AdaGradSolver",
            "RMSPropSolver",
            "AdaDeltaSolver",
            "AdamSolver",
            "AdamWSolver",
            "LionSolver",
        ),
        CLASS,
    ),
    **dict.fromkeys(("TRAIN", "TEST", "layers", "params", "__version__"), VALUE),
    **dict.fromkeys(
        (
            "_caffe",
            "pycaffe",
            "classifier",
            "detector",
            "net_spec",
            "proto",
            "proto.caffe_pb2",
            "io",
            "draw",
            "coord_map",
        ),
        MODULE,
    ),
    "set_mode_cpu": "()",
    "set_mode_gpu": "()",
    "set_device": "(device_id, /)",
    "set_random_seed": "(seed, /)",
    "solver_count": "()",
    "set_solver_count": "(count, /)",
    "solver_rank": "()",
    "set_solver_rank": "(rank, /)",
    "set_multiprocess": "(multiprocess, /)",
    "has_nccl": "()",
    "layer_type_list": "()",
    "get_solver": "(filename, /)",
    "init_log": "(level=0, stderr=ANY, /)",
    "log": "(message, /)",
    "to_proto": "(*tops)",
}

EXTENSION = {
    f"_caffe.{name}": kind
    for name, kind in {
        **dict.fromkeys(
            (
                "Blob",
                "Solver",
                "SolverParameter",
                "LayerParameter",
                "BlobVec",
                "RawBlobVec",
                "LayerVec",
                "NetVec",
                "StringVec",
                "IntVec",
                "BoolVec",
                "DtypeVec",
            ),
            CLASS,
        ),
        **{n: k for n, k in PACKAGE.items() if n in ("Net", "Layer", "Timer", "NCCL") or n.endswith("Solver")},
        **{n: k for n, k in PACKAGE.items() if n.startswith(("set_", "solver_", "has_", "get_", "init_", "log"))},
        "layer_type_list": "()",
    }.items()
}

NET = {
    **dict.fromkeys(
        (
            "Net.blobs",
            "Net.blob_loss_weights",
            "Net.params",
            "Net.layer_dict",
            "Net.layers",
            "Net.inputs",
            "Net.outputs",
            "Net.top_names",
            "Net.bottom_names",
            "Net._blobs",
            "Net._blob_names",
            "Net._layer_names",
            "Net._inputs",
            "Net._outputs",
            "Net._blob_loss_weights",
        ),
        VALUE,
    ),
    "Net": "(network_file, phase, level=0, stages=None, weights=None)",
    "Net.forward": _RUN,
    "Net.backward": "(diffs=None, start=None, end=None, **kwargs)",
    "Net.forward_all": "(blobs=None, **kwargs)",
    "Net.forward_backward_all": "(blobs=None, diffs=None, **kwargs)",
    "Net.set_input_arrays": "(data, labels)",
    "Net.reshape": "()",
    "Net.clear_param_diffs": "()",
    "Net.copy_from": _PATH,
    "Net.share_with": "(other, /)",
    "Net.save": _PATH,
    "Net.save_hdf5": _PATH,
    "Net.load_hdf5": _PATH,
    "Net.before_forward": _CALLBACK,
    "Net.after_forward": _CALLBACK,
    "Net.before_backward": _CALLBACK,
    "Net.after_backward": _CALLBACK,
    "Net._forward": "(start, end, /)",
    "Net._backward": "(start, end, /)",
    "Net._batch": "(blobs)",
    "Net._top_ids": _INDEX,
    "Net._bottom_ids": _INDEX,
    "Net._set_input_arrays": "(data, labels, /)",
}

BLOBS = {
    **dict.fromkeys(
        (
            "Blob.data",
            "Blob.diff",
            "Blob.shape",
            "Blob.num",
            "Blob.channels",
            "Blob.height",
            "Blob.width",
            "Blob.count",
        ),
        VALUE,
    ),
    "Blob.reshape": "(*dims)",
    "Vec.append": "(item, /)",
    "Vec.extend": "(items, /)",
    "Vec.add_blob": "(*shape)",
    **dict.fromkeys(("Vec.__len__", "Vec.__iter__"), "()"),
    **dict.fromkeys(("Vec.__getitem__", "Vec.__contains__", "Vec.__delitem__"), "(item, /)"),
    "Vec.__setitem__": "(index, item, /)",
    "Layer": "(layer_param, /)",
    **dict.fromkeys(("Layer.blobs", "Layer.type"), VALUE),
    **dict.fromkeys(("Layer.setup", "Layer.reshape"), "(bottom, top, /)"),
}

SOLVERS = {
    **dict.fromkeys(
        ("Solver.net", "Solver.test_nets", "Solver.iter", "Solver.param", "Solver.lr"),
        VALUE,
    ),
    "Solver": "(filename, /)",
    "Solver.step": "(n, /)",
    "Solver.solve": "(resume_file=None, /)",
    "Solver.restore": "(file, /)",
    "Solver.snapshot": "()",
    "Solver.apply_update": "()",
    "Solver.add_callback": "(on_start, on_gradients_ready, /)",
    "Solver.share_weights": "(net, /)",
    "Timer": "()",
    "Timer.start": "()",
    "Timer.stop": "()",
    "Timer.ms": VALUE,
    "NCCL": "(solver, uid, /)",
    "NCCL.new_uid": "()",
    "NCCL.bcast": "()",
}

IO = {
    "io.blobproto_to_array": "(blob, return_diff=False)",
    "io.array_to_blobproto": "(arr, diff=None)",
    "io.arraylist_to_blobprotovector_str": "(arraylist)",
    "io.blobprotovector_str_to_arraylist": "(str)",
    "io.array_to_datum": "(arr, label=None)",
    "io.datum_to_array": "(datum)",
    "io.load_image": "(filename, color=True)",
    "io.resize_image": "(im, new_dims, interp_order=1)",
    "io.oversample": "(images, crop_dims)",
    "io.Transformer": "(inputs)",
    "Transformer.set_transpose": "(in_, order)",
    "Transformer.set_channel_swap": "(in_, order)",
    "Transformer.set_raw_scale": "(in_, scale)",
    "Transformer.set_mean": "(in_, mean)",
    "Transformer.set_input_scale": "(in_, scale)",
    "Transformer.preprocess": "(in_, data)",
    "Transformer.deprocess": "(in_, data)",
    **dict.fromkeys(
        (f"Transformer.{n}" for n in ("inputs", "transpose", "channel_swap", "raw_scale", "mean", "input_scale")), VALUE
    ),
}

CLASSIFIERS = {
    "classifier.Classifier": "(model_file, pretrained_file, image_dims=None, mean=None, input_scale=None, "
    "raw_scale=None, channel_swap=None)",
    "classifier.Classifier.predict": "(self, inputs, oversample=True)",
    "detector.Detector": "(model_file, pretrained_file, mean=None, input_scale=None, raw_scale=None, "
    "channel_swap=None, context_pad=None)",
    "detector.Detector.detect_windows": "(self, images_windows)",
    "detector.Detector.detect_selective_search": "(self, image_fnames)",
    "detector.Detector.crop": "(self, im, window)",
    "detector.Detector.configure_crop": "(self, context_pad)",
}

DRAWING = {
    "draw.get_pydot_graph": "(caffe_net, rankdir, label_edges=True, phase=None, display_lrm=False)",
    "draw.draw_net": "(caffe_net, rankdir, ext='png', phase=None, display_lrm=False)",
    "draw.draw_net_to_file": "(caffe_net, filename, rankdir='LR', phase=None, display_lrm=False)",
    "draw.get_pooling_types_dict": "()",
    "draw.get_edge_label": "(layer)",
    "draw.get_layer_label": "(layer, rankdir, display_lrm=False)",
    "draw.get_layer_lr_mult": "(layer)",
    "draw.choose_color_by_layertype": "(layertype)",
    **dict.fromkeys((f"draw.{n}" for n in ("LAYER_STYLE_DEFAULT", "NEURON_LAYER_STYLE", "BLOB_STYLE")), VALUE),
    "coord_map.coord_map": "(fn)",
    "coord_map.conv_params": "(fn)",
    "coord_map.crop_params": "(fn)",
    "coord_map.compose": "(base_map, next_map)",
    "coord_map.inverse": "(coord_map)",
    "coord_map.coord_map_from_to": "(top_from, top_to)",
    "coord_map.crop": "(top_from, top_to)",
    "coord_map.PASS_THROUGH_LAYERS": VALUE,
    **dict.fromkeys((f"coord_map.{n}" for n in ("UndefinedMapException", "AxisMismatchException")), CLASS),
}

NET_SPEC = {
    **dict.fromkeys((f"net_spec.{n}" for n in ("Top", "Function", "NetSpec", "Layers", "Parameters")), CLASS),
    "net_spec.layers": VALUE,
    "net_spec.params": VALUE,
    "net_spec.param_name_dict": "()",
    "net_spec.to_proto": "(*tops)",
    "net_spec.assign_proto": "(proto, name, val)",
    "Top.fn": VALUE,
    "Top.n": VALUE,
    "Top.to_proto": "()",
    **dict.fromkeys((f"Function.{n}" for n in ("type_name", "inputs", "params", "ntop", "in_place", "tops")), VALUE),
    "Spec.tops": VALUE,
    "Spec.to_proto": "()",
}

OURS = {  # beyond pycaffe
    "LMS": CLASS,
    "set_lms": "(lms, /)",
    "set_math": "(math, /)",
    "set_mode_sim": "(memory='16GB')",
    "Blob.read_data": "()",
    "Blob.read_diff": "()",
    "Blob.__dlpack__": "()",
    "Blob.__dlpack_device__": "()",
    "Net.lms": VALUE,
    "Net.keep": "(*names)",
    "Net.summary": "()",
    "Solver.fit": "(iterations=None)",
    **dict.fromkeys(("Solver.mean_loss", "Solver.last_loss", "Solver.last_rate"), VALUE),
}

EVERYTHING = OURS | PACKAGE | EXTENSION | NET | BLOBS | SOLVERS | IO | CLASSIFIERS | DRAWING | NET_SPEC

# Not there yet. A test makes sure that each of them really is absent, so this can only shrink.
PENDING: frozenset[str] = frozenset()
