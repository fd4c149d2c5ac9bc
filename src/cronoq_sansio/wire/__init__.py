"""Bytes to messages and back: gRPC over HTTP/2. Knows the shared words and the service's messages."""
