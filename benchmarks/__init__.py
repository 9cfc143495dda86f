"""One script a question, always beside a peer; results as a table and a plot under docs/."""
