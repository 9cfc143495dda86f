"""One adapter a client, so that the same cases run on each; the clients stay as released."""
