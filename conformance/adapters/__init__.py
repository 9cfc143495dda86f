"""An adapter for each client, so that all clients run the same cases without modification."""
