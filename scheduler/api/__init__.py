"""The gRPC services, for clients and for executors."""
