"""Find what `benchmark` trains: the net, the solver beside it, and the shapes of its data."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...blob import MOST_AXIS
from ...data.sets.zoo import find_model, model_shapes
from ...errors import UsageError
from ...formats.prototxt.overrides import override_net
from ...formats.prototxt.parser import Parsed, read_net, read_solver
from ...proto.caffe_pb2 import TRAIN, LayerParameter, NetParameter, SolverParameter
from ..views import shapes

Shapes = Mapping[str, tuple[int, ...]]  # by blob
_NETS = ("train_dummy.prototxt", "train_val.prototxt")  # of a folder; the first has shapes in place of data
_RATES = (  # fields of a solver that its updates depend on
    *("type", "base_lr", "momentum", "momentum2", "rms_decay", "delta"),
    *("weight_decay", "regularization_type", "clip_gradients"),
)
_COLOURS = 3  # channels of images of which no file says how many they have


@dataclass(frozen=True)
class Model:
    """Describe what is trained.

    Attributes:
        net: path of its prototxt.
        solver: path of the solver beside it; "": none, SGD with momentum.
        given: each -shape.
        changes: each -set.
        other_size: images have another size than the files say, see `average_all`.
    """

    net: str
    solver: str
    given: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    other_size: bool = False

    def parsed(self) -> Parsed[NetParameter]:
        """Return the net as its file has it, with what -set changes and what another size of images asks for."""
        parsed = override_net(read_net(self.net, judge=False), self.changes)
        if self.other_size:
            average_all(parsed.message)
        return parsed

    def solver_param(self) -> SolverParameter:
        """Return the solver's type and rates, for iterations of one batch each and nothing beside them: no tests,
        displays, snapshots; a fixed rate, because schedules end."""
        param = SolverParameter(max_iter=1 << 30)
        if self.solver:
            mine = read_solver(self.solver).message
            for field in _RATES:
                if mine.HasField(field):
                    setattr(param, field, getattr(mine, field))
            param.train_state.CopyFrom(mine.train_state)
        else:
            param.base_lr, param.momentum, param.weight_decay = 0.01, 0.9, 1e-4
        param.lr_policy, param.random_seed, param.snapshot_after_train = "fixed", 1, False
        return param

    def shapes(self, image: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the shape of every blob that a data layer makes, as -shape and the files say.

        Args:
            image: sizes for axes that no file knows; () if -image is not given.
        """
        message = self.parsed().message
        known = dict(shapes.parse_shape(text) for text in self.given)
        found: dict[str, tuple[int, ...]] = {}
        state = self.solver_param().train_state
        for i in shapes.layers_in_state(message, TRAIN, state.level, state.stage):
            layer = message.layer[i]
            for k, shape in enumerate(_data_shapes(layer)):
                name = layer.top[k]
                told = known.get(name) or shape or self._of_deploy(name, layer)
                if told is None and image:
                    told = (_batch_size(layer), _COLOURS, *(image[0], *image)[-max(2, len(image)) :])
                if told is None:
                    raise UsageError(
                        f'no file says which shape "{name}" of layer "{layer.name}" has',
                        fix=f"give -image 224 for {_COLOURS} colours, or -shape {name}=32,3,224,224",
                    )
                found[name] = tuple(told)
        missing = known.keys() - found.keys()
        if missing:
            raise UsageError(
                f"-shape {min(missing)}=...: no data layer of {self.net} makes {min(missing)}",
                fix=f"data layers make {', '.join(sorted(found))}",
            )
        if not found:
            raise UsageError(f"{self.net} has no data layer", fix="give a net for training, such as train_val.prototxt")
        return found

    def _of_deploy(self, name: str, layer: LayerParameter) -> tuple[int, ...] | None:
        """Return the shape that an input has in deploy.prototxt beside the net, else one as -crop_size says."""
        deploy = Path(self.net).with_name("deploy.prototxt")
        if deploy.is_file():
            for other in read_net(str(deploy), judge=False).message.layer:
                if name in other.top and (shape := _data_shapes(other)):
                    rest = shape[list(other.top).index(name)] or ()
                    return (_batch_size(layer), *rest[1:])
        crop = layer.transform_param.crop_size
        return (_batch_size(layer), _COLOURS, crop, crop) if crop else None


def find(text: str, given: Sequence[str], changes: Sequence[str] = ()) -> Model:
    """Return the model that a word of the command line means: a prototxt, a folder, or a model of the zoo.

    Of a folder it is train_dummy.prototxt, where there is one, else train_val.prototxt. Raises UsageError for none.
    """
    path = Path(text)
    if not text or not path.exists():
        path = Path(find_model(text))
        if text and "/" not in text and path.exists():  # a name: which of its nets is chosen below
            path = path.parent
    if not text or not path.exists():
        raise UsageError(
            f"{text[:200]!r} is no file, folder or model of the zoo",
            fix="give a net's prototxt, a folder with train_val.prototxt, or a name that `pycaffe-lms zoo` lists",
        )
    if path.is_dir():
        net = next((path / name for name in _NETS if (path / name).is_file()), None)
        if net is None:
            raise UsageError(f"{path} has no {_NETS[1]}", fix="name the prototxt of the net in it")
        path = net
    dummy = ("solver_dummy.prototxt",) if path.stem.endswith("dummy") else ()
    solver = next((p for p in map(path.with_name, (*dummy, "solver.prototxt")) if p.is_file() and p != path), "")
    return Model(str(path), str(solver), tuple(given or model_shapes(text, str(path))), tuple(changes))


def average_all(message: NetParameter) -> list[str]:
    """Let each average pooling in front of a fully connected layer take the whole image; return the poolings' names.

    These are the poolings of stride 1 without padding, whose kernel is the size of the map, 7 x 7 in a ResNet: with
    larger images the fully connected layer keeps its parameters.
    """
    names = []
    for layer in message.layer:
        pool = layer.pooling_param
        whole = pool.pool == pool.AVE and not pool.global_pooling and (pool.stride, pool.pad) == (1, 0)
        odd = [f.name for f, _ in pool.ListFields() if f.name not in ("pool", "kernel_size", "stride", "pad")]
        if layer.type != "Pooling" or not whole or odd:
            continue
        readers = [other.type for other in message.layer if layer.top[0] in other.bottom and other is not layer]
        if "InnerProduct" in readers and set(readers) <= {"InnerProduct", "Dropout"}:
            pool.ClearField("kernel_size")
            pool.global_pooling = True
            names.append(layer.name)
    return names


def parse_image(text: str) -> tuple[int, ...]:
    """Return the sizes of -image: (224,) of "224", (192, 192, 192) of "192x192x192", () of "". Raises UsageError."""
    if not text:
        return ()
    sizes = tuple(map(int, text.split("x"))) if re.fullmatch(r"\d{1,10}(x\d{1,10})*", text) else (0,)
    if min(sizes) < 1 or max(sizes) > MOST_AXIS:
        raise UsageError(f"-image {text[:200]!r} is no size", fix="for example -image 224, 480x640 or 192x192x192")
    return sizes


def resized(base: Shapes, batch: int | None, image: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes with `batch` items and images of another size; None and (): as they are.

    Changed are the first axes that equal the first blob's, and the axes behind the channels of the first blob with such
    axes, also in other blobs (the labels of a segmentation). One size stands for all axes. Raises UsageError.
    """
    first = next(iter(base.values()))
    axes = next((shape[2:] for shape in base.values() if len(shape) > 2), ())
    if image and (not axes or len(image) not in (1, len(axes))):
        has = f"{len(axes)} axes of size" if axes else "no such axes"
        sizes = "x".join(map(str, image))
        raise UsageError(
            f"-image {sizes}: an item of {next(iter(base))} has {has}, its shape is {first[1:]}",
            fix=f"give {len(axes)} sizes, or one for all" if axes else "leave -image out",
        )
    new = tuple(image) * (len(axes) if len(image) == 1 else 1)
    result = {}
    for name, shape in base.items():
        if image and len(shape) > 2 and shape[2:] == axes:
            shape = (*shape[:2], *new)
        result[name] = (batch, *shape[1:]) if batch and shape and shape[0] == first[0] else shape
    if any(math.prod(shape) >= 1 << 40 for shape in result.values()):
        raise UsageError("such images have more than 2^40 elements in a batch", fix="make -image or -batch smaller")
    return result


def _data_shapes(layer: LayerParameter) -> list[tuple[int, ...] | None]:
    """Return the shapes of the tops of a data layer, None where the layer does not say; [] of another layer."""
    return list(_shapes_of_tops(layer)) if not layer.bottom else []


def _shapes_of_tops(layer: LayerParameter) -> Iterator[tuple[int, ...] | None]:
    tops = len(layer.top)
    if layer.type in ("Input", "DummyData"):
        field = layer.input_param if layer.type == "Input" else layer.dummy_data_param
        told = [tuple(shape.dim) for shape in field.shape]
        if not told and layer.type == "DummyData":
            dummy = layer.dummy_data_param
            sizes = [dummy.num, dummy.channels, dummy.height, dummy.width]
            told = [tuple(s[k if len(s) > 1 else 0] for s in sizes) for k in range(max(map(len, sizes))) if all(sizes)]
        yield from (told * tops if len(told) == 1 else told)
    elif _batch_size(layer):
        yield None
        yield from [(_batch_size(layer),)] * (tops - 1)


def _batch_size(layer: LayerParameter) -> int:
    """Return the batch_size of a layer that reads data; 0: it has none."""
    for field, value in layer.ListFields():
        if field.message_type is not None and "batch_size" in field.message_type.fields_by_name:
            return int(value.batch_size)
    return 0
