"""Evidence: what measurements, publications and PyTorch say about the figures of the books.

Takes a plan or a compiled plan, and the evidence files of the library. Gives typed records of those files (read
`documents` first), the measurements and published runs nearest to a plan (`nearest`), the files that its prices cite
(`citations`), and verifications against PyTorch (`verification`, `verdicts`). `microbenchmarks` reads timings of
kernels and transfers.
"""
