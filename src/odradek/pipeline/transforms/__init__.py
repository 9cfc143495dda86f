"""Pure transforms, DataFrame to DataFrame: no I/O, no state, no functions in Python per row."""
