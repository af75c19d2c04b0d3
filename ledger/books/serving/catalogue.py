"""What each key of `totals` means of a plan that serves; keys that training has too keep their row where it holds."""

from __future__ import annotations

from ledger.books.catalogue import MEANINGS, Meaning
from ledger.books.serving.memory import CATEGORIES

SHARED = ("parameters", "parameters.active", "memory.capacity")  # rows that hold of serving as they are
LENGTHS = ("serve.prompt", "serve.output", "serve.prefix")
LAYOUT = ("parallelism.data", "parallelism.tensor", "parallelism.pipeline", "parallelism.expert")
POPE = "Pope et al. 2022, arXiv 2211.05102: weights once for all sequences of a pass, the cache of each"
ROOF = "kernels of decoding by data sheet where no curve was measured, all others by their curves"
STEADY = (
    "in a steady state an engine decodes its sequences and takes one chunk of a prompt in a step (Agrawal et al. 2024,"
    " arXiv 2403.02310); each sequence finds the others as they are on average (Reiser and Lavenberg 1980)"
)
REACHED = "of X experts, T of which a token uses, X (1 - (1 - T / X)^tokens) are reached"

SERVED: tuple[Meaning, ...] = (
    *(row for row in MEANINGS if row.key in SHARED),
    Meaning("parameters.per_device", "elements of weights that one device holds, at most over roles",
            "replicas hold all of the model; tensor, pipeline and expert parallelism divide it", LAYOUT),
    Meaning("flops.prefill", "matmul FLOPs of one prompt, shared prefix left out",
            "2mkn a product; causal masks, windows and chunks at their exact density",
            ("serve.prompt", "serve.prefix")),
    Meaning("flops.decode", "matmul FLOPs of one token that is decoded, on average over an output",
            "2mkn a product; what the token attends to is what waits in the cache", ("serve.prompt", "serve.output")),
    Meaning("memory.static.weights", "elements held x bytes of their formats, with scales",
            "each storage once, on the fullest device", ("parameters.per_device", "precision.weights")),
    Meaning("memory.weights", "memory.static.weights", "they are there all the time", ("memory.static.weights",), True),
    Meaning("memory.cache", "the cache at the fullest moment", "outputs of all sequences are whole then; where"
            " lengths are a distribution, each is as long as they are on average",
            ("serve.cache.per_device",)),
    Meaning("memory.activations", "what the largest operation of a pass reads and writes, and the stream beside it",
            "a chunk of a prompt and one token of each sequence", ("serve.chunk", "serve.concurrency")),
    Meaning("memory.logits", "scores of the next tokens, where they make the fullest moment",
            "one row of the vocabulary for each sequence of a pass", ("model.vocab", "precision.logits")),
    Meaning("memory.peak", " + ".join(f"memory.{part}" for part in CATEGORIES),
            "the fullest moment of the fullest role", tuple(f"memory.{part}" for part in CATEGORIES), exact=True),
    Meaning("memory.reserved", "memory.peak + a workspace of the matmul library + context, x fragmentation",
            "what the driver reports; pages of the cache leave nothing over",
            ("memory.peak", "accelerator.matmul_workspace", "stack.allocator.fragmentation",
             "stack.allocator.context")),
    Meaning("serve.cache.bytes_per_sequence", "sum over layers of width x tokens that wait x bytes of an element, at"
            " the end of the output; width = 2 x kv_heads x head_dim, or kv_rank + rope_head_dim of latent attention",
            "whole model, no copies; a layer with a window, or chunks, keeps those tokens only",
            ("serve.prompt", "serve.output", "precision.cache")),
    Meaning("serve.cache.per_device", "what sequences of a replica keep in the layers of a device, at the end of their"
            " outputs", "heads are cut over `tensor`, latents are not; a shared prefix is there once",
            ("serve.cache.bytes_per_sequence", "serve.concurrency", *LAYOUT, "serve.prefix")),
    Meaning("serve.weights_read", "bytes of weights that one device reads for one token of each of its sequences",
            f"every matrix once; {REACHED}", ("serve.concurrency", "precision.weights", *LAYOUT)),
    Meaning("serve.cache.read", "bytes of the cache that one device reads for one token of each of its sequences",
            POPE, ("serve.concurrency", *LENGTHS, "precision.cache", *LAYOUT)),
    Meaning("serve.time_per_token.floor", "(serve.weights_read + serve.cache.read) / accelerator.bandwidth, over all"
            " stages", f"data sheet alone; {POPE}",
            ("serve.weights_read", "serve.cache.read", "accelerator.bandwidth", "serve.speculative")),
    Meaning("serve.concurrency", "as stated, or serve.arrival_rate x serve.residence", "Little 1961",
            ("serve.residence",)),
    Meaning("serve.concurrency.max", "the most sequences that the engine takes at once: those whose whole outputs its"
            " share of memory holds, and no more than it decodes in a step", "the fullest role decides",
            ("memory.capacity", "serve.cache.bytes_per_sequence", "stack.engine.memory", "stack.engine.sequences")),
    Meaning("serve.excess", "serve.concurrency - serve.concurrency.max, where that is more than 0", "figures of a plan"
            " that has such are of an engine that took them all",
            ("serve.concurrency", "serve.concurrency.max")),
    Meaning("serve.ttft", "passes of a prompt x seconds of one through all stages", "no queue, and nothing decoded"
            " beside it",
            ("serve.prompt", "serve.prefix", "serve.chunk", "flops.prefill", "precision.compute", *LAYOUT)),
    Meaning("serve.time_per_token", "mean seconds of a step with the sequences beside one, with a chunk of a prompt or"
            " without / serve.speculative", f"{STEADY}; {ROOF}",
            ("serve.concurrency", "serve.chunk", "serve.speculative", *LENGTHS, "serve.weights_read",
             "serve.cache.read", "precision.compute", "accelerator.bandwidth")),
    Meaning("serve.residence", "passes of a prompt + decoded tokens x serve.time_per_token", f"from its first pass to"
            f" its last token; {STEADY}",
            ("serve.time_per_token", *LENGTHS)),
    Meaning("serve.waiting", "serve.residence - serve.ttft - decoded tokens x serve.time_per_token", "what others in"
            " flight add to the first token: chunks of their prompts, and their tokens that are decoded beside it",
            ("serve.residence", "serve.ttft", "serve.time_per_token", "serve.output")),
    Meaning("serve.queue", "requests a second x mean square of the seconds of a prompt / 2 (1 - requests a second x"
            " mean of them), of each engine", "M/G/1: requests arrive at random, and an engine takes one prompt after"
            " the other; Pollaczek 1930, Khinchine 1932; 0 where a plan keeps sequences in flight, absent where"
            " requests wait ever longer", ("serve", "serve.prompt", "serve.chunk", "serve.ttft")),
    Meaning("serve.ttft.under_load", "serve.ttft + serve.waiting + serve.queue", "from a request's arrival to its first"
            " token, the mean; a plan that keeps sequences in flight has no queue",
            ("serve.ttft", "serve.waiting", "serve.queue")),
    Meaning("serve.tokens_per_second", "serve.concurrency / serve.residence x output tokens",
            STEADY, ("serve.concurrency", "serve.residence", "serve.output")),
    Meaning("serve.tokens_per_second_per_device", "serve.tokens_per_second / cluster.devices", "an even share",
            ("serve.tokens_per_second", "cluster.devices"), exact=True),
    Meaning("serve.requests_per_second", "serve.tokens_per_second over the tokens of an output", "answers in a second",
            ("serve.tokens_per_second", "serve.output")),
    Meaning("serve.unanswered", "1 - serve.requests_per_second / serve.arrival_rate, not below 0",
            "of the requests that arrive, those that wait ever longer",
            ("serve.requests_per_second", "serve.arrival_rate")),
    Meaning("cost.per_million_tokens", "cluster.devices * assumptions.price.per_device_hour / 3600 * 1000000"
            " / serve.tokens_per_second", "output tokens alone; the price of a device's hour",
            ("cluster.devices", "assumptions.price.per_device_hour", "serve.tokens_per_second"), exact=True),
)  # fmt: skip
