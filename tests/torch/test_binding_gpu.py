# SPDX-License-Identifier: Apache-2.0
"""The package and a daemon that serves a GPU, which is a fake one; and memory that others take by DLPack."""
import ctypes
import gc
import select
import signal

import pytest

import harness
from fixtures import machine, nothing_left  # noqa: F401
from gradsync import DType, _dlpack

#: The part of the driver's interface that a script needs.
DRIVER = """
import array, ctypes, os, sys
import gradsync
from gradsync import DType, Raw

class Driver:
    def __init__(self):
        self.find = ctypes.CDLL("libcuda.so.1").cuGetProcAddress_v2
        self.call("cuInit", 2000, 0)

    def call(self, name, version, *arguments):
        function, found = ctypes.c_void_p(), ctypes.c_int()
        assert self.find(name.encode(), ctypes.byref(function), version, ctypes.c_uint64(1),
                         ctypes.byref(found)) == 0
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *(type(each) if not isinstance(each, int) else ctypes.c_int
                                                for each in arguments))
        assert kind(function.value)(*arguments) == 0, name

    def make_current(self, ordinal):
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", 7000, ctypes.pointer(context), ordinal)
        self.call("cuCtxSetCurrent", 4000, context)

    def allocate(self, nbytes):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc", 3020, ctypes.pointer(address), ctypes.c_size_t(nbytes))
        return address.value

def fails(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError(f"{function} did not fail")
"""


@pytest.fixture
def gpu(machine, build, request):  # noqa: F811
    """gpu() -> a daemon that serves the GPU."""
    daemon = request.getfixturevalue("daemon")
    yield lambda device="cuda:0", **options: daemon(device=device, **options)


@pytest.fixture
def passes(script):
    """passes(text, **options): the script ends well."""
    def run(text, **options):
        made = script(DRIVER + text, **options)
        assert made.wait(harness.LONG) == 0, made.err
    return run


def test_gradients_on_a_gpu(gpu, passes):
    passes("""
with gradsync.Connection() as gs, gs.join("one", world_size=1) as job:
    assert gs.device.name == "cuda:0" and gs.device.uuid.startswith("GPU-") and gs.device.ordinal == 0
    plan = job.plan([("a", DType.F32, (3,)), ("b", DType.BF16, (5, 7)), ("c", DType.I32, (2,))],
                    reduce=gradsync.Reduce.SUM)
    a, b, c = (plan.gradient(i) for i in range(3))
    assert a.address == plan.address(0) and a.elements == 3 and a.nbytes == 12
    assert b.__dlpack_device__() == (2, 0) and b.elements == 35
    assert a.__cuda_array_interface__ == {"shape": (3,), "typestr": "<f4", "data": (a.address, False),
                                          "version": 3, "strides": None, "stream": None}
    assert not hasattr(b, "__cuda_array_interface__")
    assert c.__cuda_array_interface__["typestr"] == "<i4"
    value, back = array.array("f", [1, 2, 4]), array.array("f", [0, 0, 0])
    job.allgather(value, Raw(a.address, a.nbytes))
    for i in (2, 0):
        plan.ready_on(i, 0)
    plan.absent_on(1, 0)
    assert plan.finish().step == 1
    job.allgather(Raw(a.address, a.nbytes), back)
    assert back == value
    plan.free()
    job.allgather(Raw(a.address, a.nbytes), back)       # it stays for as long as something refers to it
    assert back == value
    assert "on a GPU" in fails(gradsync.StateError, lambda: job.memory(100).buffer)
""", socket=gpu().socket)


def test_an_arena_of_the_daemons_is_exports(gpu, passes):
    passes("""
with gradsync.Connection() as gs, gs.join("one", world_size=1) as job:
    plan = job.plan([("a", DType.F32, (3,)), ("b", DType.BF16, (5, 7))], arena=True)
    a, b = plan.gradient(0), plan.gradient(1)
    for i in range(2):
        plan.ready_on(i, 0)
    plan.finish()
    assert "2 gradients" in fails(BufferError, plan.free)
    capsule = a.__dlpack__(stream=1, max_version=(1, 0))
    del a, b
    assert "1 gradients" in fails(BufferError, plan.free)
    del capsule
    plan.free()
""", socket=gpu().socket)


@pytest.mark.usefixtures("nothing_left")
def test_memory_of_a_gpu_goes_with_the_last_that_refers_to_it(gpu, passes):
    passes("""
import gc
with gradsync.Connection() as gs, gs.join("one", world_size=1) as job:
    memory = job.memory(3 << 20)
    assert memory.nbytes == 4 << 20
    part = memory.array(DType.F32, 64, 16)
    assert part.address == memory.address + 64 and part.nbytes == 64
    fails(gradsync.InvalidError, memory.array, DType.F32, 4 << 20, 1)
    host = array.array("f", range(16))
    job.allgather(host, Raw(part.address, 64))
    memory.unregister()
    del memory
    gc.collect()
    back = array.array("f", [0.]) * 16
    job.allgather(Raw(part.address, 64), back)
    assert back == host
    import copy, pickle
    assert copy.copy(part) is part and copy.deepcopy(part) is part
    assert "cannot be pickled" in fails(TypeError, pickle.dumps, part)
    driver = Driver()
    driver.make_current(0)
    for _ in range(50):         # work that is still under way when nothing refers to the memory any more
        driver.call("cuMemsetD8Async", 3020, ctypes.c_uint64(part.address), ctypes.c_ubyte(1),
                    ctypes.c_size_t(64), ctypes.c_void_p())
    del part
    gc.collect()
    assert "OUT_OF_MEMORY" in fails(gradsync.NoMemoryError, job.memory, 4 << 30)
""", socket=gpu().socket)


def test_memory_of_the_trainers_own(gpu, passes):
    passes("""
driver = Driver()
driver.make_current(0)
with gradsync.Connection() as gs, gs.join("one", world_size=1) as job:
    address = driver.allocate(1 << 20)
    memory = job.register_device(address, 1 << 20)
    assert memory.address == address
    with job.plan([("a", DType.F32, (3,))], places=[(memory, 64)]) as plan:
        assert plan.gradient(0).address == address + 64
        job.allgather(array.array("f", [1, 2, 4]), Raw(plan.address(0), 12))
        plan.ready_on(0, 0)
        plan.finish()
    memory.unregister()
    assert "no address of a GPU" in fails(gradsync.InvalidError, job.register_device, 4096, 4096)
""", socket=gpu().socket)


def test_memory_that_cannot_be_shared(gpu, passes, monkeypatch):
    """Each is refused by name, and the connection is as before."""
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    passes("""
driver = Driver()
driver.make_current(0)
with gradsync.Connection() as gs, gs.join("one", world_size=1) as job:
    managed, pooled = ctypes.c_uint64(), ctypes.c_uint64()
    driver.call("cuMemAllocManaged", 6000, ctypes.pointer(managed), ctypes.c_size_t(4096), 1)
    driver.call("cuMemAllocAsync", 11020, ctypes.pointer(pooled), ctypes.c_size_t(4096), ctypes.c_void_p())
    assert "managed memory cannot be shared" in fails(gradsync.UnsupportedError, job.register_device,
                                                      managed.value, 4096)
    assert "not from a pool" in fails(gradsync.UnsupportedError, job.register_device, pooled.value, 4096)
    driver.make_current(1)
    other = driver.allocate(4096)
    assert "is another GPU's" in fails(gradsync.InvalidError, job.register_device, other, 4096)
    assert "is another GPU's" in fails(gradsync.InvalidError, job.allgather, Raw(other, 64), bytearray(64))
    job.barrier()       # nothing of it stays
    job.allgather(bytearray(64), bytearray(64))
with gradsync.Connection() as gs, gs.join("two", world_size=1) as job:
    with job.plan([("a", DType.F32, (3,))]) as plan:    # from a thread whose current GPU is another one
        plan.ready_on(0, 0)
        plan.finish()
""", socket=gpu().socket)


def test_no_gpu_where_none_is_served(daemon, passes):
    passes("""
with gradsync.Connection() as gs, gs.join("one", world_size=1) as job:
    assert gs.device == gradsync.Device("cpu", "", None)
    with job.plan([("a", DType.F32, (3,))]) as plan:
        fails(gradsync.InvalidError, plan.ready_on, 0, 0)
        plan.ready(0)
        plan.finish()
    fails(gradsync.InvalidError, job.register_device, 4096, 4096)
""", socket=daemon().socket)


@pytest.fixture
def places(gpu, daemon, scratch, monkeypatch, request):
    """A user's folder with the daemons of two GPUs and the CPU where the library looks for them."""
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    runtime = scratch / "user"
    for device in ("cuda:0", "cuda:1", "cpu"):
        served = daemon(device=device, settings=getattr(request, "param", None))
        folder = runtime / "gradsync" / device
        folder.mkdir(parents=True)
        (folder / "socket").symlink_to(served.socket)
    return {"XDG_RUNTIME_DIR": str(runtime), "GRADSYNC_SOCKET": ""}


def test_the_daemon_of_the_current_gpu_is_found(places, passes):
    """Without a context it is that of the CPU, and looking for one does not initialise the driver."""
    passes("""
library = ctypes.CDLL("libcuda.so.1")
def ask_for_context():
    function, found, context = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
    library.cuGetProcAddress_v2(b"cuCtxGetCurrent", ctypes.byref(function), 4000, ctypes.c_uint64(1),
                                ctypes.byref(found))
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function.value)(ctypes.addressof(context))

def found(**options):
    with gradsync.Connection(**options) as gs:
        return gs.device.name, gs.device.ordinal

assert ask_for_context() == 3       # CUDA_ERROR_NOT_INITIALIZED
assert found() == ("cpu", None)
assert ask_for_context() == 3
driver = Driver()                   # loaded, and nothing current
assert found() == ("cpu", None)
for ordinal in (0, 1):
    driver.make_current(ordinal)
    assert found() == (f"cuda:{ordinal}", ordinal)
assert found(device="cpu") == ("cpu", None)
os.environ["GRADSYNC_DEVICE"] = "cuda:0"
assert found()[0] == "cuda:0"
""", env=places)


@pytest.mark.parametrize("places", [{"clients_per_uid": "1"}], indirect=True)
def test_a_daemon_of_the_gpu_that_refuses_is_not_replaced_by_the_cpu(places, passes):
    passes("""
driver = Driver()
driver.make_current(0)
with gradsync.Connection():
    said = fails(gradsync.QuotaError, gradsync.Connection)
    assert "may be that of the GPU GPU-fa" in said, said
""", env=places)


class Lent:
    """An object that lends its memory by DLPack."""

    def __init__(self, buffer, dtype, elements):
        self.buffer, self.dtype, self.elements = buffer, dtype, elements

    def __dlpack_device__(self):
        return _dlpack.CPU, 0

    def __dlpack__(self, **_):
        return _dlpack.capsule(ctypes.addressof(self.buffer), self.dtype, self.elements, (_dlpack.CPU, 0),
                               self)


@pytest.mark.parametrize("dtype", DType)
def test_dlpack_lends_without_a_copy(dtype):
    torch = pytest.importorskip("torch")
    names = {DType.F32: "float32", DType.F64: "float64", DType.F16: "float16", DType.BF16: "bfloat16",
             DType.I32: "int32", DType.I64: "int64", DType.U8: "uint8"}
    kind = getattr(torch, names[dtype])
    buffer = (ctypes.c_char * (10 * dtype.itemsize))()
    tensor = torch.from_dlpack(Lent(buffer, dtype, 10))
    assert tensor.dtype is kind and tensor.shape == (10,) and tensor.is_contiguous()
    assert tensor.data_ptr() == ctypes.addressof(buffer)
    tensor.fill_(3)
    assert torch.frombuffer(buffer, dtype=kind).eq(3).all()
    part = tensor[2:4]
    del tensor
    gc.collect()
    assert len(_dlpack._exports) == 1
    del part
    gc.collect()
    assert not _dlpack._exports


def some_floats():
    return Lent((ctypes.c_char * 40)(), DType.F32, 10)


def test_a_capsule_that_nobody_takes_is_given_back():
    capsule = some_floats().__dlpack__()
    gc.collect()
    assert len(_dlpack._exports) == 1
    del capsule
    gc.collect()
    assert not _dlpack._exports


def test_an_export_gives_back_what_is_over():
    """Without a collection of garbage."""
    torch = pytest.importorskip("torch")
    gc.disable()
    try:
        for _ in range(5):
            some_floats().__dlpack__()
            torch.from_dlpack(some_floats())
        assert len(_dlpack._exports) == 1
    finally:
        gc.enable()
    _dlpack.settle()
    assert not _dlpack._exports


def test_an_exception_on_its_way_is_not_lost():
    """A capsule that is dropped while its consumer raises is given back; the consumer's exception
    arrives."""
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="has no len"):
        len(some_floats().__dlpack__())
    with pytest.raises(TypeError, match="takes exactly one argument"):
        len(torch.from_dlpack(some_floats()), 5)
    gc.collect()
    assert not _dlpack._exports


HOLD = {
    "globals": "",
    "cycle": "gc.disable(); cycle = [tensors]; cycle.append(cycle); del cycle, tensors",
    "builtins": "builtins.kept = tensors; del tensors",
    "for_ever": "ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensors))",
    "capsules": "kept = [some_floats().__dlpack__() for _ in range(8)]",
}


def test_the_interpreter_ends_while_tensors_live(passes):
    """Several children of the script, for each way to hold them, end in order."""
    pytest.importorskip("torch")
    passes(f"""
import builtins, gc
import torch
from gradsync import _dlpack
class Lent:
    def __init__(self):
        self.buffer = (ctypes.c_char * 40)()
    def __dlpack_device__(self):
        return _dlpack.CPU, 0
    def __dlpack__(self, **_):
        return _dlpack.capsule(ctypes.addressof(self.buffer), DType.F32, 10, (_dlpack.CPU, 0), self)
some_floats = Lent
for name, hold in 4 * {list(HOLD.items())}:
    child = os.fork()
    if child == 0:
        break
    assert os.waitpid(child, 0)[1] == 0, name
else:
    sys.exit()
tensors = [torch.from_dlpack(some_floats()) for _ in range(8)]
exec(hold)
""")


def test_a_registration_that_was_interrupted_goes_on(gpu, script):
    """Ctrl-C in Job.memory(): the same call, made again, is about the same memory."""
    served = gpu()
    member = script(DRIVER + """
import signal
from gradsync import _cuda
made = []
do_allocate = _cuda.allocate
def allocate(*arguments):
    made.append(do_allocate(*arguments))
    return made[-1]
_cuda.allocate = allocate
with gradsync.Connection() as gs, gs.join("one", world_size=1) as job:
    def tell_and_wait(*arguments):
        print("waits", flush=True)
        do_wait(*arguments)
    def interrupt_once(*_):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, interrupt_once)
    print("joined", flush=True)
    sys.stdin.readline()
    do_wait, job._wait = job._wait, tell_and_wait
    try:
        job.memory(3 << 20)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    job._wait = do_wait
    assert "other memory" in fails(gradsync.StateError, job.memory, 5 << 20)
    sys.stdin.readline()
    memory = job.memory(3 << 20)
    assert [memory.address] == [each.address for each in made]
    host, back = array.array("f", range(16)), array.array("f", [0.]) * 16
    part = memory.array(DType.F32, 0, 16)
    job.allgather(host, Raw(part.address, 64))
    job.allgather(Raw(part.address, 64), back)
    assert back == host
    memory.unregister()
    print("registered", flush=True)
""", socket=served.socket)
    assert member.line() == "joined"
    with served.at_once():              # no answer meanwhile
        member.say("")
        assert member.line() == "waits"
        # A signal that comes before the library waits does not end the wait.
        harness.wait_until(lambda: member.signal(signal.SIGINT) or
                           select.select([member.process.stdout], [], [], 0.05)[0], "the end of the wait")
        assert member.line() == "interrupted"
    member.say("")
    assert member.line() == "registered"
    assert member.wait() == 0, member.err
