"""Pure transforms from DataFrame to DataFrame, without I/O, state or Python code for each row."""
