"""Code that tests, benchmarks and conformance share: brokers as child processes, a wire client."""
