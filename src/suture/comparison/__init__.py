"""Many runs side by side: planned from one small file, trained in parallel, put into the paper's tables."""
