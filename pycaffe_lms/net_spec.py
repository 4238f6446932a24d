"""Write nets in Python: `from pycaffe_lms import layers as L, params as P`.

    n = NetSpec()
    n.data, n.label = L.Data(batch_size=64, source="train_lmdb", backend=P.Data.LMDB, ntop=2)
    n.ip = L.InnerProduct(n.data, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.ip, n.label)
    print(n.to_proto())

Tops and functions are a graph of Python objects; keyword arguments become fields of messages, named as in caffe.proto.
The net is checked when it is built from the prototxt.
"""

from __future__ import annotations

import difflib
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.message import Message

from .errors import LayerParamError, UnknownLayerError, Where
from .layers.registry import layer_class
from .proto import caffe_pb2

if TYPE_CHECKING:
    from .proto.net_spec_types import LayerTypes, ParameterTypes
else:
    LayerTypes = ParameterTypes = object

_Field: TypeAlias = Any  # a FieldDescriptor, whose class depends on how protobuf is implemented
_LAYER_FIELDS = caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name
_MESSAGES = {name: field.message_type for name, field in _LAYER_FIELDS.items() if field.message_type is not None}

# Messages for keywords of a type, beside the message named like the type. The first one with the field gets it.
_EXTRA_MESSAGES = {
    "Deconvolution": ("convolution",),
    "Im2col": ("convolution",),
    "LSTM": ("recurrent",),
    "RNN": ("recurrent",),
    "SoftmaxWithLoss": ("loss", "softmax"),
    "SigmoidCrossEntropyLoss": ("loss",),
    "InfogainLoss": ("infogain_loss", "loss", "softmax"),
    "MultinomialLogisticLoss": ("loss",),
    "EuclideanLoss": ("loss",),
    "HingeLoss": ("hinge_loss", "loss"),
    "ContrastiveLoss": ("contrastive_loss", "loss"),
}


def param_name_dict() -> dict[str, str]:
    """Return {layer type: prefix of its message field}, such as {"Convolution": "convolution", "ArgMax": "argmax"}.

    It lacks types whose message has another name (Deconvolution, SoftmaxWithLoss, ...).
    """
    return {
        message.name.removesuffix("Parameter"): field.removesuffix("_param")
        for field, message in _MESSAGES.items()
        if field.endswith("_param")
    }


_PARAM_NAMES = param_name_dict()


def assign_proto(proto: Message, name: str, val: Any) -> None:
    """Set field `name` of a message from plain Python.

    A dict fills a message; a list of dicts makes repeated messages; one value for a repeated field makes one element;
    an enum takes its number or its name. A list for `kernel_size`, `stride` or `pad` of Pooling, which take one value,
    goes to kernel_shape, stride_shape or pad_shape. Messages, NumPy scalars and arrays are accepted too.
    Raises: LayerParamError for an unknown field or enum name; TypeError or ValueError for a value of another type.
    """
    known = proto.DESCRIPTOR.fields_by_name
    field = known.get(name)
    if field is None:
        raise LayerParamError(f'{proto.DESCRIPTOR.name} has no field "{name}"' + _did_you_mean(name, known))
    if hasattr(val, "tolist"):
        val = val.tolist()
    current = getattr(proto, name)
    if hasattr(current, "extend"):
        for item in val if isinstance(val, (list, tuple)) else [val]:
            if field.message_type is None:
                current.append(_scalar(field, item))
            else:
                _fill(current.add(), item, name)
    elif field.message_type is not None:
        current.SetInParent()
        _fill(current, val, name)
    elif isinstance(val, (list, tuple)) and (shape := f"{name.removesuffix('_size')}_shape") in known:
        assign_proto(proto, shape, {"dim": val})  # Pooling's window, one value per spatial axis
    else:
        setattr(proto, name, _scalar(field, val))


def _fill(message: Message, val: Any, name: str) -> None:
    if isinstance(val, Message):
        message.CopyFrom(val)
    elif isinstance(val, Mapping):
        for key, item in val.items():
            assign_proto(message, key, item)
    else:
        raise TypeError(f'"{name}" takes a dict of {message.DESCRIPTOR.name} fields, not {val!r} ({type(val)})')


def _scalar(field: _Field, val: Any) -> Any:
    if hasattr(val, "item"):
        val = val.item()
    if field.enum_type is None or not isinstance(val, str):
        return val
    values = field.enum_type.values_by_name
    if val not in values:
        raise LayerParamError(f'"{field.name}" has no value "{val}"' + _did_you_mean(val, values))
    return values[val].number


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3)
    return "; did you mean " + " or ".join(f'"{n}"' for n in near) + "?" if near else ""


def keyword_messages(type_name: str) -> list[str]:
    """Return the fields of LayerParameter whose messages a type's keywords may set, in order of preference."""
    own = _PARAM_NAMES.get(type_name)
    prefixes = ([own] if own else []) + list(_EXTRA_MESSAGES.get(type_name, ()))
    return [f"{p}_param" for p in dict.fromkeys(prefixes) if f"{p}_param" in _MESSAGES]


def _home_of(type_name: str, key: str) -> str | None:
    """Return the message field for a keyword, None for LayerParameter itself. Raises: LayerParamError for neither."""
    if key.endswith("param") and key in _LAYER_FIELDS:
        return None
    homes = keyword_messages(type_name)
    for home in homes:
        if key in _MESSAGES[home].fields_by_name:
            return home
    if key in _LAYER_FIELDS:
        return None
    known = list(_LAYER_FIELDS) + [f for home in homes for f in _MESSAGES[home].fields_by_name]
    raise LayerParamError(
        f'no keyword "{key}"' + (_did_you_mean(key, known) or f" (its messages: {', '.join(homes) or 'none'})"),
        where=Where(layer=f"L.{type_name}"),
        fix="use a field of the layer's message, or pass a message as xxx_param=dict(...)",
    )


class Top:
    """Stand for output number `n` of a function; other layers take it as a bottom."""

    def __init__(self, fn: Function, n: int):
        self.fn = fn
        self.n = n

    def to_proto(self) -> caffe_pb2.NetParameter:
        """Return the NetParameter of everything that this top needs."""
        return to_proto(self)

    def __repr__(self) -> str:
        return f"<Top {self.n} of {self.fn.type_name}>"


class Function:
    """Hold a layer without a name: its type, inputs (Tops), keyword arguments and tops.

    Raises: TypeError for an input that is no Top; LayerParamError for a keyword that the type does not have.
    """

    def __init__(self, type_name: str, inputs: Iterable[Top], params: Mapping[str, Any]):
        self.type_name = type_name
        self.inputs = tuple(inputs)
        for index, item in enumerate(self.inputs):
            if not isinstance(item, Top):
                raise TypeError(f"{type_name} input {index} is not a Top (type is {type(item)})")
        self.params = dict(params)
        ntop = self.params.pop("ntop", 1)
        self.ntop = int(ntop) if isinstance(ntop, numbers.Integral) else -1
        self.in_place = self.params.pop("in_place", False)
        if self.ntop < 0:
            raise LayerParamError(
                f"ntop {ntop!r} is no number of tops", where=Where(layer=f"L.{type_name}"), fix="give 0 or more"
            )
        if self.in_place and self.ntop > len(self.inputs):
            raise LayerParamError(
                f"in_place with {self.ntop} tops and {len(self.inputs)} bottoms: every top needs a bottom to live in",
                where=Where(layer=f"L.{type_name}"),
            )
        for key in self.params:
            _home_of(type_name, key)
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def __repr__(self) -> str:
        return f"<Function {self.type_name}>"


class NetSpec:
    """Hold named tops in order: `n.conv1 = L.Convolution(n.data, ...)`, or `n["conv1"] = ...`.

    tops: the dict of them; a layer without tops (Silence) is in it as a Function.
    """

    tops: dict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __getattr__(self, name: str) -> Any:
        if name == "tops" or name not in self.tops:
            raise AttributeError(f'NetSpec has no top "{name}"' + _did_you_mean(name, self.__dict__.get("tops", ())))
        return self.tops[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self.tops:
            raise AttributeError(f'NetSpec has no top "{name}"')
        del self.tops[name]

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.tops[name] = value

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tops

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tops]

    def to_proto(self) -> caffe_pb2.NetParameter:
        """Return the NetParameter with the layers of all tops: dependencies first, then in the order of assignment."""
        for name, value in self.tops.items():
            if not isinstance(value, (Top, Function)):
                raise TypeError(f'NetSpec "{name}" is not a Top (type is {type(value)}); unpack layers with ntop > 1')
        writer = _Writer({value: name for name, value in self.tops.items()})
        for value in self.tops.values():
            writer.add(value)
        return writer.net


class _Writer:
    """Write the layers of one to_proto call, and keep the names given so far."""

    def __init__(self, names: dict[Top | Function, str]):
        self.net = caffe_pb2.NetParameter()
        self.names = names
        self.given = frozenset(names.values())
        self.counts: Counter[str] = Counter()
        self.tops_of: dict[Function, list[str]] = {}

    def add(self, wanted: Top | Function) -> None:
        """Write a layer after the layers that it needs, each once. No recursion, for nets may be very deep."""
        stack = [wanted.fn if isinstance(wanted, Top) else wanted]
        while stack:
            fn = stack[-1]
            missing = [top.fn for top in fn.inputs if top.fn not in self.tops_of]
            if fn in self.tops_of or not missing:
                stack.pop()
            if fn not in self.tops_of:
                if missing:
                    stack.extend(reversed(missing))
                else:
                    self._write(fn)

    def _name(self, thing: Top | Function, type_name: str) -> str:
        while thing not in self.names:
            self.counts[type_name] += 1
            name = f"{type_name}{self.counts[type_name]}"
            if name not in self.given:
                self.names[thing] = name
        return self.names[thing]

    def _write(self, fn: Function) -> None:
        layer = self.net.layer.add(type=fn.type_name)
        layer.bottom.extend(self.tops_of[top.fn][top.n] for top in fn.inputs)
        if fn.in_place:
            layer.top.extend(layer.bottom[: fn.ntop])
        else:
            layer.top.extend(self._name(top, fn.type_name) for top in fn.tops)
        self.tops_of[fn] = list(layer.top)
        layer.name = self._name(fn.tops[0] if fn.tops else fn, fn.type_name)
        for key, value in fn.params.items():
            home = _home_of(fn.type_name, key)
            try:
                assign_proto(getattr(layer, home) if home else layer, key, value)
            except LayerParamError as error:
                raise error.at(layer=layer.name, type=fn.type_name) from None
            except (TypeError, ValueError) as error:
                raise LayerParamError(
                    f'keyword "{key}": {error}', where=Where(layer=layer.name, type=fn.type_name)
                ) from error


def to_proto(*tops: Top) -> caffe_pb2.NetParameter:
    """Return the NetParameter of everything that the tops need; names are `Type1`, `Type2`, ..., counted per type."""
    writer = _Writer({})
    for top in tops:
        writer.add(top)
    return writer.net


class UnknownType(UnknownLayerError, AttributeError):
    """Report an unknown type as an attribute of `layers`; it is an AttributeError too, so that `hasattr` works."""


class Layers(LayerTypes):
    """Make layers: `L.Type(*bottoms, ntop=1, in_place=False, **fields)` returns a Top; a tuple of Tops for ntop > 1, a
    Function for 0.

    Type checkers and editors know the types and their keywords: `tools/gen_net_spec_types.py`."""

    if not TYPE_CHECKING:

        def __getattr__(self, type_name: str) -> Callable[..., Any]:
            return _maker(type_name)


def _maker(type_name: str) -> Callable[..., Any]:
    """Return the function that makes layers of a type."""
    if type_name.startswith("_"):
        raise AttributeError(type_name)
    try:
        layer_class(type_name)
    except UnknownLayerError as error:
        raise UnknownType(error.message, fix=f'{error.fix}; or net_spec.Function("{type_name}", ..)') from None

    def layer(*inputs: Top, **params: Any) -> Any:
        fn = Function(type_name, inputs, params)
        if fn.ntop == 0:
            return fn
        return fn.tops[0] if fn.ntop == 1 else fn.tops

    layer.__name__ = layer.__qualname__ = type_name
    return layer


class Parameters(ParameterTypes):
    """Give access to constants: `P.Pooling.MAX` is that of `PoolingParameter`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return _message(name)


def _message(name: str) -> Any:
    """Return the message class of `P.name`."""
    message = getattr(caffe_pb2, f"{name}Parameter", None)
    if message is None:
        known = (m.removesuffix("Parameter") for m in caffe_pb2.DESCRIPTOR.message_types_by_name)
        raise AttributeError(f'no message "{name}Parameter"' + _did_you_mean(name, known))
    return message


layers = Layers()
params = Parameters()
