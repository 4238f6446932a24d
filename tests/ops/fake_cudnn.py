"""A stand-in for nvidia-cudnn-frontend, and convolutions to try it on."""

from types import SimpleNamespace

from pycaffe_lms.ops.geometry import ConvGeometry


def geometry(batch, channels, outputs, size, kernel, stride=1, pad=0, dilation=1, group=1) -> ConvGeometry:
    axes = len(size)
    out = tuple((s + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for s in size)
    return ConvGeometry(
        batch,
        channels,
        outputs,
        group,
        size,
        out,
        (kernel,) * axes,
        (stride,) * axes,
        (pad,) * axes,
        (dilation,) * axes,
    )


class Tensor:
    """Remembers what was set on it."""

    def __init__(self, **known):
        self.known = known

    def __getattr__(self, name):
        return lambda value: self.known.update({name.removeprefix("set_"): value}) or self


class NotSupported(Exception):
    pass


class Frontend:
    """Answers like nvidia-cudnn-frontend. `engines`: name -> bytes of workspace, the candidates for every graph in
    cuDNN's order. `broken`: names that do not build. `fuses`: whether anything may stand behind a convolution."""

    __version__ = "1.99"
    cudnnGraphNotSupportedError = NotSupported
    data_type = SimpleNamespace(FLOAT="float", DOUBLE="double", BFLOAT16="bfloat16")
    heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
    notes = ("NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "TENSOR_CORE", "WINOGRAD", "FFT")
    numerical_note = SimpleNamespace(**{note: note for note in notes})

    def __init__(self):
        self.engines, self.broken, self.fuses, self.failure = {"eng1": 1000, "eng0": 0}, set(), True, None
        self.graphs, self.streams, self.handles, self.writes = [], [], 0, True

    def backend_version(self):
        return 91900

    def create_handle(self):
        self.handles += 1
        return 70 + self.handles

    def set_stream(self, handle, stream):
        self.streams.append((handle, stream))

    def pygraph(self, **settings):
        self.graphs.append(Graph(self, settings))
        return self.graphs[-1]


class Graph:
    def __init__(self, frontend, settings):
        self.frontend, self.settings = frontend, settings
        self.inputs, self.left_out, self.limit, self.runs = [], [], None, []
        self.between, self.after, self.built = [], [], []
        self.last, self.loaded = None, None

    def tensor(self, **known):
        self.inputs.append(Tensor(**known))
        return self.inputs[-1]

    def _operation(self, kind, steps):
        self.kind, self.steps, self.output = kind, steps, Tensor()
        return self.output

    def conv_fprop(self, image, weight, **steps):
        return self._operation("fprop", steps)

    def conv_dgrad(self, loss, filter, **steps):
        return self._operation("dgrad", steps)

    def conv_wgrad(self, image, loss, **steps):
        return self._operation("wgrad", steps)

    def bias(self, input, bias):
        return self._behind("bias", input)

    def relu(self, input):
        return self._behind("relu", input)

    def _behind(self, what, input):
        assert input is self.output
        self.between.append(input)
        self.after.append(what)
        self.output = Tensor()
        return self.output

    def validate(self):
        pass

    build_operation_graph = validate

    def check_support(self):
        if self.frontend.failure:
            raise self.frontend.failure
        if self.after and not self.frontend.fuses:
            raise NotSupported("no such fusion")

    def create_execution_plans(self, modes):
        self.modes = modes

    def deselect_numeric_notes(self, notes):
        self.left_out += notes

    def deselect_workspace_greater_than(self, limit):
        self.limit = limit

    def get_execution_plan_count(self):
        return len(self.frontend.engines)

    def get_plan_name_at_index(self, index):
        return list(self.frontend.engines)[index]

    def get_workspace_size_plan_at_index(self, index):
        assert index in self.built
        return list(self.frontend.engines.values())[index]

    def build_plan_at_index(self, index):
        name, size = list(self.frontend.engines.items())[index]
        if name in self.frontend.broken or (self.limit is not None and size > self.limit):
            raise NotSupported(f"{name} is left out")
        self.last = index
        if index not in self.built:
            self.built.append(index)

    def serialize(self):
        if not self.frontend.writes:
            raise NotSupported("no engine can be written")
        return list(self.get_plan_name_at_index(self.last).encode())

    def deserialize(self, data):
        self.loaded = bytes(data).decode()
        if self.loaded in self.frontend.broken or self.loaded not in self.frontend.engines:
            raise NotSupported(f"{self.loaded} cannot be loaded")

    def execute_plan_at_index(self, pointers, workspace, index, handle=None):
        assert index in self.built if self.loaded is None else index == 0
        self.runs.append((pointers, workspace, index))
        if self.frontend.failure:
            raise self.frontend.failure


def array(address, size=0):
    """A stand-in for a CuPy array at an address."""
    return SimpleNamespace(data=SimpleNamespace(ptr=address), nbytes=size, size=size // 4)
