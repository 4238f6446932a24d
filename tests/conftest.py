"""Our own kernels run on the CPU in all tests but those that ask for oneDNN: many compare the CPU with the simulated
device to the bit, which has no library. A random test that fails prints the seed that replays it (seeds.py).

`pytest` without a path runs in as many processes as there are CPUs (side_by_side.py)."""

import gc
import os
import signal
from pathlib import Path

from . import side_by_side

side_by_side.keep_compiled(Path(__file__).parents[1] / ".pytest_cache" / "pycache")
side_by_side.share_the_cpus()  # before NumPy is imported

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from pycaffe_lms.backend import cuda_available  # noqa: E402
from pycaffe_lms.formats import cache_folder  # noqa: E402
from pycaffe_lms.ops.cpu.onednn import library  # noqa: E402

from . import sampling, seeds  # noqa: E402

os.environ[library.VARIABLE] = "off"  # for the processes that tests start, too
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # pytest runs in the background; tests interrupt what they start
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is slow, not wrong
hypothesis.settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    side_by_side.choose_processes(config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if hasattr(config, "workerinput"):  # one of several processes
        seeds.EXAMPLES = int(config.workerinput["examples"])
    side_by_side.keep_kernels_apart()
    if not config.getoption("hypothesis_seed", None):  # before Hypothesis reads it
        config.option.hypothesis_seed = str(seeds.EXAMPLES)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["examples"] = seeds.EXAMPLES


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session):
    """Nothing that collecting makes is garbage, so none is looked for, then or (many tests call `gc.collect`) later."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before thorough tests are left out
def pytest_collection_modifyitems(config, items):
    sampling.leave_the_rest(items)
    if not cuda_available() and (left := sampling.of_a_gpu(items, config.option.markexpr)):
        config.hook.pytest_deselected(items=left)
        without = set(left)
        items[:] = [item for item in items if item not in without]


def pytest_report_header(config):
    if not cuda_available() and "gpu" not in config.option.markexpr:
        return "no CUDA GPU is here: tests marked gpu are left out (pytest -m gpu names them)"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    seeds.forget()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    line = seeds.replay(item.nodeid, hypothesis, item.get_closest_marker("thorough") is not None)
    if report.when == "call" and report.failed and line:
        report.sections.append(("replay", line))


@pytest.fixture(autouse=True, scope="session")
def searched_plans():
    """Every plan is searched for, none read from the cache folder, but where a test is about that."""
    from pycaffe_lms.lms.planfile import kept_plans

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_plans, "LEAST_STEPS", 1 << 62)
        yield


@pytest.fixture(autouse=True)
def the_users_cache_folder():
    """After each test the cache folder is the user's again, whatever -cache the test gave."""
    yield
    cache_folder.use_cache_folder("")


@pytest.fixture
def onednn(monkeypatch):
    """oneDNN where it is installed, as users have it; else the test is skipped."""
    monkeypatch.delenv(library.VARIABLE)
    library.load.cache_clear()
    if library.load() is None:
        pytest.skip("oneDNN is not installed")
    yield
    library.load.cache_clear()
