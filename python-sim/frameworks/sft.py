"""SFTTrainer of TRL with LoRA of PEFT, on a small Llama."""

import tempfile

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = {"[PAD]": 0, "[EOS]": 1, "[UNK]": 2, "a": 3, "b": 4}
words = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]")
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2))
with tempfile.TemporaryDirectory() as folder:
    SFTTrainer(
        model, SFTConfig(folder, max_steps=10, max_length=64, report_to="none"),
        train_dataset=Dataset.from_dict({"text": ["a b " * 40] * 64}),
        processing_class=tokenizer, peft_config=LoraConfig(r=8)).train()
