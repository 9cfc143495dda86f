"""Client side of the wire protocol: pure connections and channels, with shells that do I/O."""
