"""Messages to prototxt text.

Floats print as the shortest decimal that reads back as the same float32 (0.01, 0.00390625, 5e-05).
"""

from google.protobuf import text_format

from pycaffe_lms.net_spec import NetSpec, assign_proto
from pycaffe_lms.proto import caffe_pb2

HEADER = "# Written by tools/gen_models.py: change the generator (tools/zoo/{source}.py), not this file.\n"


def net_text(source: str, name: str, spec: NetSpec) -> str:
    """The text of a net; `source` is the module of tools/zoo that made it."""
    net = spec.to_proto()
    net.name = name
    return HEADER.format(source=source) + text_format.MessageToString(net)


def solver_text(source: str, note: str = "", **fields) -> str:
    """The text of a solver, its fields in the order given; `note` becomes a comment.

    solver_mode is never written: the GPU is used where there is one.
    """
    text = HEADER.format(source=source) + "".join(f"# {line}\n" for line in note.splitlines())
    for name, value in fields.items():
        message = caffe_pb2.SolverParameter()
        assign_proto(message, name, value)
        text += text_format.MessageToString(message)
    return text
