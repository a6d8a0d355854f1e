"""A transformer's encoder of BERT base's shape, run by ONNX Runtime's CUDA provider.

encoder.py make MODEL                  writes the model, of random weights
encoder.py run MODEL BATCHES WAY       runs it on batches of 1 to 32 texts of 8 to 499 tokens

WAY says where ONNX Runtime has its memory: `own`, its own allocator; `same`, that without powers of two;
`pool`, a pool of the driver's that keeps nothing, `pool-keep`, one that keeps all; `external`, the
functions of `watch.c`, which ask Drystone.
"""

import ctypes
import sys

WIDTH, INNER, LAYERS, HEADS, WORDS = 768, 3072, 12, 12, 30522


class Encoder:
    """Collects nodes and weights of the model's graph."""

    def __init__(self):
        import numpy

        self.random = numpy.random.default_rng(7)
        self.nodes, self.constants = [], []

    def constant(self, name, values):
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def weights(self, name, *shape):
        return self.constant(name, self.random.standard_normal(shape).astype("float32") * 0.02)

    def op(self, kind, inputs, name, **attributes):
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def linear(self, x, name, inputs, outputs):
        product = self.op("MatMul", [x, self.weights(f"{name}.weight", inputs, outputs)], f"{name}.product")
        return self.op("Add", [product, self.weights(f"{name}.bias", outputs)], name)

    def heads(self, x, name, axes):
        split = self.op("Reshape", [self.linear(x, name, WIDTH, WIDTH), "split"], f"{name}.split")
        return self.op("Transpose", [split], f"{name}.heads", perm=axes)

    def norm(self, x, name):
        weights = [self.weights(f"{name}.weight", WIDTH), self.weights(f"{name}.bias", WIDTH)]
        return self.op("LayerNormalization", [x, *weights], name, axis=-1)

    def layer(self, x, at):
        query = self.heads(x, f"{at}.query", [0, 2, 1, 3])
        key = self.heads(x, f"{at}.key", [0, 2, 3, 1])
        value = self.heads(x, f"{at}.value", [0, 2, 1, 3])
        scores = self.op("Mul", [self.op("MatMul", [query, key], f"{at}.product"), "scale"], f"{at}.scores")
        shares = self.op("Softmax", [scores], f"{at}.shares", axis=-1)
        mixed = self.op("MatMul", [shares, value], f"{at}.mixed")
        mixed = self.op("Transpose", [mixed], f"{at}.tokens", perm=[0, 2, 1, 3])
        mixed = self.op("Reshape", [mixed, "join"], f"{at}.joined")
        mixed = self.op("Add", [self.linear(mixed, f"{at}.out", WIDTH, WIDTH), x], f"{at}.attended")
        x = self.norm(mixed, f"{at}.norm")
        inner = self.op("Relu", [self.linear(x, f"{at}.inner", WIDTH, INNER)], f"{at}.active")
        outer = self.op("Add", [self.linear(inner, f"{at}.outer", INNER, WIDTH), x], f"{at}.added")
        return self.norm(outer, f"{at}.result")


def make(path):
    import numpy
    import onnx
    from onnx import TensorProto, helper

    encoder = Encoder()
    encoder.constant("split", numpy.array([0, 0, HEADS, WIDTH // HEADS], numpy.int64))
    encoder.constant("join", numpy.array([0, 0, WIDTH], numpy.int64))
    encoder.constant("scale", numpy.array((WIDTH // HEADS) ** -0.5, numpy.float32))
    x = encoder.op("Gather", [encoder.weights("words", WORDS, WIDTH), "tokens"], "embedded")
    for layer in range(LAYERS):
        x = encoder.layer(x, f"layer{layer}")
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "length"])
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "length", WIDTH])
    graph = helper.make_graph(encoder.nodes, "encoder", [tokens], [result], encoder.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


def use_pool(runtime, options, keeps_all):
    """Has the session use an allocator of the environment's, over a pool of the driver's."""
    from onnxruntime.capi._pybind_state import OrtArenaCfg

    config = OrtArenaCfg({"max_mem": 0})
    # Python's binding of 1.31.1 has no key for it. Behind the five fields of its own the struct of
    # the C interface has these: whether a pool is used, and how much it keeps.
    fields = ctypes.c_uint64.from_address(id(config) + 16).value
    ctypes.c_int32.from_address(fields + 32).value = 1
    ctypes.c_uint64.from_address(fields + 40).value = 2**62 if keeps_all else 0
    kind, place = runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, runtime.OrtMemType.DEFAULT
    memory = runtime.OrtMemoryInfo("Cuda", kind, 0, place)
    runtime.create_and_register_allocator_v2("CUDAExecutionProvider", memory, {}, config)
    options.add_session_config_entry("session.use_env_allocators", "1")


def external():
    """The provider's options that name the functions of `watch.c`, which is preloaded."""
    library = ctypes.CDLL(None)
    names = {"alloc": "give", "free": "take", "empty_cache": "empty"}
    address = lambda name: ctypes.cast(getattr(library, f"external_{name}"), ctypes.c_void_p).value
    return {f"gpu_external_{key}": str(address(name)) for key, name in names.items()}


def shapes(batches):
    """Knuth's generator (MMIX), its upper bits: the same in each run."""
    state = 7
    for _ in range(batches):
        shape = []
        for least, end in [(1, 33), (8, 500)]:
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            shape.append(least + (state >> 33) % (end - least))
        yield shape


def run(path, batches, way):
    import numpy
    import onnxruntime

    provider, options = {}, onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if way == "same":
        provider["arena_extend_strategy"] = "kSameAsRequested"
    elif way == "external":
        provider = external()
    elif way.startswith("pool"):
        use_pool(onnxruntime, options, way == "pool-keep")
    providers = [("CUDAExecutionProvider", provider)]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    assert "CUDAExecutionProvider" in session.get_providers()
    for shape in shapes(batches):
        session.run(None, {"tokens": numpy.zeros(shape, numpy.int64)})


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4])
