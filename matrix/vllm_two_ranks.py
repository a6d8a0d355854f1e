"""vLLM itself with all of it on: tensor parallel over two ranks, custom all-reduce, CUDA graphs,
prefix cache, and a sleep of level 1, which brings the weights back. Passes if all requests end, the
second of the same prompts finds the first one's cache, and the sleep frees the memory of weights.
https://github.com/vllm-project/vllm/issues/42609

Device: memory:8GiB,devices:2,shared:FILE
"""
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from common import MIB, judged, need_graphs, need_pools

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16",
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "vocab_size": 32000,
    "num_attention_heads": 16, "num_key_value_heads": 8, "max_position_embeddings": 4096}
WEIGHTS = 96 * MIB  # of each rank, at least
PROMPTS = [{"prompt_token_ids": [*range(5, 100), last]} for last in range(4)]


def too_long(*_):
    raise TimeoutError("it does not end")


def figures(worker):
    """What the first rank holds of its device: now, at most, and at most in use."""
    import common
    import torch
    return common.held(peak=False), common.held(), torch.cuda.max_memory_allocated()


def serve(folder, told):
    """Starts, answers, sleeps, wakes and answers again."""
    from vllm import LLM, SamplingParams
    Path(folder, "config.json").write_text(json.dumps(MODEL))
    llm = LLM(
        folder, load_format="dummy", skip_tokenizer_init=True, tensor_parallel_size=2,
        max_model_len=1024, max_num_seqs=8, num_gpu_blocks_override=512,
        gpu_memory_utilization=0.6, enable_prefix_caching=True, enable_sleep_mode=True,
        compilation_config={"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [4]})
    wanted = SamplingParams(max_tokens=4, temperature=0, detokenize=False, ignore_eos=True)

    def answer():
        answers = llm.generate(PROMPTS, wanted, use_tqdm=False)
        assert all(len(one.outputs[0].token_ids) == 4 for one in answers), "an answer is short"
        return [one.num_cached_tokens for one in answers]

    answer()
    assert min(answer()) >= 80, "what the first requests have cached is not found"
    awake, *told[:] = llm.collective_rpc(figures)[0]
    llm.sleep(level=1)
    freed = awake - llm.collective_rpc(figures)[0][0]
    assert freed >= WEIGHTS, f"a sleep frees {freed / MIB:.0f} MiB"
    llm.wake_up()
    answer()


need_graphs()
need_pools()
signal.signal(signal.SIGALRM, too_long)
signal.alarm(400)
# The newer runner has a kernel count the tokens that are sampled: a simulated device runs none.
os.environ |= {"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0",
               "VLLM_SKIP_P2P_CHECK": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
               "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
if __name__ == "__main__":
    with judged() as told, tempfile.TemporaryDirectory() as folder:
        serve(folder, told)
