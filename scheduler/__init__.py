"""The scheduler service: job store, task and executor managers, coordinators, gRPC. Holds no truth, only caches."""
