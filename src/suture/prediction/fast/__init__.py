"""The fast path beside a GPU: shared memory, writer processes, painting on the device."""
