"""Small tables of runs for tests, in the columns of the contract."""

from __future__ import annotations

from pathlib import Path

# Llama 3 8B on eight H100 with FSDP2, as torchtitan's benchmark of December 2024 has it (table 1, eager).
TORCHTITAN = {
    "id": "tt-1",
    "source": "pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md Table 1",
    "source_id": "torchtitan-202412",
    "kind": "pretrain",
    "model_name": "llama3-8b",
    "layers": "32",
    "hidden": "4096",
    "ffn_hidden": "14336",
    "gated_mlp": "true",
    "heads": "32",
    "kv_heads": "8",
    "head_dim": "128",
    "vocab": "128256",
    "tied_embeddings": "false",
    "seq_len": "8192",
    "hardware": "H100-96GB-HBM2e-500W",
    "n_gpus": "8",
    "dtype": "bf16",
    "data_parallel_kind": "fsdp2",
    "dp": "8",
    "tp": "1",
    "pp": "1",
    "cp": "1",
    "micro_batch": "2",
    "global_batch": "16",
    "recompute": "selective-op",
    "torch_compile": "false",
    "measured_tokens_per_s_per_gpu": "5762",
    "measured_peak_mem_gib": "82.4",
    "score_time": "A",
    "score_mem": "A",
}
# nanotron's 1B and 8B models of The Ultra-Scale Playbook: as many keys as heads, 2**17 words, sequences of 4096.
NANOTRON = {
    **TORCHTITAN,
    "id": "nt-1",
    "source": "The Ultra-Scale Playbook",
    "source_id": "nanotron",
    "model_name": "nanotron-llama-1B",
    "layers": "16",
    "hidden": "2048",
    "ffn_hidden": "8192",
    "kv_heads": "32",
    "head_dim": "64",
    "vocab": "131072",
    "tied_embeddings": "true",
    "seq_len": "4096",
    "hardware": "H100-SXM5-80GB",
    "data_parallel_kind": "ddp",
    "micro_batch": "1",
    "global_batch": "256",
    "recompute": "none",
    "measured_tokens_per_s_per_gpu": "39273",
    "measured_peak_mem_gib": "36.7",
}
NANOTRON_8B = {
    **NANOTRON,
    "model_name": "nanotron-llama-8B",
    "layers": "32",
    "hidden": "4096",
    "ffn_hidden": "14336",
    "head_dim": "128",
    "tied_embeddings": "false",
}


def written(folder: Path, *rows: dict[str, str], ending: str = "\n", mark: str = "") -> Path:
    """A table of these rows."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [",".join(columns), *(",".join(_quoted(row.get(name, "")) for name in columns) for row in rows)]
    path = folder / "runs.csv"
    path.write_bytes((mark + ending.join(lines) + ending).encode())
    return path


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(one in text for one in ',"\n') else text
