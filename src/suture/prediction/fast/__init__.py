"""The fast prediction path: shared memory, writer processes, drawing on the GPU."""
