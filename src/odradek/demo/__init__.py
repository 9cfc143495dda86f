"""The demo: a broker, usage events through it, a lakehouse table from them, and a picture."""
